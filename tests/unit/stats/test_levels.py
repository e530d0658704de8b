"""Nights whose level changes, and nights that are only noisy."""

from __future__ import annotations

import numpy as np
import pytest

from profagent.stats.trend import level_changes


@pytest.mark.parametrize(
    ("values", "spread", "places"),
    [
        ([], 0.1, []),
        ([100.0], 0.1, []),
        ([100, 100.5, 99.6, 100.2, 100.1], 0.1, []),
        ([100, 100, 100, 110, 110, 110, 100, 100], 0.1, [(3, True), (6, True)]),
        ([100, 100, 130, 100, 100], 0.1, []),
        ([100, 100, 100, 106], 0.1, [(3, False)]),
        ([100.0] * 4 + [100.9] * 4, 0.0, []),
        ([100.0] * 4 + [101.1] * 4, 0.0, [(4, True)]),
        ([100, 106, 106], 3.0, []),
    ],
    ids=[
        *("none", "one", "a level that stays", "up and down again", "a single night that is off"),
        *("the last night is not confirmed", "below the floor, however sure", "above it", "uncertain by itself"),
    ],
)
def test_a_level_changes_where(values: list[float], spread: float, places: list[tuple[int, bool]]) -> None:
    found = level_changes(np.array(values), np.full(len(values), spread))
    assert [(place, is_confirmed) for place, _, _, is_confirmed in found] == places


def test_from_the_second_night_on_it_is_slower() -> None:
    (found,) = level_changes(np.array([100, 106, 106.2, 105.9]), np.full(4, 0.2))
    assert found == (1, 100.0, 106.0, True)


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
