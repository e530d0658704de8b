"""Nights whose level changes, and nights that are only noisy."""

from __future__ import annotations

import numpy as np
import pytest

from profagent.stats.trend import level_changes


def places(values: list[float], spread: float = 0.1) -> list[tuple[int, bool]]:
    found = level_changes(np.array(values), np.full(len(values), spread))
    return [(place, is_confirmed) for place, _, _, is_confirmed in found]


def test_a_level_that_stays() -> None:
    assert places([100.0]) == places([]) == []
    assert places([100, 100.5, 99.6, 100.2, 100.1]) == []


def test_from_the_second_night_on_it_is_slower() -> None:
    ((place, before, after, is_confirmed),) = level_changes(np.array([100, 106, 106.2, 105.9]), np.full(4, 0.2))
    assert (place, before, after, is_confirmed) == (1, 100.0, 106.0, True)


def test_up_and_down_again() -> None:
    assert places([100, 100, 100, 110, 110, 110, 100, 100]) == [(3, True), (6, True)]


def test_a_single_night_that_is_off_is_no_change() -> None:
    assert places([100, 100, 130, 100, 100]) == []


def test_the_last_night_is_not_confirmed() -> None:
    assert places([100, 100, 100, 106]) == [(3, False)]


def test_a_step_below_the_floor_is_no_change_however_sure() -> None:
    assert places([100.0] * 4 + [100.9] * 4, spread=0.0) == []
    assert places([100.0] * 4 + [101.1] * 4, spread=0.0) == [(4, True)]


def test_what_is_uncertain_by_itself_is_no_change() -> None:
    assert places([100, 106, 106], spread=3.0) == []


@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_five_per_cent_under_noise_of_one_are_found_and_noise_is_not(factor: float) -> None:
    random = np.random.default_rng(5)
    found = false = 0
    for _ in range(200):
        noise = 1 + 0.01 * random.standard_normal(30)
        level = np.where(np.arange(30) < 15, 100.0, 100.0 * factor)
        false += bool(level_changes(100 * noise, np.full(30, 0.3)))
        found += [place for place, *_ in level_changes(level * noise, np.full(30, 0.3))][:1] in ([14], [15], [16])
    assert found >= 160
    assert false <= 12
