"""How many of a run's inferences tell something new: some repeat earlier ones, successive ones are alike."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from profagent.stats.figures import MAD_TO_SIGMA, mad

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["different_rows", "in_blocks", "inflation", "wander"]

# Of fewer rows nobody can say whether successive ones are alike.
FEWEST_ROWS = 8
# A column's own estimate counts as much as that of all together when it is of so many blocks.
SHRINKING_BLOCKS = 10
MOST_ALIKE = 0.95


def different_rows(times: NDArray[np.float64]) -> NDArray[np.intp]:
    """The rows of a run, shape (inferences, layers), without those that repeat an earlier one in every value."""
    _, first = np.unique(np.nan_to_num(times, nan=-1.0), axis=0, return_index=True)
    return np.sort(first)


def inflation(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """By how much successive rows being alike raises the variance of each column's mean above independence; at least 1.

    By ranks it is the variance of means over blocks of √n rows, beside that of blocks of independent rows; or what
    follows from how alike neighbours are in all columns, where that is more: short blocks miss a part of it. A column's
    own figure is uncertain, so it is drawn to that of all columns: what drifts is mostly the whole run.
    """
    rows, columns = values.shape
    length = math.isqrt(rows)
    if rows < FEWEST_ROWS or not columns:
        return np.ones(columns)
    ranked = _ranked(values)
    blocks = rows // length
    means = ranked[: blocks * length].reshape(blocks, length, columns).mean(axis=1)
    own = length * means.var(axis=0, ddof=1) / ranked.var(axis=0, ddof=1)
    # Equal values keep their order when they are ranked, which would look like a trend.
    varies = np.ptp(values, axis=0) > 0
    own = np.where(varies, own, 1.0)
    together = max(own.mean(), _by_neighbours(ranked[:, varies])) if varies.any() else 1.0
    drawn = (SHRINKING_BLOCKS * together + blocks * own) / (SHRINKING_BLOCKS + blocks)
    least: NDArray[np.float64] = np.maximum(1.0, np.maximum(together, drawn))
    return least


def in_blocks(values: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    """Means over so many successive rows each; rows that are left over in the end are left out."""
    blocks = len(values) // length
    means: NDArray[np.float64] = values[: blocks * length].reshape(blocks, length, -1).mean(axis=1)
    return means


def wander(times: NDArray[np.float64]) -> float:
    """The variance of the mean of a run's whole times, as a share of it: how far the run as a whole may be off.

    Neighbours count as more alike than they were found by one standard error of that: a run that wanders slowly looks
    steadier than it is. The variance is at most that of the times themselves.
    """
    if len(times) < FEWEST_ROWS or not np.ptp(times):
        return 0.0
    spread = MAD_TO_SIGMA * mad(times) / float(np.median(times))
    return spread**2 * min(1.0, _by_neighbours(_ranked(times[:, np.newaxis]), errors=1.0) / len(times))


def _ranked(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.argsort(np.argsort(values, axis=0, kind="stable"), axis=0, kind="stable").astype(np.float64)


def _by_neighbours(ranked: NDArray[np.float64], errors: float = 0.0) -> float:
    """The inflation of rows that each keep a share of their forerunner's deviation, the same in all columns.

    `errors`: how many of its standard errors are added to the share that was found.
    """
    centred = ranked - ranked.mean(axis=0)
    alike = float(((centred[1:] * centred[:-1]).sum(axis=0) / (centred**2).sum(axis=0)).mean())
    # Of so few rows the share is found too small, by this much.
    share = min(max(alike + (1 + 3 * alike) / len(ranked), 0.0), MOST_ALIKE)
    share = min(share + errors * math.sqrt((1 - share**2) / len(ranked)), MOST_ALIKE)
    return (1 + share) / (1 - share)
