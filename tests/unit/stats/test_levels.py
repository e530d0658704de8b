"""`profagent.level_changes`: how often it finds a step, how often it is wrong, and series at its limits.

The benchmark has the same rates with more series, on seeds drawn anew.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from profagent import UsageError, level_changes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SERIES = 250


def noisy(random: np.random.Generator, nights: int, outliers: float) -> NDArray[np.float64]:
    """Return normal noise of 1 around 100, with outliers of 5 to 15 on this share of nights."""
    values = 100 + random.standard_normal(nights)
    return values + (random.random(nights) < outliers) * random.choice([-1, 1], nights) * random.uniform(5, 15, nights)


@pytest.mark.parametrize(
    ("nights", "step", "outliers", "least"), [(30, 2.0, 0.0, 0.78), (90, 2.5, 0.0, 0.95), (30, 3.0, 0.05, 0.88)]
)
def test_most_steps_are_found_within_two_nights(nights: int, step: float, outliers: float, least: float) -> None:
    random = np.random.default_rng(41)
    found = 0
    for _ in range(SERIES):
        place, sign = random.integers(3, nights - 2), random.choice([-1, 1])
        values = noisy(random, nights, outliers) + sign * step * (np.arange(nights) >= place)
        found += any(
            abs(change.index - place) <= 2 and sign * (change.after - change.before) > 0
            for change in level_changes(values)
        )
    assert found >= least * SERIES


@pytest.mark.parametrize("outliers", [0.0, 0.05])
@pytest.mark.parametrize("nights", [6, 15, 30, 90])
def test_an_unchanged_series_has_hardly_any_change(nights: int, outliers: float) -> None:
    random = np.random.default_rng(42)
    false = sum(len(level_changes(noisy(random, nights, outliers))) for _ in range(SERIES))
    # Of 0.15 in 100 nights, and three standard deviations for so few series.
    allowed = 0.0015 * nights * SERIES
    assert false <= allowed + 3 * math.sqrt(allowed)


@pytest.mark.parametrize(
    ("values", "places"),
    [
        ([], []),
        ([100.0] * 30, []),
        ([0.1] * 30, []),
        ([100, 100, 100, 110, 110], []),
        ([100, 100, 100, 110, 110, 110], [3]),
        ([100, 110, 110, 110, 110, 110, 110], []),
        ([100.0] * 27 + [107.0] * 3, [27]),
        ([5] * 10 + [9] + [5] * 9, []),
        ([5] * 10 + [9, 9] + [5] * 9, []),
        ([5, 5, 5, 5, 6, 5, 6, 5, 5, 6, 5, 5, 5, 6, 5, 5, 6, 6, 5, 5], []),
        ([0] * 8 + [3] * 8 + [0] * 8, [8, 16]),
        ([1e-12, 2e-12, 1e-12, 2e-12, 9e-12, 8e-12, 9e-12, 8e-12], [4]),
        ([1e300] * 6 + [2e300] * 6, [6]),
        ([-1.7e308] * 6 + [1.7e308] * 6, [6]),
        ([49.16] * 3 + [50.96] + [51.16] * 5, [3]),
    ],
    ids=[
        *("none", "one value", "one value that is no sum of powers of 2", "five", "three on each side"),
        *("the first night alone", "the last three", "a single night that is off", "two nights that are off"),
        *("values of two amounts", "up and down again", "small values", "large values"),
        *("values whose difference is no number", "a night between the levels"),
    ],
)
def test_a_level_changes_where(values: Sequence[float], places: Sequence[int]) -> None:
    assert [change.index for change in level_changes(values)] == places


def test_a_change_has_its_levels_and_their_uncertainty() -> None:
    random = np.random.default_rng(43)
    within = 0
    for _ in range(SERIES):
        changes = level_changes(noisy(random, 40, 0.0) + 8 * (np.arange(40) >= 20))
        (change,) = [each for each in changes if each.index == 20]
        assert change.uncertainty == pytest.approx(1.96 * math.sqrt(2 / 20), rel=0.6)
        within += abs(change.after - change.before - 8) <= change.uncertainty
    assert within == pytest.approx(0.95 * SERIES, abs=0.05 * SERIES)


def test_a_drift_is_found_also_where_each_of_its_steps_is_below_the_floor() -> None:
    values = 100 * 1.005 ** np.maximum(0, np.arange(28) - 14) + np.random.default_rng(44).normal(0, 0.1, 28)
    changes = level_changes(values, floor=0.01)
    assert changes
    assert changes[-1].after > changes[0].before * 1.03
    assert all(change.after - change.before >= 0.01 * change.before for change in changes)


def test_nights_beside_a_change_below_the_floor_are_one_level() -> None:
    values = np.repeat([100.0, 100.5, 103.0], 10) + np.tile([-0.05, 0.05], 15)
    assert [change.index for change in level_changes(values)] == [10, 20]
    (change,) = level_changes(values, floor=0.01)
    assert (change.index, round(change.before, 1)) == (20, 100.2)


def test_a_night_that_is_off_by_less_than_the_floor_is_a_part_of_its_level() -> None:
    values = [4916.0, 4916.0, 4936.0, 5116.0, 5116.0, 5116.0]
    assert not level_changes(values)
    (change,) = level_changes(values, floor=0.01)
    assert (change.index, round(change.before), round(change.after)) == (3, 4916, 5116)


def test_the_sides_of_a_change_are_levels() -> None:
    random = np.random.default_rng(46)
    for _ in range(SERIES):
        steps = np.cumsum(random.random(24) < 0.15) * random.uniform(1, 9)
        for change in level_changes(noisy(random, 24, 0.1) + steps):
            assert 0 < change.uncertainty < abs(change.after - change.before)


def test_of_many_series_only_a_surer_change_is_found() -> None:
    values = np.random.default_rng(45).normal(0, 1, 30) + 1.4 * (np.arange(30) >= 15)
    assert level_changes(values)
    assert not level_changes(values, series=1000)


@pytest.mark.parametrize("values", [[1.0, math.nan] * 4, [1.0, math.inf] * 4, np.zeros((3, 3))])
def test_what_is_no_series_of_numbers_is_refused(values: Sequence[float]) -> None:
    with pytest.raises(UsageError, match="finite numbers"):
        level_changes(values)
