"""How many of a run's inferences tell something new: some repeat earlier ones, successive ones are alike."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["different_rows", "inflation"]

# Of fewer rows nobody can say whether successive ones are alike.
FEWEST_ROWS = 8
# A column's own estimate counts as much as that of all together when it is of so many blocks.
SHRINKING_BLOCKS = 10


def different_rows(times: NDArray[np.float64]) -> NDArray[np.intp]:
    """The rows of a run, shape (inferences, layers), without those that repeat an earlier one in every value."""
    _, first = np.unique(np.nan_to_num(times, nan=-1.0), axis=0, return_index=True)
    return np.sort(first)


def inflation(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """By how much successive rows being alike raises the variance of each column's mean above independence; at least 1.

    It is the variance of means over blocks of √n rows, beside that of blocks of independent rows, by ranks. A column's
    own figure is uncertain, so it is drawn to the mean of all columns: what drifts is mostly the whole run.
    """
    rows, columns = values.shape
    length = math.isqrt(rows)
    if rows < FEWEST_ROWS or not columns:
        return np.ones(columns)
    ranked = np.argsort(np.argsort(values, axis=0, kind="stable"), axis=0, kind="stable").astype(np.float64)
    blocks = rows // length
    means = ranked[: blocks * length].reshape(blocks, length, columns).mean(axis=1)
    own = length * means.var(axis=0, ddof=1) / ranked.var(axis=0, ddof=1)
    # Equal values keep their order when they are ranked, which would look like a trend.
    own = np.where(np.ptp(values, axis=0) > 0, own, 1.0)
    together = own.mean()
    drawn = (SHRINKING_BLOCKS * together + blocks * own) / (SHRINKING_BLOCKS + blocks)
    least: NDArray[np.float64] = np.maximum(1.0, np.maximum(together, drawn))
    return least
