"""Which counters of a layer moved between two runs by more than their noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.diff.permutation import FEWEST_ROWS, permutation_test
from profagent.formats.countermap import COUNTER_NAMES

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Moved", "counters_moved"]

# An explanation beside a change that was found, not a finding of its own: tested among the counters of one layer only.
ALPHA = 0.01
# Ratios must move by so many hundredths of the layer's time, bytes by so much of themselves.
LEAST_RATIO = 0.02
LEAST_BYTES = 0.02


class Moved(NamedTuple):
    """A counter and its means: a ratio of the layer's time, or bytes."""

    counter: str
    base: float
    new: float


def counters_moved(base: NDArray[np.float64], new: NDArray[np.float64]) -> tuple[Moved, ...]:
    """Those that moved, of two layers' counters, shape (records, counters), NaN where not known; largest first."""
    known: NDArray[np.bool_] = ~np.isnan(np.concatenate([base, new])).any(axis=0)
    # Records that are equal to another in all are no new observation.
    one, other = (np.unique(values[:, known], axis=0) for values in (base, new))
    if min(len(one), len(other)) < FEWEST_ROWS or not known.any():
        return ()
    p_values = permutation_test(one, other, np.ones(one.shape[1]), ALPHA).p
    names = [name for name, is_known in zip(COUNTER_NAMES, known.tolist(), strict=True) if is_known]
    means = zip(names, one.mean(axis=0).tolist(), other.mean(axis=0).tolist(), strict=True)
    found = [Moved(*each) for each, p in zip(means, p_values, strict=True) if p <= ALPHA]
    return tuple(sorted(filter(_is_far, found), key=lambda moved: -abs(moved.new - moved.base) / max(moved[1:])))


def _is_far(moved: Moved) -> bool:
    least = LEAST_BYTES * moved.base if moved.counter.endswith("_bytes") else LEAST_RATIO
    return abs(moved.new - moved.base) > least
