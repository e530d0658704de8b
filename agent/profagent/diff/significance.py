"""Whether columns of two runs differ by more than their noise: a permutation test, Westfall and Young's largest t.

If two runs do not differ, which rows are of which run is arbitrary. So rows are dealt out anew many times, and a
column's p is the share of deals in which any column differs as much. That takes the number of comparisons into account,
and that layers which slow down together are hardly more than one comparison.
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

# Of five and five rows one deal of 126 parts the runs as they are: fewer could never be below 3 %.
FEWEST_ROWS = 5
FEWEST_BLOCKS = 10
DEALS = 2_000
SEED = 20_260
# A value further off than so many standard deviations of all counts as if it were not: a spike must not hide a change.
FURTHEST = 4.0
LAST_DIGIT = 1e-12
# Of fewer rows nobody can say whether successive ones are alike.
FEWEST_SUCCESSIVE = 8
# A column's own estimate counts as much as that of all together when it is of so many blocks.
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
    # Rows are alike by a sum of their bits, each column's times an odd number of its own, and so hardly by chance:
    # sorting the rows themselves takes ten times as long.
    factors = np.random.default_rng(SEED).integers(2**63, size=(values.shape[1], 1))
    sums = np.zeros(len(values), np.uint64)
    for place, (factor,) in enumerate(factors.tolist()):
        bits = (np.nan_to_num(values[:, place], nan=-1.0) + 0.0).view(np.uint64)
        # Figures of few digits differ in the upper bits alone, which would stay there.
        sums += (bits ^ (bits >> np.uint64(32))) * np.uint64(2 * factor + 1)
    _, first = np.unique(sums, return_index=True)
    return np.sort(first)


def _filled(column: Column) -> Column:
    missing = np.isnan(column)
    if not missing.any():
        return column
    return np.where(missing, 0.0 if missing.all() else np.nanmedian(column), column)


def _in_blocks(values: Column, length: int) -> Column:
    """Means over so many successive values each; those that are left over in the end are left out."""
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
    # The mean of equal values may be off by their last digit: that is no difference.
    is_equal = np.ptp(rows, axis=0) <= LAST_DIGIT * np.abs(rows).max(axis=0)
    rows = np.where(is_equal, 0.0, rows - rows.mean(axis=0))
    found = _t(np.arange(len(rows)) < len(base), rows)[0] / np.sqrt(widening)
    largest = _t(_deals(len(base), len(new)), rows).max(axis=1)
    exceeding = (largest[:, np.newaxis] >= found - 1e-9).sum(axis=0)
    p: NDArray[np.float64] = (exceeding + 1) / (DEALS + 1)
    return p


@lru_cache(REMEMBERED_DEALS)
def _deals(base: int, new: int) -> NDArray[np.bool_]:
    """Which rows each deal gives to the base, shape (deals, rows)."""
    order = np.random.default_rng(SEED).random((DEALS, base + new)).argsort(axis=1)
    dealt: NDArray[np.bool_] = order < base
    return dealt


def _t(is_base: NDArray[np.bool_], rows: Rows) -> Rows:
    """Student's t, without its sign, of each deal and column; infinite where neither part has any spread."""
    deals = np.atleast_2d(is_base.astype(np.float64))
    count = deals.sum(axis=1, keepdims=True)
    share = 1 / count + 1 / (rows.shape[0] - count)
    # All rows have the mean 0, so one part's sum is the other's with another sign.
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
    # Where more than half are equal, the middle has no spread that could tell what is far off.
    lowest, highest = (np.where(reach > 0, middle + sign * reach, sign * np.inf) for sign in (-1, 1))
    return base.clip(lowest, highest), new.clip(lowest, highest)


def _widening(base: Columns, new: Columns, inflation: tuple[Column, Column], *, has_total: bool) -> Column:
    """By how much the variance of each difference is larger than that of independent rows.

    Rows may still be alike, and each run may be off as a whole.
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
    """By how much successive rows being alike raises the variance of each column's mean above independence; at least 1.

    By ranks it is the variance of means over blocks of √n rows, beside that of blocks of independent rows; or what
    follows from how alike neighbours are in all columns, where that is more: short blocks miss a part of it. A column's
    own figure is uncertain, so it is drawn to that of all columns: what drifts is mostly the whole run.
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
        # Equal values keep their order when they are ranked, which would look like a trend.
        own[place] = length * _in_blocks(ranked, length).var(ddof=1) / ranked.var(ddof=1)
        likeness[number] = _likeness(ranked)
    blocks = rows // length
    together = max(own.mean(), _by_neighbours(float(likeness.mean()), rows))
    drawn = (SHRINKING_BLOCKS * together + blocks * own) / (SHRINKING_BLOCKS + blocks)
    least: Column = np.maximum(1.0, np.maximum(together, drawn))
    return least


def _wander(times: NDArray[np.float64]) -> float:
    """The variance of the mean of a run's whole times, as a share of it: how far the run as a whole may be off.

    Neighbours count as more alike than they were found by one standard error of that: a run that wanders slowly looks
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
    """How alike each value is to its forerunner, from -1 to 1."""
    centred = ranked - ranked.mean()
    return float((centred[1:] * centred[:-1]).sum() / (centred**2).sum())


def _by_neighbours(likeness: float, rows: int, errors: float = 0.0) -> float:
    """The inflation of so many rows that each keep a share of their forerunner's deviation, which was found about so.

    `errors`: how many of its standard errors are added to the share that was found.
    """
    # Of so few rows the share is found too small, by this much.
    share = min(max(likeness + (1 + 3 * likeness) / rows, 0.0), ALIKE_CEILING)
    share = min(share + errors * math.sqrt((1 - share**2) / rows), ALIKE_CEILING)
    return (1 + share) / (1 - share)
