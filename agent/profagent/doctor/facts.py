"""All that a JOB shows of the open facts, and its answers."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.doctor.fact import Alternative, Fact, Verdict, cannot_tell, settled
from profagent.doctor.finding import Section, bad, good, unknown
from profagent.doctor.numbering import BATCH_NUMBER, LOOP_NUMBER, check_batches, check_loops
from profagent.doctor.ticks import TICK_UNIT, check_ticks
from profagent.errors import FormatError
from profagent.formats.model_info import LAYER_ITEM, LAYER_NAME, LAYER_TYPE, iter_items, where_nets_begin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from profagent.doctor.fact import Answer
    from profagent.doctor.finding import Finding
    from profagent.doctor.numbering import Numbered
    from profagent.doctor.ticks import Timed
    from profagent.formats.model_info import Item


_SIMULATED = " [simulated: it proves nothing about hardware]"
_SEND = "send it, for what depends on it is not read right: profagent kit -o evidence.tar.gz JOB"


def facts_section(job: str, answers: Sequence[Answer], *, is_simulated: bool) -> Section:
    """A finding for each fact."""
    mark = _SIMULATED if is_simulated else ""
    return Section(f"{job}: facts that nobody knows{mark}", tuple(map(_finding, answers)))


def _finding(answer: Answer) -> Finding:
    if answer.is_misread:
        return bad(answer.fact.name, str(answer), _SEND)
    return (good if answer.verdict is Verdict.CONFIRMS else unknown)(answer.fact.name, str(answer))


NAME_NUL = Fact(
    "name-nul",
    (
        Alternative("with", "names of layers and types end in a NUL that is counted in their length"),
        Alternative("without", "names of layers and types end without a NUL"),
    ),
)
NET_START = Fact(
    "net-start",
    (
        Alternative("items", "net.info begins with the items of its first container, whose head is missing"),
        Alternative("length", "net.info begins with the rest of its first container's 32-bit length"),
        Alternative("container", "net.info begins with a whole container"),
        Alternative("elsewhere", "net.info begins with something else, before its first container"),
    ),
)
ITEM_FORM = Fact(
    "item-form",
    (
        Alternative("u32", "layer items have a length of 32 bits (0xC111)"),
        Alternative("u16", "layer items have a length of 16 bits (0xA111)"),
    ),
)
_TAGS = {0xC111: "u32", 0xA111: "u16"}


def check_names(layer_infos: Sequence[bytes]) -> Answer:
    """What the names in `.layer.info` files tell."""
    names = [name for data in layer_infos for name in _names(data)]
    if not names:
        return cannot_tell(NAME_NUL, "no .layer.info with names that can be read")
    ends = [{"with" if name.endswith(b"\0") else "without"} for name in names]
    seen = f"{sum('with' in each for each in ends)} of {len(names)} names end in a NUL"
    return settled(NAME_NUL, ends, ends, seen)


def check_forms(layer_infos: Sequence[bytes]) -> Answer:
    """What the tags of layer items tell."""
    tags = Counter(item.tag for data in layer_infos for item in _layer_items(data))
    if not tags:
        return cannot_tell(ITEM_FORM, "no .layer.info with layers that can be read")
    forms = [{_TAGS.get(tag, "")} for tag in tags.elements()]
    seen = ", ".join(f"{count} layer items {tag:#06x}" for tag, count in sorted(tags.items()))
    return settled(ITEM_FORM, forms, forms, seen)


def check_starts(net_infos: Sequence[bytes]) -> Answer:
    """What the first bytes of `.net.info` files tell."""
    starts = [(data[:8].hex(" "), start) for data in net_infos if (start := where_nets_begin(data)) is not None]
    if not starts:
        return cannot_tell(NET_START, "no .net.info in which nets are found")
    counts = Counter(start for _, start in starts)
    seen = f"{', '.join(f'{count} {start}' for start, count in sorted(counts.items()))}; the first is {starts[0][0]}"
    votes = [{start} for _, start in starts]
    return settled(NET_START, votes, votes, seen)


def _layer_items(data: bytes) -> Iterator[Item]:
    """As many as can be read."""
    try:
        yield from (item for item in iter_items(data, 0, len(data), "layer.info") if item.id == LAYER_ITEM)
    except FormatError:
        return


def _names(data: bytes) -> Iterator[bytes]:
    for layer in _layer_items(data):
        try:
            items = list(iter_items(data, layer.nested_start, layer.end, "layer.info"))
        except FormatError:
            continue
        yield from (
            item.value for item in items if item.id in (LAYER_NAME, LAYER_TYPE) and isinstance(item.value, bytes)
        )


FILE_PREFIX = Fact(
    "file-prefix",
    (
        Alternative("library", "files are called aicore., aicpu., acl_api."),
        Alternative("manual", "files are called AAcore., AAcpu., AclModule."),
    ),
)
_WRITERS = {
    "aicore": "library",
    "aicpu": "library",
    "acl_api": "library",
    "aacore": "manual",
    "aacpu": "manual",
    "aclmodule": "manual",
}
# A JOB may have hundreds of thousands of them: their beginnings are enough.
_BEGINNING = re.compile(rf"data/({'|'.join(_WRITERS)})\.\d+\.", re.IGNORECASE | re.ASCII)


def check_prefixes(paths: Iterable[str]) -> Answer:
    """What the paths in a JOB tell."""
    prefixes = Counter(found[1] for path in paths if (found := _BEGINNING.match(path)))
    if not prefixes:
        return cannot_tell(FILE_PREFIX, "no data file")
    votes = [{_WRITERS[prefix.lower()]} for prefix in prefixes.elements()]
    seen = ", ".join(f"{count} files {prefix}." for prefix, count in sorted(prefixes.items()))
    return settled(FILE_PREFIX, votes, votes, seen)


FACTS = (TICK_UNIT, BATCH_NUMBER, LOOP_NUMBER, NAME_NUL, NET_START, ITEM_FORM, FILE_PREFIX)


@dataclass(frozen=True, slots=True)
class Shown:
    """What is looked at in a JOB: paths, `.info` files whole, and inferences that have a `.done`."""

    paths: Sequence[str]
    layer_infos: Sequence[bytes]
    net_infos: Sequence[bytes]
    timed: Sequence[Timed]
    numbered: Sequence[Numbered]


def answers(shown: Shown) -> list[Answer]:
    """The answer to each fact, in the order of FACTS."""
    return [
        check_ticks(shown.timed),
        check_batches(shown.numbered),
        check_loops(shown.numbered),
        check_names(shown.layer_infos),
        check_starts(shown.net_infos),
        check_forms(shown.layer_infos),
        check_prefixes(shown.paths),
    ]
