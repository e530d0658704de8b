"""Which inferences the runtime should have sampled, and which it did (format page 2.3). Pure.

The runtime samples a model's first inference, and a later one when at least `interval` inferences were run since the
last sampled one. While an earlier sample is still being written it postpones, and the count restarts where it sampled.
So of two neighbouring samples, `interval` or more inferences apart, one was due for each whole `interval` between
them: the last of these came, late by what is left over; the others never came. What was due after the last sample of a
file is not told by any name.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "FROM_FILE",
    "INFERRED",
    "Figures",
    "Gap",
    "SampleTally",
    "figures_of",
    "gap_of",
    "infer_interval",
    "interval_of",
    "sum_of",
    "tally_of",
]

INTERVAL_MAX = 9999
FROM_FILE = "acl.json"
INFERRED = "inferred"


class Gap(NamedTuple):
    """What lies between two neighbouring samples: how late the later one is, how many that were due never came."""

    late_by: int
    never_came: int


class Figures(NamedTuple):
    """How well a model was sampled. `due` includes what came; None: not known.

    `origin` says where the interval is from: FROM_FILE or INFERRED. `late` counts samples that came late.
    """

    interval: int | None
    origin: str | None
    sampled: int
    due: int | None
    late: int | None
    never_came: int | None


UNKNOWN_FIGURES = Figures(None, None, 0, None, None, None)


def interval_of(text: str) -> int | None:
    """The interval that an acl.json tells; a missing one is 0, None where the runtime would not take it."""
    digits = text.strip(" \t\r\n")
    if not text:
        return 0
    is_number = digits.isascii() and digits.isdecimal() and len(digits) <= len(str(INTERVAL_MAX))
    return int(digits) if is_number else None


def gap_of(inferences: int, interval: int) -> Gap | None:
    """What a distance between two samples means; None where the runtime cannot have left it with this interval."""
    if interval < 1 or inferences < interval:
        return None
    due, late_by = divmod(inferences, interval)
    return Gap(late_by, due - 1)


def infer_interval(gaps: Mapping[int, int]) -> int | None:
    """The interval that distances between samples show, by how often each was seen; None where they do not.

    It is the smallest one, as nothing comes early, when at least two samples and half of all came at that distance.
    A writer that is always busy for the same time cannot be told from a larger interval.
    """
    if not gaps:
        return None
    smallest = min(gaps)
    is_clear = gaps[smallest] >= 2 and 2 * gaps[smallest] >= sum(gaps.values())
    return smallest if is_clear else None


def figures_of(sampled: int, gaps: Mapping[int, int] | None, told: int | None) -> Figures:
    """Figures from the distances between samples, in inferences; None: they are not known.

    `told` is the interval of an acl.json. Distances that it does not allow show that the program was told another one.
    """
    interval = told if told is not None or gaps is None else infer_interval(gaps)
    origin = None if interval is None else INFERRED if told is None else FROM_FILE
    if interval is None or gaps is None or not sampled:
        return Figures(interval, origin, sampled, None, None, None)
    meanings = [(gap_of(gap, interval), count) for gap, count in gaps.items()]
    if any(meaning is None for meaning, _ in meanings):
        return Figures(interval, origin, sampled, None, None, None)
    late = sum(count for meaning, count in meanings if meaning is not None and meaning.late_by)
    never_came = sum(meaning.never_came * count for meaning, count in meanings if meaning is not None)
    return Figures(interval, origin, sampled, sampled + never_came, late, never_came)


def sum_of(figures: Iterable[Figures]) -> Figures:
    """Figures of several models together; an interval that is not that of all is None."""
    total, is_first = UNKNOWN_FIGURES, True
    for one in figures:
        if is_first:
            total, is_first = one, False
            continue
        same = (total.interval, total.origin) == (one.interval, one.origin)
        interval, origin = (one.interval, one.origin) if same else (None, None)
        total = Figures(
            interval,
            origin,
            total.sampled + one.sampled,
            _plus(total.due, one.due),
            _plus(total.late, one.late),
            _plus(total.never_came, one.never_came),
        )
    return total


@dataclass(slots=True)
class SampleTally:
    """The samples of one model, counted as they come in any order.

    `gaps` counts the distances between neighbours, in pictures. `pictures` go into each inference: None before the
    first sample, 0 where they differ, so that inferences cannot be counted.
    """

    sampled: int = 0
    pictures: int | None = None
    gaps: Counter[int] = field(default_factory=Counter)

    def insert(self, before: int | None, pic_count: int, after: int | None, pictures: int) -> None:
        """A sample after `pic_count` pictures; `before` and `after` are its neighbours' counts among those known."""
        self.sampled += 1
        self.pictures = pictures if self.pictures in (None, pictures) else 0
        if before is not None and after is not None:
            self._drop(after - before)
        if before is not None:
            self.gaps[pic_count - before] += 1
        if after is not None:
            self.gaps[after - pic_count] += 1

    def figures(self, told: int | None) -> Figures:
        """How well the model was sampled; `told` is the interval of its acl.json, None where that is not known."""
        return figures_of(self.sampled, self._inferences(), told)

    def _inferences(self) -> dict[int, int] | None:
        """The distances in inferences; None where they cannot be told."""
        pictures = self.pictures
        if not pictures or any(gap % pictures for gap in self.gaps):
            return None
        return {gap // pictures: count for gap, count in self.gaps.items()}

    def _drop(self, gap: int) -> None:
        self.gaps[gap] -= 1
        if not self.gaps[gap]:
            del self.gaps[gap]


def tally_of(loads: Iterable[Sequence[int]], pictures: int) -> SampleTally:
    """The samples of several loads of a model, by their picture counts, rising in each; `pictures` as SampleTally's."""
    tally = SampleTally()
    for counts in loads:
        for before, count in zip((None, *counts), counts, strict=False):
            tally.insert(before, count, None, pictures)
    return tally


def _plus(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
