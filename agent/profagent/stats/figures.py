"""What many durations come to: sum, middle and spread."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MAD_TO_SIGMA", "Figures", "figures_of", "mad"]

# The standard deviation of normally distributed values is so many times their MAD.
MAD_TO_SIGMA = 1.4826
P95 = 0.95


class Figures(NamedTuple):
    """Of durations in their own unit; None where there is none. `mad` is not scaled to a standard deviation."""

    number: int
    total: float | None
    mean: float | None
    median: float | None
    mad: float | None
    p95: float | None
    max: float | None


def figures_of(durations: NDArray[np.float64], count: int | None = None) -> Figures:
    """The figures of durations; `count` where more are known to be than have a duration."""
    number = len(durations) if count is None else count
    if not len(durations):
        return Figures(number, None, None, None, None, None, None)
    # Between two values it is linear, as numpy's quantile is unless it is told otherwise.
    median, p95, most = (float(value) for value in np.quantile(durations, (0.5, P95, 1.0)))
    total = float(durations.sum())
    return Figures(number, total, total / len(durations), median, mad(durations), p95, most)


def mad(values: NDArray[np.float64]) -> float:
    """The median of the distances from the median, not scaled."""
    return float(np.median(np.abs(values - np.median(values))))
