"""Which leading inferences are a warm-up."""

from __future__ import annotations

import numpy as np
import pytest

from profagent.stats.gathering import warm_up


def _steady(count: int, noise: float = 0.01) -> np.ndarray:
    return 1000.0 * (1 + noise * np.random.default_rng(7).standard_normal(count))


@pytest.mark.parametrize("slow", [0, 1, 2, 7])
def test_leading_slow_ones_are_found(slow: int) -> None:
    times = _steady(40)
    times[:slow] += 200
    assert warm_up(times) == slow


def test_a_slow_one_later_is_none() -> None:
    times = _steady(40)
    times[1] += 200
    assert warm_up(times) == 0


def test_at_most_a_quarter_is_left_out() -> None:
    times = _steady(40)
    times[:18] += 300
    assert warm_up(times) == 10


def test_of_fewer_than_ten_none_is() -> None:
    times = np.array([900.0, *[100.0] * 8])
    assert warm_up(times) == 0
    assert warm_up(np.append(times, 100.0)) == 1


def test_below_the_floor_nothing_is_told_from_a_machine_without_noise() -> None:
    assert warm_up(np.array([101.9, *[100.0] * 20])) == 0
    assert warm_up(np.array([102.1, *[100.0] * 20])) == 1


def test_what_is_within_the_noise_stays() -> None:
    times = _steady(40, noise=0.1)
    times[0] = 1200.0
    assert warm_up(times) == 0


def test_a_faster_beginning_is_none() -> None:
    assert warm_up(np.array([50.0, *[100.0] * 20])) == 0
