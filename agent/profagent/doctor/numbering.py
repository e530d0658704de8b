"""How records are numbered where layers come more than once: several pictures, and loops (format page 3.1)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from profagent.doctor.fact import FEWEST_AGAINST, Alternative, Fact, cannot_tell, settled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from profagent.doctor.fact import Answer

__all__ = ["BATCH_NUMBER", "LOOP_NUMBER", "Numbered", "check_batches", "check_loops"]

BATCH_NUMBER = Fact(
    "batch-number",
    (
        Alternative("on", "numbers run on over all pictures of a segment"),
        Alternative("each-batch", "numbers begin again with each batch run", is_read=False),
        Alternative("each-picture", "a layer has the same number in each picture", is_read=False),
        Alternative("once", "a layer leaves one record for all pictures of a batch run", is_read=False),
    ),
)
LOOP_NUMBER = Fact(
    "loop-number",
    (
        Alternative("on", "numbers run on from pass to pass"),
        Alternative("each-pass", "numbers begin again with each pass"),
    ),
)

_ONE_ALONE = "one inference alone, in which a record may be disturbed"


@dataclass(frozen=True, slots=True)
class Numbered:
    """A net in one `inference`: its sequence numbers in the order of the file, of which there is one at least.

    `is_batch` has its runs of layers, `sizes` the pictures of each batch run; it may be gone through `max_loop` times.
    """

    inference: str
    sequence: tuple[int, ...]
    is_batch: tuple[bool, ...]
    sizes: tuple[int, ...]
    max_loop: int

    @property
    def records(self) -> int:
        """How many there are at most."""
        return len(self.is_batch) * sum(self.sizes)

    @property
    def last(self) -> int:
        """The highest number."""
        return max(self.sequence)


def check_batches(nets: Sequence[Numbered]) -> Answer:
    """What nets that worked on several pictures tell."""
    several = [each for each in nets if each.max_loop == 1 and sum(each.sizes) > 1]
    if not several:
        return cannot_tell(BATCH_NUMBER, "no inference of several pictures whose layers are known")
    ways = [_expected(each) for each in several]
    allowed = [
        {name for name, numbers in way.items() if _may_be(numbers, each)}
        for way, each in zip(ways, several, strict=True)
    ]
    # The last layers may take no time; a whole round of them does.
    likely = [
        {name for name in names if max(way[name]) - each.last < len(each.is_batch)}
        for names, way, each in zip(allowed, ways, several, strict=True)
    ]
    first, way = several[0], ways[0]
    expected = ", ".join(f"{max(numbers)} by {name}" for name, numbers in way.items())
    seen = (
        f"{len(several)} segments; in the first, of {len(first.is_batch)} layers and {sum(first.sizes)} pictures, the"
        f" highest number is {first.last}, {_times(first)}; expected {expected}"
    )
    inferences = [each.inference for each in several]
    if len({*inferences}) < FEWEST_AGAINST:
        return cannot_tell(BATCH_NUMBER, f"{_ONE_ALONE}: {seen}")
    return settled(BATCH_NUMBER, allowed, likely, seen, inferences)


def check_loops(nets: Sequence[Numbered]) -> Answer:
    """What nets that may loop tell, where they did."""
    loops = [each for each in nets if each.max_loop > 1 and sum(each.sizes) == 1]
    if not loops:
        return cannot_tell(LOOP_NUMBER, "no net that loops, with one picture, and whose layers are known")
    telling = [(vote, each) for each in loops if len(vote := _passes(each)) < len(LOOP_NUMBER.alternatives)]
    if not telling:
        return cannot_tell(LOOP_NUMBER, f"{len(loops)} segments may loop, and left the numbers of one pass")
    first = telling[0][1]
    seen = (
        f"{len(telling)} of {len(loops)} segments loop; in the first, of {len(first.is_batch)} layers, the highest"
        f" number is {first.last}, {_times(first)}"
    )
    votes, inferences = [vote for vote, _ in telling], [each.inference for _, each in telling]
    if len({*inferences}) < FEWEST_AGAINST:
        return cannot_tell(LOOP_NUMBER, f"{_ONE_ALONE}: {seen}")
    return settled(LOOP_NUMBER, votes, votes, seen, inferences)


def _passes(each: Numbered) -> set[str]:
    goes_on, comes_again = each.last >= len(each.is_batch), each.sequence.count(each.last) > 1
    if goes_on and comes_again:
        return set()
    return {"on"} if goes_on else {"each-pass"} if comes_again else set(LOOP_NUMBER.names)


def _times(each: Numbered) -> str:
    count = each.sequence.count(each.last)
    return "once" if count == 1 else f"{count} times"


def _expected(each: Numbered) -> Mapping[str, list[int]]:
    """The numbers of all records, by each alternative, before the runtime's filter."""
    batches = [_one_batch(each.is_batch, size) for size in each.sizes]
    return {
        "on": list(range(sum(map(len, batches)))),
        "each-batch": [number for batch in batches for number in range(len(batch))],
        "each-picture": [index for batch in batches for index in batch],
        "once": list(range(len(each.is_batch) * len(batches))),
    }


def _one_batch(is_batch: Sequence[bool], size: int) -> list[int]:
    """The runs of one batch as they are executed: layers between batch layers once for each picture."""
    order: list[int] = []
    for batch, group in groupby(range(len(is_batch)), key=is_batch.__getitem__):
        order += [*group] * (1 if batch else size)
    return order


def _may_be(numbers: Sequence[int], each: Numbered) -> bool:
    """Whether the records can be what the runtime's filter and layers without time left of these.

    The filter keeps every record of the highest number that it let through: so often that one must be there. A single
    number that is too high may be a disturbed one, behind which the filter lets nothing through.
    """
    is_cut = each.last > max(numbers)
    sequence = each.sequence[:-1] if is_cut else each.sequence
    left = iter(numbers)
    if not sequence or not all(number in left for number in sequence):
        return False
    last = max(sequence)
    seen, expected = sequence.count(last), Counter(numbers)[last]
    return seen <= expected if is_cut else seen == expected
