"""A permutation test of many columns at once: Westfall and Young's largest t.

If two runs do not differ, which rows are of which run is arbitrary. So rows are dealt out anew many times, and a
column's p is the share of deals in which any column differs as much. That takes the number of comparisons into account,
and that layers which slow down together are hardly more than one comparison.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.diff.dependence import in_blocks
from profagent.stats.figures import MAD_TO_SIGMA

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FEWEST_ROWS", "Tested", "permutation_test"]

# Of five and five rows one deal of 126 parts the runs as they are: fewer could never be below 3 %.
FEWEST_ROWS = 5
# More rows than these are averaged in blocks.
MOST_ROWS = 200
DEALS = 2_000
SEED = 20_260
# A value further off than so many standard deviations of all counts as if it were not: a spike must not hide a change.
FURTHEST = 4.0
LAST_DIGIT = 1e-12


class Tested(NamedTuple):
    """`p` of each column, adjusted for all of them; `critical` is the t that no column exceeds in most of the deals."""

    p: NDArray[np.float64]
    critical: float


def permutation_test(
    base: NDArray[np.float64], new: NDArray[np.float64], stretch: NDArray[np.float64], alpha: float
) -> Tested:
    """Test columns of two runs, shapes (rows, columns); `critical` is at 1 - `alpha`.

    `stretch`: by how much the variance of the difference of a column's means is larger than that of independent rows.
    The deals are the same each time. Either run must have FEWEST_ROWS.
    """
    base, new = _clipped(*(in_blocks(rows, -(-len(rows) // MOST_ROWS)) for rows in (base, new)))
    rows = np.concatenate([base, new])
    # The mean of equal values may be off by their last digit: that is no difference.
    is_equal = np.ptp(rows, axis=0) <= LAST_DIGIT * np.abs(rows).max(axis=0)
    rows = np.where(is_equal, 0.0, rows - rows.mean(axis=0))
    found = _t(np.arange(len(rows)) < len(base), rows)[0] / np.sqrt(stretch)
    largest = _t(_deals(len(base), len(new)), rows).max(axis=1)
    exceeding = (largest[:, np.newaxis] >= found - 1e-9).sum(axis=0)
    return Tested((exceeding + 1) / (DEALS + 1), float(np.quantile(largest, 1 - alpha)))


@lru_cache(maxsize=4)
def _deals(base: int, new: int) -> NDArray[np.bool_]:
    """Which rows each deal gives to the base, shape (deals, rows)."""
    order = np.random.default_rng(SEED).random((DEALS, base + new)).argsort(axis=1)
    dealt: NDArray[np.bool_] = order < base
    return dealt


def _t(is_base: NDArray[np.bool_], rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Student's t, without its sign, of each deal and column; infinite where neither part has any spread."""
    deals = np.atleast_2d(is_base.astype(np.float64))
    count = deals.sum(axis=1, keepdims=True)
    others = rows.shape[0] - count
    # All rows have the mean 0, so one part's sum is the other's with another sign.
    sums = deals @ rows
    distance = np.abs(sums) * (1 / count + 1 / others)
    within = ((rows**2).sum(axis=0) - sums**2 * (1 / count + 1 / others)).clip(min=0) / (rows.shape[0] - 2)
    is_flat = within <= 1e-12 * (rows**2).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = distance / np.sqrt(within * (1 / count + 1 / others))
    return np.where(is_flat, np.where(distance > 0, np.inf, 0.0), t)


def _clipped(base: NDArray[np.float64], new: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    both = np.concatenate([base, new])
    middle = np.median(both, axis=0)
    reach = FURTHEST * MAD_TO_SIGMA * np.median(np.abs(both - middle), axis=0)
    # Where more than half are equal, the middle has no spread that could tell what is far off.
    lowest, highest = (np.where(reach > 0, middle + sign * reach, sign * np.inf) for sign in (-1, 1))
    return base.clip(lowest, highest), new.clip(lowest, highest)
