"""Where a series of nights changes its level: from which night on it stays above, or below, what it was."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.stats.figures import MAD_TO_SIGMA

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Change", "level_changes"]

# A night is of another level beyond so many standard deviations, and at least so much of the level.
NOISE_FACTOR = 3.0
FLOOR = 0.01
# From so many steps on, the steps themselves tell how much nights differ.
FEWEST_STEPS = 6


class Change(NamedTuple):
    """From `place` on the level is `after`; it was `before`. `is_confirmed` when the night behind it agrees."""

    place: int
    before: float
    after: float
    is_confirmed: bool


def level_changes(values: NDArray[np.float64], spreads: NDArray[np.float64]) -> list[Change]:
    """The changes of level of values in the order of time; `spreads` is how uncertain each value is by itself (σ).

    A single night that is off, and back the next, is no change of level. The last night cannot be confirmed.
    """
    if not len(values):
        return []
    limits = NOISE_FACTOR * np.maximum(spreads, _between_nights(values))
    starts = [0]
    for place in range(1, len(values)):
        level = float(np.median(values[starts[-1] : place]))
        limit = max(float(limits[place]), FLOOR * abs(level))
        following = values[place : place + 2] - level
        if (following > limit).all() or (following < -limit).all():
            starts.append(place)
    levels = [float(np.median(values[start:end])) for start, end in pairwise([*starts, len(values)])]
    return [
        Change(start, before, after, is_confirmed=start + 1 < len(values))
        for start, (before, after) in zip(starts[1:], pairwise(levels), strict=True)
    ]


def _between_nights(values: NDArray[np.float64]) -> float:
    """How much nights of one level differ (σ), by the usual step: few changes of level do not count in it."""
    steps = np.abs(np.diff(values))
    if len(steps) < FEWEST_STEPS:
        return 0.0
    return MAD_TO_SIGMA * float(np.median(steps)) / math.sqrt(2)
