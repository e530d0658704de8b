"""Facts that no public source tells for certain, and what a JOB directory says of them (docs/reference/doctor.md)."""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from profagent.doctor.finding import Section, bad, good, unknown
from profagent.doctor.job import LEAST_SHARE, MOST_SHARE, SLACK_US, inferences_of
from profagent.errors import FormatError
from profagent.formats.model_info import LAYER_ITEM, LAYER_NAME, LAYER_TYPE, iter_items, where_nets_begin
from profagent.formats.names import LogKind, display_text, parse_log_name
from profagent.ingest.decoder import small_file
from profagent.ingest.local import JobRecords

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from profagent.doctor.finding import Finding
    from profagent.doctor.job import Inference, Net
    from profagent.formats.model_info import Item

# Each fact's alternatives; the first is the one that is taken for likely.
FACTS: Mapping[str, Mapping[str, str]] = {
    "tick-unit": {
        "100-cycles": "a tick is 100 cycles of the NPU's clock",
        "cycle": "a tick is one cycle of the NPU's clock",
        "10-ns": "a tick is 10 ns",
        "us": "a tick is a microsecond",
    },
    "batch-number": {
        "on": "numbers run on over all pictures of a segment",
        "each-batch": "numbers begin again with each batch run",
        "each-picture": "a layer has the same number in each picture",
        "once": "a layer leaves one record for all pictures of a batch run",
    },
    "loop-number": {
        "on": "numbers run on from pass to pass",
        "each-pass": "numbers begin again with each pass",
    },
    "name-nul": {
        "with": "names of layers and types end in a NUL that is counted in their length",
        "without": "names of layers and types end without a NUL",
    },
    "net-start": {
        "items": "net.info begins with the items of its first container, whose head is missing",
        "length": "net.info begins with the rest of its first container's 32-bit length",
        "container": "net.info begins with a whole container",
        "elsewhere": "net.info begins with something else, before its first container",
    },
    "item-form": {
        "u32": "layer items have a length of 32 bits (0xC111)",
        "u16": "layer items have a length of 16 bits (0xA111)",
    },
    "file-prefix": {
        "library": "files are called aicore., aicpu., acl_api.",
        "manual": "files are called AAcore., AAcpu., AclModule.",
    },
}
# Of these only the first alternative is read right.
READ_IN_ONE_WAY = ("tick-unit", "batch-number")
_SEND = "send it, for what depends on it is not read right: profagent kit -o evidence.tar.gz JOB"

# An alternative is refuted when more than this share of the votes is against it.
MOST_AGAINST = 0.2
# Of .info files in all, of each kind.
MOST_INFO_BYTES = 4 << 20
# Below, whole microseconds say little.
LEAST_US = 50


class Votes(NamedTuple):
    """For each thing that was looked at, the alternatives that it allows; `seen` has the numbers.

    `spare` votes never refute: one record of one inference may be disturbed.
    """

    seen: str
    votes: Sequence[Collection[str]] = ()
    spare: int = 0


def job_facts(directory: Path) -> Section:
    """What a JOB confirms or refutes, a finding for each fact. Raises UsageError for no JOB."""
    job = JobRecords(directory)
    layer_infos, net_infos = (_infos(job, kind) for kind in (LogKind.LAYER_INFO, LogKind.NET_INFO))
    inferences = list(inferences_of(job))
    told = {
        "tick-unit": tick_votes(inferences, job.frequency_mhz),
        "batch-number": batch_votes([each.nets for each in inferences]),
        "loop-number": loop_votes([each.nets for each in inferences]),
        "name-nul": _name_votes(layer_infos),
        "net-start": _start_votes(net_infos),
        "item-form": _form_votes(layer_infos),
        "file-prefix": _prefix_votes(job.paths),
    }
    mark = " [simulated: it proves nothing about hardware]" if job.is_simulated else ""
    findings = tuple(fact_finding(name, told[name]) for name in FACTS)
    return Section(f"{display_text(str(directory))}: facts that nobody knows{mark}", findings)


def fact_finding(fact: str, told: Votes) -> Finding:
    """What the votes make of a fact."""
    alternatives, most_against = FACTS[fact], max(told.spare, MOST_AGAINST * len(told.votes))
    possible = [name for name in alternatives if sum(name not in vote for vote in told.votes) <= most_against]
    if len(possible) == len(alternatives):
        return unknown(fact, f"cannot tell: {told.seen}")
    refuted = f"refutes {', '.join(name for name in alternatives if name not in possible)}"
    if len(possible) == 1:
        evidence = f"confirms {possible[0]}: {alternatives[possible[0]]}; {refuted}: {told.seen}"
    else:
        evidence = f"{refuted}; left is {' or '.join(possible) or 'none that is known'}: {told.seen}"
    if not possible or (fact in READ_IN_ONE_WAY and next(iter(alternatives)) not in possible):
        return bad(fact, evidence, _SEND)
    return good(fact, evidence) if len(possible) == 1 else unknown(fact, evidence)


def tick_votes(inferences: Sequence[Inference], frequency_mhz: int | None) -> Votes:
    """Layers take no longer than their inference; an NPU that idles looks like a longer tick, and tells nothing."""
    usable = [each for each in inferences if each.window_us >= LEAST_US and each.ticks]
    if not usable or not frequency_mhz:
        return Votes(f"no inference of {LEAST_US} us or more with a .done and the NPU's clock")
    unit_us = {"100-cycles": 100 / frequency_mhz, "cycle": 1 / frequency_mhz, "10-ns": 0.01, "us": 1.0}
    votes = []
    for each in usable:
        took = {name: each.ticks * us for name, us in unit_us.items()}
        allowed = {name for name, us in took.items() if us <= each.window_us * MOST_SHARE + SLACK_US}
        likely = {name for name in allowed if took[name] >= LEAST_SHARE * each.window_us}
        is_sure = likely and len(allowed) < len(took) and not each.may_have_cpu_part
        votes.append(likely if is_sure else allowed)
    ratio = median(each.ticks / each.window_us for each in usable)
    shares = ", ".join(f"{ratio * us:.1%} by {name}" for name, us in unit_us.items())
    return Votes(f"layers take of {len(usable)} inferences, at the median, {shares}", votes, spare=1)


def batch_votes(inferences: Sequence[Sequence[Net]]) -> Votes:
    """How nets that worked on several pictures are numbered."""
    several = [[net for net in nets if net.max_loop == 1 and sum(net.sizes) > 1] for nets in inferences]
    first = next((net for nets in several for net in nets), None)
    if first is None:
        return Votes("no inference of several pictures whose layers are known")
    expected = ", ".join(f"{max(numbers)} by {name}" for name, numbers in _numberings(first).items())
    seen = (
        f"{sum(map(len, several))} segments; in the first, of {len(first.is_batch)} layers and {sum(first.sizes)}"
        f" pictures, the highest number is {max(first.sequence)}; expected {expected}"
    )
    votes = [frozenset.intersection(*map(_batch_vote, nets)) for nets in several if nets]
    return Votes(seen, votes, spare=1)


def loop_votes(inferences: Sequence[Sequence[Net]]) -> Votes:
    """How nets that may loop are numbered, where they did."""
    loops = [[net for net in nets if net.max_loop > 1 and sum(net.sizes) == 1] for nets in inferences]
    if not any(loops):
        return Votes("no net that loops, with one picture, and whose layers are known")
    votes = [frozenset.intersection(*map(_loop_vote, nets)) for nets in loops if nets]
    telling = [vote for vote in votes if len(vote) < len(FACTS["loop-number"])]
    return Votes(f"{len(telling)} of {len(votes)} inferences left more than the numbers of one pass", telling, spare=1)


def _batch_vote(net: Net) -> frozenset[str]:
    last, ways = max(net.sequence), _numberings(net)
    allowed = frozenset(name for name, numbers in ways.items() if _may_be(numbers, net.sequence))
    # The last layers may take no time; a whole round of them does.
    likely = frozenset(name for name in allowed if max(ways[name]) - last < len(net.is_batch))
    return likely or allowed


def _loop_vote(net: Net) -> frozenset[str]:
    last = max(net.sequence)
    goes_on, comes_again = last >= len(net.is_batch), net.sequence.count(last) > 1
    if goes_on == comes_again:
        return frozenset() if goes_on else frozenset(FACTS["loop-number"])
    return frozenset({"on"}) if goes_on else frozenset({"each-pass"})


def _numberings(net: Net) -> Mapping[str, list[int]]:
    """The numbers of all records, by each alternative, before the runtime's filter."""
    batches = [_one_batch(net.is_batch, size) for size in net.sizes]
    return {
        "on": list(range(sum(map(len, batches)))),
        "each-batch": [number for batch in batches for number in range(len(batch))],
        "each-picture": [index for batch in batches for index in batch],
        "once": list(range(len(net.is_batch) * len(batches))),
    }


def _one_batch(is_batch: Sequence[bool], size: int) -> list[int]:
    """The runs of one batch as they are executed: layers between batch layers once for each picture."""
    order: list[int] = []
    for batch, group in groupby(range(len(is_batch)), key=is_batch.__getitem__):
        order += [*group] * (1 if batch else size)
    return order


def _may_be(numbers: Sequence[int], sequence: Sequence[int]) -> bool:
    """Whether the records can be what the runtime's filter and layers without time left of these.

    The filter keeps every record of the highest number that it let through. A single number at the end that is too
    high may be disturbed.
    """
    is_cut = max(sequence) > max(numbers)
    rest = sequence[:-1] if is_cut else sequence
    left = iter(numbers)
    if not rest or not all(number in left for number in rest):
        return False
    last = max(rest)
    seen, expected = rest.count(last), Counter(numbers)[last]
    return seen <= expected if is_cut else seen == expected


def _name_votes(layer_infos: Sequence[bytes]) -> Votes:
    names = [
        item.value
        for data in layer_infos
        for layer in _items(data, 0, len(data))
        if layer.id == LAYER_ITEM
        for item in _items(data, layer.nested_start, layer.end)
        if item.id in (LAYER_NAME, LAYER_TYPE) and isinstance(item.value, bytes)
    ]
    if not names:
        return Votes("no .layer.info with names that can be read")
    ends = [{"with" if name.endswith(b"\0") else "without"} for name in names]
    return Votes(f"{sum('with' in each for each in ends)} of {len(names)} names end in a NUL", ends)


def _form_votes(layer_infos: Sequence[bytes]) -> Votes:
    tags = Counter(item.tag for data in layer_infos for item in _items(data, 0, len(data)) if item.id == LAYER_ITEM)
    if not tags:
        return Votes("no .layer.info with layers that can be read")
    seen = ", ".join(f"{count} layer items {tag:#06x}" for tag, count in sorted(tags.items()))
    return Votes(seen, [{{0xC111: "u32", 0xA111: "u16"}.get(tag, "")} for tag in tags.elements()])


def _start_votes(net_infos: Sequence[bytes]) -> Votes:
    starts = [start for data in net_infos if (start := where_nets_begin(data)) is not None]
    if not starts:
        return Votes("no .net.info in which nets are found")
    seen = ", ".join(f"{count} {start}" for start, count in sorted(Counter(starts).items()))
    return Votes(f"{seen}; the first is {net_infos[0][:8].hex(' ')}", [{start} for start in starts])


_PREFIX = re.compile(r"data/(?:(aicore|aicpu|acl_api)|(aacore|aacpu|aclmodule))\.\d+\.", re.IGNORECASE | re.ASCII)


def _prefix_votes(paths: Sequence[str]) -> Votes:
    found = [match for path in paths if (match := _PREFIX.match(path))]
    if not found:
        return Votes("no data file")
    votes = [{"library" if match[1] else "manual"} for match in found]
    counts = Counter(match[1] or match[2] for match in found)
    return Votes(", ".join(f"{count} files {prefix}." for prefix, count in sorted(counts.items())), votes)


def _items(data: bytes, start: int, end: int) -> Iterator[Item]:
    """As many as can be read."""
    try:
        yield from iter_items(data, start, end, "layer.info")
    except FormatError:
        return


def _infos(job: JobRecords, kind: LogKind) -> list[bytes]:
    infos, room = [], MOST_INFO_BYTES
    for path in job.paths:
        # Of hundreds of thousands of names few are worth reading.
        name = parse_log_name(path) if path.endswith(".info") else None
        data = small_file(job, path) if name is not None and name.kind is kind else None
        if data is not None and len(data) <= room:
            room -= len(data)
            infos.append(data)
    return infos
