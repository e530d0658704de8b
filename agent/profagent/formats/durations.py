"""Distribution of durations in little room: exact count, sum, squares, minimum and maximum, and a histogram. Pure.

The bins of the histogram grow by 0.4 %, so that a quantile is known within 0.4 %, wherever the values of a bin are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

GROWTH = 1.004
RESOLUTION = GROWTH - 1
# The first bin has everything up to LEAST_US, the last one everything above it that the others do not reach.
LEAST_US = 1e-3
BINS = 7_000
_PACKED = np.dtype([("bin", "<u2"), ("count", "<u4")])


class Distribution:
    """Distribution of durations in µs."""

    __slots__ = ("bins", "least", "most", "number", "squares", "total")

    def __init__(self) -> None:
        self.number, self.total, self.squares = 0, 0.0, 0.0
        self.least, self.most = float("inf"), float("-inf")
        # Number of durations in each bin.
        self.bins: NDArray[np.int64] = np.zeros(BINS, np.int64)

    def add(self, values: Floats) -> None:
        """Add durations; NaN is none."""
        values = values[~np.isnan(values)]
        if not len(values):
            return
        self.number += len(values)
        self.total += float(values.sum())
        self.squares += float(np.square(values).sum())
        self.least, self.most = min(self.least, float(values.min())), max(self.most, float(values.max()))
        places = np.floor(np.log(np.maximum(values, LEAST_US) / LEAST_US) / np.log(GROWTH)).astype(np.int64)
        self.bins += np.bincount(np.minimum(places, BINS - 1), minlength=BINS)

    @property
    def columns(self) -> tuple[float, ...]:
        """Number, sum, sum of squares, minimum and maximum, as `unpacked` takes them."""
        return self.number, self.total, self.squares, self.least, self.most

    def merge(self, other: Distribution) -> None:
        """Add the durations of another distribution."""
        self.number, self.total = self.number + other.number, self.total + other.total
        self.squares += other.squares
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)
        self.bins += other.bins

    def quantile(self, share: float) -> float:
        """Return the duration that this share of all does not exceed, within RESOLUTION; NaN without a duration."""
        if not self.number:
            return float("nan")
        place = int(np.searchsorted(np.cumsum(self.bins), share * (self.number - 1), side="right"))
        return float(self.clipped(_middles(np.array([place])))[0])

    def clipped(self, values: Floats) -> Floats:
        """Return values moved between the least and the largest duration."""
        return np.clip(values, self.least, self.most)

    def weighted(self) -> tuple[Floats, NDArray[np.int64]]:
        """Return the middles of the bins that are not empty, and how many durations each has."""
        (places,) = self.bins.nonzero()
        return self.clipped(_middles(places)), self.bins[places]

    def spread(self, parts: int) -> tuple[Floats, NDArray[np.int64]]:
        """Return `weighted` with the durations of each bin spread evenly over so many parts of it."""
        (places,) = self.bins.nonzero()
        ends = np.arange(parts + 1) / parts
        counts = np.diff(np.round(self.bins[places][:, np.newaxis] * ends), axis=1).astype(np.int64)
        values = LEAST_US * GROWTH ** (places[:, np.newaxis] + (ends[:-1] + ends[1:]) / 2)
        is_there = counts > 0
        return self.clipped(values[is_there]), counts[is_there]

    def edges(self) -> tuple[Floats, Floats, NDArray[np.int64]]:
        """Return the lower and the upper ends of the bins that are not empty, and how many durations each has."""
        (places,) = self.bins.nonzero()
        lower, upper = (np.asarray(LEAST_US * GROWTH ** (places + step), np.float64) for step in (0, 1))
        # The first and the last bin have no end of their own.
        lower[places == 0], upper[places == BINS - 1] = -np.inf, np.inf
        return self.clipped(lower), self.clipped(upper), self.bins[places]

    def packed(self) -> bytes:
        """Return the histogram as bytes."""
        (places,) = self.bins.nonzero()
        found = np.empty(len(places), _PACKED)
        found["bin"], found["count"] = places, self.bins[places]
        return found.tobytes()

    @classmethod
    def unpacked(cls, columns: Sequence[float], packed: bytes) -> Distribution:
        """Return the distribution of number, sum, sum of squares, minimum and maximum, and the bytes of `packed`."""
        found = cls()
        number, found.total, found.squares, found.least, found.most = columns
        found.number = int(number)
        rows = np.frombuffer(packed, _PACKED)
        found.bins[rows["bin"]] = rows["count"]
        return found


class WeightedDurations(NamedTuple):
    """Durations, each of which stands for some; those of a distribution are the middles of its bins."""

    values: Floats
    weights: NDArray[np.int64]

    @classmethod
    def of(cls, durations: Floats, thinned: Distribution | None) -> Self:
        """Return durations, and those in a distribution."""
        middles, counts = (np.empty(0), np.empty(0, np.int64)) if thinned is None else thinned.weighted()
        ones = np.ones(len(durations), np.int64)
        return cls(np.concatenate([durations, middles]), np.concatenate([ones, counts]))

    def quantiles(self, shares: Sequence[float], *, growth: float = GROWTH) -> list[float]:
        """Return quantiles; durations that stand for several are spread evenly over a bin that grows so much."""
        order = np.argsort(self.values)
        values, counts = self.values[order], self.weights[order]
        ends = np.cumsum(counts)

        def at(place: float) -> float:
            found = int(np.searchsorted(ends, place, side="right"))
            within = (place + 0.5 - (ends[found] - counts[found])) / counts[found] - 0.5
            return float(values[found] * growth**within)

        # Linear between two neighbours, as numpy's quantile is.
        found = []
        for share in shares:
            part, place = math.modf(share * (int(ends[-1]) - 1))
            found.append(at(place) * (1 - part) + at(place + (part > 0)) * part)
        return found


def _middles(places: NDArray[np.int64]) -> Floats:
    return np.asarray(LEAST_US * GROWTH ** (places + 0.5), np.float64)
