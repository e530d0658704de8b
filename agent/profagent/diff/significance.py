"""The test for columns of two runs that differ by more than noise: a permutation test with Westfall and Young's max-t.

If two runs do not differ, the assignment of rows to runs is arbitrary. So rows are dealt to the runs many times, and
a column's p is the share of deals in which any column differs as much. This accounts for the number of comparisons,
and for layers that slow down together, which are hardly more than one comparison.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from profagent.limits import MOST_COMPARED, REMEMBERED_DEALS
from profagent.stats.figures import MAD_TO_SIGMA, mad

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Column = NDArray[np.float64]
    Columns = Sequence[Column]
    Rows = NDArray[np.float64]

# With five rows each, one deal in 126 separates the runs as they are: with fewer, p could never be below 3 %.
FEWEST_ROWS = 5
FEWEST_BLOCKS = 10
DEALS = 2_000
SEED = 20_260
# Values are clipped at this many standard deviations from the median: a spike must not hide a change.
FURTHEST = 4.0
LAST_DIGIT = 1e-12
# Fewer rows do not show whether successive rows are correlated.
FEWEST_SUCCESSIVE = 8
# With this many blocks, a column's own estimate has the same weight as that of all columns together.
SHRINKING_BLOCKS = 10
ALIKE_CEILING = 0.95


def differences(base: Columns, new: Columns, *, has_total: bool = False) -> NDArray[np.float64] | None:
    """Return the p of each column of two runs, whose values are in their order; adjusted for all columns.

    NaN, a value that is missing, counts as the column's median. The deals are the same each time. None where a run has
    fewer than FEWEST_ROWS. `has_total`: the first column is the whole run's time, by which all may be off.
    """
    one, other = [_filled(column) for column in base], [_filled(column) for column in new]
    rows = min(len(one[0]), len(other[0]))
    if rows < FEWEST_ROWS:
        return None
    inflation = _inflation(one), _inflation(other)
    wanted = round(max(float(each.min()) for each in inflation))
    length = max(1, min(wanted, rows // FEWEST_BLOCKS))
    if length > 1:
        one, other = ([_in_blocks(column, length) for column in run] for run in (one, other))
        inflation = _inflation(one), _inflation(other)
    return _permuted(one, other, _widening(one, other, inflation, has_total=has_total))


def different_rows(values: Rows) -> NDArray[np.intp]:
    """Return the rows without those that repeat an earlier one in every column: no clock measures that by chance."""
    # Rows are compared by a hash, the sum of their bits times an odd number of each column: a collision is unlikely,
    # and sorting the rows themselves takes ten times as long.
    factors = np.random.default_rng(SEED).integers(2**63, size=(values.shape[1], 1))
    sums = np.zeros(len(values), np.uint64)
    for place, (factor,) in enumerate(factors.tolist()):
        bits = (np.nan_to_num(values[:, place], nan=-1.0) + 0.0).view(np.uint64)
        # Values with few digits differ in their upper bits only, which a multiplication does not carry downwards.
        sums += (bits ^ (bits >> np.uint64(32))) * np.uint64(2 * factor + 1)
    _, first = np.unique(sums, return_index=True)
    return np.sort(first)


def _filled(column: Column) -> Column:
    missing = np.isnan(column)
    if not missing.any():
        return column
    return np.where(missing, 0.0 if missing.all() else np.nanmedian(column), column)


def _in_blocks(values: Column, length: int) -> Column:
    blocks = len(values) // length
    means: Column = values[: blocks * length].reshape(blocks, length).mean(axis=1)
    return means


def _permuted(one: Columns, other: Columns, widening: Column) -> NDArray[np.float64]:
    base, new = (
        np.stack([_in_blocks(column, -(-len(column) // MOST_COMPARED)) for column in run], axis=1)
        for run in (one, other)
    )
    base, new = _clipped(base, new)
    rows = np.concatenate([base, new])
    # The means of equal values may differ in the last digit, which is rounding and no difference.
    is_equal = np.ptp(rows, axis=0) <= LAST_DIGIT * np.abs(rows).max(axis=0)
    rows = np.where(is_equal, 0.0, rows - rows.mean(axis=0))
    found = _t(np.arange(len(rows)) < len(base), rows)[0] / np.sqrt(widening)
    largest = _t(_deals(len(base), len(new)), rows).max(axis=1)
    exceeding = (largest[:, np.newaxis] >= found - 1e-9).sum(axis=0)
    p: NDArray[np.float64] = (exceeding + 1) / (DEALS + 1)
    return p


@lru_cache(REMEMBERED_DEALS)
def _deals(base: int, new: int) -> NDArray[np.bool_]:
    """Return a mask of the rows that each deal gives to the base, shape (deals, rows)."""
    order = np.random.default_rng(SEED).random((DEALS, base + new)).argsort(axis=1)
    dealt: NDArray[np.bool_] = order < base
    return dealt


def _t(is_base: NDArray[np.bool_], rows: Rows) -> Rows:
    """Return the absolute value of Student's t of each deal and column; infinite where neither part has any spread."""
    deals = np.atleast_2d(is_base.astype(np.float64))
    count = deals.sum(axis=1, keepdims=True)
    share = 1 / count + 1 / (rows.shape[0] - count)
    # All rows together have the mean 0, so the sum of one part is the negative sum of the other.
    sums = deals @ rows
    distance = np.abs(sums) * share
    within = ((rows**2).sum(axis=0) - sums**2 * share).clip(min=0) / (rows.shape[0] - 2)
    is_flat = within <= LAST_DIGIT * (rows**2).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = distance / np.sqrt(within * share)
    return np.where(is_flat, np.where(distance > 0, np.inf, 0.0), t)


def _clipped(base: Rows, new: Rows) -> tuple[Rows, Rows]:
    both = np.concatenate([base, new])
    middle = np.median(both, axis=0)
    reach = FURTHEST * MAD_TO_SIGMA * np.median(np.abs(both - middle), axis=0)
    # If more than half of the values are equal, their spread is 0 and gives no limit: nothing is clipped.
    lowest, highest = (np.where(reach > 0, middle + sign * reach, sign * np.inf) for sign in (-1, 1))
    return base.clip(lowest, highest), new.clip(lowest, highest)


def _widening(base: Columns, new: Columns, inflation: tuple[Column, Column], *, has_total: bool) -> Column:
    """Return the factor by which each difference's variance exceeds that of independent rows.

    Rows may still be correlated, and each run may be off as a whole.
    """
    counts = len(base[0]), len(new[0])
    independent = 1 / counts[0] + 1 / counts[1]
    alike: Column = (inflation[0] / counts[0] + inflation[1] / counts[1]) / independent
    if not has_total:
        return alike
    spread = np.array([(mad(one) + mad(other)) / 2 for one, other in zip(base, new, strict=True)]) * MAD_TO_SIGMA
    medians = np.array([np.median(column) for column in base])
    off = (_wander(base[0]) + _wander(new[0])) * medians**2
    widening: Column = alike + off / np.where(spread > 0, spread, np.inf) ** 2 / independent
    return widening


def _inflation(columns: Columns) -> Column:
    """Return the factor by which correlated rows raise the variance of each column's mean; at least 1.

    It is the variance of means over blocks of √n ranks, relative to blocks of independent rows, or the factor that
    follows from the correlation of neighbours over all columns, whichever is larger: short blocks miss a part of it. A
    column's own estimate is uncertain, so it is shrunk towards that of all columns: mostly, whole runs drift.
    """
    rows = len(columns[0])
    length = math.isqrt(rows)
    varying = [place for place, column in enumerate(columns) if np.ptp(column) > 0]
    own = np.ones(len(columns))
    if rows < FEWEST_SUCCESSIVE or not varying:
        return own
    likeness = np.empty(len(varying))
    for number, place in enumerate(varying):
        ranked = _ranked(columns[place])
        # `varying` has no constant column: equal values are ranked in the order of time, which looks like a trend.
        own[place] = length * _in_blocks(ranked, length).var(ddof=1) / ranked.var(ddof=1)
        likeness[number] = _likeness(ranked)
    blocks = rows // length
    together = max(own.mean(), _by_neighbours(float(likeness.mean()), rows))
    drawn = (SHRINKING_BLOCKS * together + blocks * own) / (SHRINKING_BLOCKS + blocks)
    least: Column = np.maximum(1.0, np.maximum(together, drawn))
    return least


def _wander(times: NDArray[np.float64]) -> float:
    """Return the variance of the mean of a run's total times, relative to its square: how far the run may be off.

    The correlation of neighbours is raised by one standard error of its estimate: a run that drifts slowly looks
    steadier than it is. The variance is at most that of the times themselves.
    """
    middle = float(np.median(times))
    if len(times) < FEWEST_SUCCESSIVE or not np.ptp(times) or not middle:
        return 0.0
    inflation = _by_neighbours(_likeness(_ranked(times)), len(times), errors=1.0)
    return (MAD_TO_SIGMA * mad(times) / middle) ** 2 * min(1.0, inflation / len(times))


def _ranked(values: Column) -> Column:
    ranks = np.empty(len(values))
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    return ranks


def _likeness(ranked: Column) -> float:
    centred = ranked - ranked.mean()
    return float((centred[1:] * centred[:-1]).sum() / (centred**2).sum())


def _by_neighbours(likeness: float, rows: int, errors: float = 0.0) -> float:
    """Return the inflation of `rows` rows that follow an AR(1) process, given its estimated correlation.

    `errors`: how many standard errors are added to the estimate.
    """
    # The estimate from few rows is biased downwards by about this amount.
    share = min(max(likeness + (1 + 3 * likeness) / rows, 0.0), ALIKE_CEILING)
    share = min(share + errors * math.sqrt((1 - share**2) / rows), ALIKE_CEILING)
    return (1 + share) / (1 - share)
