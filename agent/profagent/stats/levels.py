"""Changes of level in a series of nightly values: `profagent.level_changes`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from profagent.errors import UsageError
from profagent.stats.figures import MAD_TO_SIGMA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Values = NDArray[np.float64]

# A level has at least this many nights: one night that is off, or two, may be chance.
LEAST_NIGHTS = 3
# The median absolute step between nights is this many standard deviations, for normal noise.
_STEP_TO_SIGMA = 1 / (0.6745 * math.sqrt(2))
# A series has no noise if at most this share of its steps, or this number, is not 0: levels and single nights are left.
_CONSTANT_SHARE, _CONSTANT_STEPS = 0.1, 2
# A first pass proposes changes of this many standard deviations; the second keeps those that stand beside their noise.
_PROPOSED = 2.7
# Values off the running median of five nights by _OUTLIER standard deviations are replaced by it, others are clipped.
_WINDOW, _CLIPPED, _OUTLIER = 5, 2.5, 4.0
# Residuals beyond this many standard deviations are no part of a level, and at least this share of its nights must be.
_APART, _LEAST_SHARE = 3.5, 0.7
# The mean square of normal residuals that are clipped at _CLIPPED standard deviations.
_CLIPPED_SQUARE = 0.9776
_ROUNDS = 3
# Weights of a place and those beside it: a change is placed in the middle of the five nights that most likely have it.
# They differ so little that they decide only where one night is nearly sure.
_NEAR = np.array([0.98, 1.0, 1.02, 1.0, 0.98])
# Half the width of a 95 % interval, in standard deviations.
_HALF_WIDTH = 1.96
# Values that differ by less than this share of the largest one differ by rounding only.
_ROUNDING = 1e-9
# Standard deviations that a change must have, by the number of nights. They are such that unchanged series of normal
# noise have 0.08 changes in 100 nights, or 0.13 if they are 15 or fewer: the noise of a short series is less known.
_NIGHTS = np.array([6.0, 8.0, 10.0, 12.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0])
_LIMITS = np.array([4.5, 4.6, 4.25, 4.1, 3.8, 3.75, 3.55, 3.42, 3.27, 3.1])


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A change of level in a series: `index` is the first value of the new level.

    `before` and `after` are the levels, and `uncertainty` is half the width of the 95 % interval of their difference.
    """

    index: int
    before: float
    after: float
    uncertainty: float


def level_changes(
    values: Sequence[float] | NDArray[np.float64], *, floor: float = 0.0, series: int = 1
) -> list[LevelChange]:
    """Return the changes of level in values, one a night, in the order of time; a level has at least three nights.

    Single nights that are off are no change. Changes smaller than `floor`, a share of the level, are not found: nights
    on both sides of such a change are one level. Give as `series` the number of series that are searched together: the
    limit rises with it, as chance has that many times as many occasions. Fewer than six values have no change.

    Raises UsageError if a value is infinite or no number, as NaN, or if the values are no plain sequence.

    >>> import profagent
    >>> [change] = profagent.level_changes([70.1, 69.9, 70.0, 70.2, 75.1, 74.9, 75.0, 75.2])
    >>> change.index, round(change.before, 2), round(change.after, 2), round(change.uncertainty, 2)
    (4, 70.05, 75.05, 0.18)
    """
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.array(np.nan)
    if found.ndim != 1 or not np.isfinite(found).all():
        hint = "leave out the nights whose value is unknown"
        raise UsageError("changes of level are found among finite numbers, one for each night", hint=hint)
    if len(found) < 2 * LEAST_NIGHTS:
        return []
    limit = math.hypot(float(np.interp(len(found), _NIGHTS, _LIMITS)), math.sqrt(2 * math.log(series)))
    # In units of the largest value no square overflows.
    _, exponent = np.frexp(np.abs(found).max())
    search = _Search.of(np.ldexp(found, -exponent), floor)
    places = search.places(limit)
    if not places:
        return []
    levels = search.levels(places)
    heights = [_unscaled(search.middle + height, int(exponent)) for height in levels.heights]
    widths = [_unscaled(_HALF_WIDTH * levels.error(place), int(exponent)) for place in range(len(places))]
    return [LevelChange(*each) for each in zip(places, heights, heights[1:], widths, strict=False)]


def _unscaled(value: float, exponent: int) -> float:
    # A product that is too large is infinite, where ldexp alone would raise an error.
    return 2 * math.ldexp(value, exponent - 1)


def _median(values: Values) -> float:
    # numpy's own median takes several times as long for a few dozen values.
    ordered, half = np.sort(values), len(values) // 2
    return float(ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2)


def _noise(series: Values, rounding: float) -> float:
    """Return the standard deviation between nights, by their steps: changes of level are few among these."""
    steps = np.abs(np.diff(series))
    if (median := _median(steps)) > rounding:
        return _STEP_TO_SIGMA * median
    other = steps[steps > rounding]
    if len(other) <= max(_CONSTANT_STEPS, _CONSTANT_SHARE * len(steps)):
        return max(rounding, float(np.finfo(np.float64).tiny))
    # Values of few different amounts: most steps are 0, and the others show the noise.
    clipped = np.minimum(steps, _median(other))
    return math.sqrt(float(np.mean(clipped * clipped)) / 2)


def _without_outliers(series: Values, noise: float) -> Values:
    windows = np.lib.stride_tricks.sliding_window_view(series, _WINDOW)
    inner = np.sort(windows, axis=1)[:, _WINDOW // 2]
    # The first and last nights have the median of the first and last five.
    medians = np.concatenate([inner[:1], inner[:1], inner, inner[-1:], inner[-1:]])
    off = series - medians
    clipped = np.clip(off, -_CLIPPED * noise, _CLIPPED * noise)
    return medians + np.where(np.abs(off) > _OUTLIER * noise, 0.0, clipped)


def _contrasts(smooth: Values, start: int, end: int) -> Values:
    """Return the size of a change at each place from start + 3 on, in units of one night's standard deviation."""
    count = end - start
    sums = np.cumsum(smooth[start:end])
    sides = np.arange(LEAST_NIGHTS, count - LEAST_NIGHTS + 1)
    before = sums[LEAST_NIGHTS - 1 : count - LEAST_NIGHTS]
    sizes: Values = np.abs(before * count / sides - sums[-1]) * np.sqrt(sides / (count * (count - sides)))
    return sizes


def _proposed(smooth: Values, noise: float) -> list[int]:
    places, parts = [], [(0, len(smooth))]
    while parts:
        start, end = parts.pop()
        if end - start < 2 * LEAST_NIGHTS:
            continue
        contrasts = _contrasts(smooth, start, end)
        best = int(np.argmax(contrasts))
        if contrasts[best] > _PROPOSED * noise:
            place = start + LEAST_NIGHTS + best
            places.append(place)
            parts += [(start, place), (place, end)]
    return sorted(places)


@dataclass(frozen=True, slots=True)
class _Levels:
    """Level of each part of a series, the number of nights that it rests on, and the noise around all levels.

    A level has 0 nights if too many of its part are off: several outliers side by side are no level.
    """

    heights: list[float]
    nights: list[int]
    scale: float

    def error(self, place: int) -> float:
        """Return the standard error of a change, infinite if a side is no level."""
        sides = self.nights[place], self.nights[place + 1]
        return self.scale * math.sqrt(1 / sides[0] + 1 / sides[1]) if all(sides) else math.inf


def _scale(residuals: Values, levels: int, noise: float) -> float:
    """Return the standard deviation of residuals by clipped squares, at least half of that by steps."""
    free = len(residuals) - levels
    least = noise / 2
    scale = max(least, MAD_TO_SIGMA * _median(residuals) * math.sqrt(len(residuals) / free))
    squares = residuals * residuals
    for _ in range(_ROUNDS):
        clipped = float(np.minimum(squares, (_CLIPPED * scale) ** 2).sum())
        scale = max(least, math.sqrt(clipped / free / _CLIPPED_SQUARE))
    return scale


def _place(smooth: Values, start: int, end: int, scale: float) -> int:
    """Return the place of the one change between two edges: the middle of the five nights that most likely have it."""
    contrasts = _contrasts(smooth, start, end) / scale
    likely = np.exp((contrasts**2 - float(contrasts.max()) ** 2) / 2)
    side = len(_NEAR) // 2
    near = np.convolve(likely, _NEAR)[side : side + len(likely)]
    return start + LEAST_NIGHTS + int(np.argmax(near))


@dataclass(frozen=True, slots=True)
class _Search:
    """A series less its median, which is `middle`, with its noise, and the share of a level that is no change."""

    around: Values
    middle: float
    noise: float
    floor: float

    @classmethod
    def of(cls, values: Values, floor: float) -> _Search:
        middle = _median(values)
        # Sums of values near 0 lose no digits.
        around = values - middle
        return cls(around, middle, _noise(around, _ROUNDING * float(np.abs(values).max())), floor)

    def places(self, limit: float) -> list[int]:
        """Return the first night of each new level, for changes of more standard errors than the limit."""
        smooth = _without_outliers(self.around, self.noise)
        places = self._standing(_proposed(smooth, self.noise), limit)
        if not places:
            return []
        edges, scale = [0, *places, len(smooth)], self.levels(places).scale
        placed = {_place(smooth, *both, scale) for both in zip(edges, edges[2:], strict=False)}
        # A change that stood is moved by few nights; it goes only if it could now be none.
        return self._standing(sorted(placed), _HALF_WIDTH)

    def levels(self, places: Sequence[int]) -> _Levels:
        """Return the levels between places; nights that are off by less than the floor are a part of their level."""
        edges = [0, *places, len(self.around)]
        parts = [self.around[start:end] for start, end in pairwise(edges)]
        medians = [_median(part) for part in parts]
        residuals = [part - median for part, median in zip(parts, medians, strict=True)]
        scale = _scale(np.abs(np.concatenate(residuals)), len(parts), self.noise)
        heights, nights = [], []
        for median, residual in zip(medians, residuals, strict=True):
            near = residual[np.abs(residual) <= max(_APART * scale, self._negligible(median))]
            clipped = np.clip(near, -_CLIPPED * scale, _CLIPPED * scale)
            heights.append(median + (float(clipped.mean()) if len(near) else 0.0))
            is_level = len(near) >= _LEAST_SHARE * len(residual)
            # Many nights off are no chance: their level moves, as in a slow drift.
            nights.append(len(near) if is_level else len(residual) * (len(residual) >= 2 * LEAST_NIGHTS))
        return _Levels(heights, nights, scale)

    def _negligible(self, height: float) -> float:
        return self.floor * abs(self.middle + height)

    def _standing(self, places: Sequence[int], limit: float) -> list[int]:
        """Leave out changes, the weakest first, until all stand beside the noise and none is below the floor."""
        found = [*places]
        while found and (weakest := self._weakest(self.levels(found), limit)) is not None:
            del found[weakest]
        return found

    def _weakest(self, levels: _Levels, limit: float) -> int | None:
        """Return the number of the change that stands least beside the noise, else one below the floor, else None."""
        sizes = [abs(after - before) for before, after in pairwise(levels.heights)]
        ratios = [size / levels.error(place) for place, size in enumerate(sizes)]
        # Both changes beside a part that is no level have the ratio 0; the smaller one goes.
        weakest = min(range(len(ratios)), key=lambda place: (ratios[place], sizes[place]))
        if ratios[weakest] <= limit:
            return weakest
        shares = [size - self._negligible(before) for size, before in zip(sizes, levels.heights, strict=False)]
        least = min(range(len(shares)), key=shares.__getitem__)
        return least if shares[least] < 0 else None
