"""What counters cannot be, whatever a layer does: a wrong counter map must not go unnoticed.

Each check is counted with a state of constant size, so that any number of records may pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.formats.countermap import COUNTER_NAMES
from profagent.formats.durations import ticks_to_us

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = [
    "MOST_SHARE",
    "PEAK_MEMORY_RATE",
    "SLACK_US",
    "TICKS",
    "CounterRows",
    "Place",
    "Tally",
    "checked",
    "merged",
    "told",
    "without",
]

# Rounding of the counters may lift a ratio above the whole.
LARGEST_RATIO = 1.01
# How far rounding may lift the effective share above the busy one, of which it is a part.
PART_SLACK = 0.01
# Bytes a second: LPDDR4X-4266 on 64 bits. No public source tells the SS928's; unverified.
PEAK_MEMORY_RATE = 34.1e9
_US_PER_S = 1e6
_RATIOS = tuple(name for name in COUNTER_NAMES if not name.endswith("_bytes"))
_PARTS = {"mac_ppen": "mac_busy", "vec_ppen": "vec_busy"}
_BYTES = tuple(name for name in COUNTER_NAMES if name.endswith("_bytes"))
# How far an inference's layers may be over the time of its `.done`, in whole microseconds (format page 3.1).
MOST_SHARE, SLACK_US = 1.02, 2.0
TICKS = "ticks <= .done"
# By the check's name, what an implausible value is.
CHECKS = {
    TICKS: "layers take longer by their ticks than their inference by its .done",
    **{f"{name} <= 1": f"{name} is above 1" for name in _RATIOS},
    **{f"{name} <= {whole}": f"{name} is above {whole}" for name, whole in _PARTS.items()},
    **{f"{name} rate": f"{name} is more than the memory can move" for name in _BYTES},
}


class Place(NamedTuple):
    """Where a record is, in the order of time: the pictures before its inference, its log, its number in that."""

    pictures: int
    path: str
    record: int


class CounterRows(NamedTuple):
    """Consecutive records of one log: all arrays have shape (records,); a counter that is not known is NaN."""

    first: Place
    ticks: NDArray[np.int64]
    counters: Mapping[str, NDArray[np.float64]]

    def place(self, index: int) -> Place:
        """Where one of them is."""
        return self.first._replace(record=self.first.record + index)


class Tally(NamedTuple):
    """Of `rows` that a check could look at, how many are implausible, which is the first, and the worst value."""

    rows: int = 0
    implausible: int = 0
    first: Place | None = None
    worst: float | None = None


def checked(
    pieces: Sequence[CounterRows], frequency_mhz: int | None, peak_bytes_per_s: float = PEAK_MEMORY_RATE
) -> dict[str, Tally]:
    """Count each check over records of the same counters; without a frequency no time, and so no rate, is known."""
    ticks = np.concatenate([piece.ticks for piece in pieces])
    counters = {name: np.concatenate([piece.counters[name] for piece in pieces]) for name in pieces[0].counters}
    ends = np.cumsum([len(piece.ticks) for piece in pieces])
    found = {}
    for name, values, limit in _looked_at(counters, ticks, frequency_mhz, peak_bytes_per_s):
        rows = len(values) - int(np.isnan(values).sum())
        if rows:
            found[name] = Tally(rows, *_odd(values, limit, pieces, ends))
    return found


def merged(one: Tally, other: Tally) -> Tally:
    """The tally of both."""
    firsts = [each.first for each in (one, other) if each.first is not None]
    worsts = [each.worst for each in (one, other) if each.worst is not None]
    return Tally(
        one.rows + other.rows,
        one.implausible + other.implausible,
        min(firsts, default=None),
        max(worsts, default=None),
    )


def without(tally: Tally, gone: Tally) -> Tally:
    """The tally of what is left; its first and worst may be of what is gone."""
    left = Tally(tally.rows - gone.rows, tally.implausible - gone.implausible)
    return left._replace(first=tally.first, worst=tally.worst) if left.implausible else left


def told(name: str, tally: Tally, peak_bytes_per_s: float = PEAK_MEMORY_RATE) -> str:
    """What a check with implausible values has found, in a line: how many of how many, the worst, the first."""
    assert tally.first is not None
    assert tally.worst is not None
    what, worst, first = "records", f"{tally.worst:,.4g}", f"record {tally.first.record} of {tally.first.path}"
    if name == TICKS:
        what, worst, first = "inferences", f"{worst} times", tally.first.path
    elif name.endswith(" rate"):
        worst = f"{tally.worst / 1e9:,.1f} GB/s, and {peak_bytes_per_s / 1e9:g} can be"
    return f"{CHECKS[name]} in {tally.implausible:,} of {tally.rows:,} {what}, at worst {worst}; first {first}"


def _looked_at(
    counters: Mapping[str, NDArray[np.float64]],
    ticks: NDArray[np.int64],
    frequency_mhz: int | None,
    peak_bytes_per_s: float,
) -> Iterator[tuple[str, NDArray[np.float64], NDArray[np.float64] | float]]:
    """Each check that can be made: its name, the values, and what each may be at most."""
    for name in _RATIOS:
        if name in counters:
            yield f"{name} <= 1", counters[name], LARGEST_RATIO
    for name, whole in _PARTS.items():
        if name in counters and whole in counters:
            yield f"{name} <= {whole}", counters[name], counters[whole] + PART_SLACK
    if frequency_mhz is None:
        return
    seconds = np.where(ticks > 0, ticks_to_us(ticks, frequency_mhz) / _US_PER_S, np.nan)
    for name in _BYTES:
        if name in counters:
            yield f"{name} rate", counters[name] / seconds, peak_bytes_per_s


def _odd(
    values: NDArray[np.float64],
    limit: NDArray[np.float64] | float,
    pieces: Sequence[CounterRows],
    ends: NDArray[np.int64],
) -> tuple[int, Place | None, float | None]:
    """How many values are above their limit, the first of them in time, and the largest."""
    places = (values > limit).nonzero()[0]
    if not len(places):
        return 0, None, None
    owners, firsts = np.unique(np.searchsorted(ends, places, side="right"), return_index=True)
    first = min(
        pieces[owner].place(int(places[at]) - int(ends[owner]) + len(pieces[owner].ticks))
        for owner, at in zip(owners.tolist(), firsts.tolist(), strict=True)
    )
    return len(places), first, float(values[places].max())
