"""Which leading inferences are a warm-up."""

from __future__ import annotations

import numpy as np
import pytest

from profagent.stats.figures import warm_up


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


def test_what_is_within_the_noise_stays() -> None:
    times = _steady(40, noise=0.1)
    times[0] = 1200.0
    assert warm_up(times) == 0
