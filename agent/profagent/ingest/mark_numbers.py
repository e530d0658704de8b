"""Numbers of marks, by which dropped marks are counted.

Each writer numbers its marks from 0, including those that it drops. Its numbers in one segment form runs; the runs of
all segments, in the order in which the board wrote them, show what is missing. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from profagent import ledger
from profagent.limits import MOST_RUNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from profagent.ledger import Entry

# How far numbers may be out of order: threads of a process take a number first and write later.
RACE = 64


class NumberRun(NamedTuple):
    """Numbers from `first` to `last`, of which `missing` are absent.

    `place` is the row of the first mark in its segment; `log` is the segment's number where several are compared.
    """

    first: int
    last: int
    place: int
    missing: int = 0
    log: int = 0


class Life:
    """Numbers of one process in one segment, as sorted runs."""

    def __init__(self, number: int, place: int) -> None:
        """Begin with the first number of the process."""
        # At most MOST_RUNS, none of which touches the next.
        self.runs = [NumberRun(number, number, place)]

    @property
    def dropped(self) -> int:
        """Count of numbers missing between those that are present."""
        return sum(missing for *_, missing in _gaps(self.runs)) - self.runs[0].first

    def take(self, number: int, place: int) -> bool:
        """Take the next number; return False if it belongs to another process with the same pid, which counts anew."""
        end = self.runs[-1]
        if number == end.last + 1:
            self.runs[-1] = end._replace(last=number)
        elif number > end.last:
            self.runs.append(NumberRun(number, number, place))
            self._bound()
        else:
            return self._take_late(number, place)
        return True

    def _take_late(self, number: int, place: int) -> bool:
        at = next((index for index, run in enumerate(self.runs) if run.last >= number), 0)
        if number <= self.runs[-1].last - RACE or self.runs[at].first <= number:
            return False
        self.runs.insert(at, NumberRun(number, number, place))
        self._join(at)
        self._join(at - 1)
        return True

    def _join(self, at: int) -> None:
        if 0 <= at < len(self.runs) - 1 and self.runs[at].last + 1 == self.runs[at + 1].first:
            self._merge(at)

    def _merge(self, at: int) -> None:
        one, other = self.runs[at : at + 2]
        missing = one.missing + other.missing + other.first - one.last - 1
        self.runs[at : at + 2] = [NumberRun(one.first, other.last, one.place, missing)]

    def _bound(self) -> None:
        # Runs in the middle are joined: numbers of other segments can only be near the two ends.
        if len(self.runs) > MOST_RUNS:
            self._merge(MOST_RUNS // 2)


def gaps(lives: Sequence[Sequence[NumberRun]]) -> Iterator[tuple[NumberRun, NumberRun | None, int]]:
    """Yield each run with the one before it in its process, and how many numbers are missing between them and in it.

    `lives` are those of one writer in the order of the stream. The first run of a process misses all numbers from 0 on.
    """
    known: list[NumberRun] = []
    for life in lives:
        if known and not _goes_on(known, life):
            yield from _gaps(known)
            known = []
        known = sorted([*known, *life])
    yield from _gaps(known)


def _goes_on(known: Sequence[NumberRun], life: Sequence[NumberRun]) -> bool:
    """Return True if the numbers continue the same process: none is a repetition, and none is far back."""
    if life[0].first <= known[-1].last - RACE:
        return False
    recent = [run for run in known if run.last >= life[0].first]
    return not any(run.first <= other.last and other.first <= run.last for run in life for other in recent)


def _gaps(runs: Sequence[NumberRun]) -> Iterator[tuple[NumberRun, NumberRun | None, int]]:
    before = None
    for run in runs:
        yield run, before, run.first - (-1 if before is None else before.last) - 1 + run.missing
        before = run


def dropped_entry(count: int) -> Entry:
    """Return the ledger's loss for missing numbers."""
    detail = "numbers of marks that are missing: no daemon took these, or the segment that has them is not here"
    return ledger.entry(ledger.DROPPED_MARKS, detail, count=count)
