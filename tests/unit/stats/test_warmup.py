"""Which leading inferences are a warm-up."""

from __future__ import annotations

import numpy as np
import pytest

from profagent.stats.figures import warm_up


@pytest.mark.parametrize(
    ("slow", "by_us", "noise", "left_out"),
    [
        (slice(0), 200, 0.01, 0),
        (slice(1), 200, 0.01, 1),
        (slice(2), 200, 0.01, 2),
        (slice(7), 200, 0.01, 7),
        (slice(1, 2), 200, 0.01, 0),
        (slice(18), 300, 0.01, 10),
        (slice(1), 200, 0.1, 0),
    ],
    ids=["none", "one", "two", "seven", "a later one", "more than a quarter", "within the noise"],
)
def test_leading_slow_ones_are_left_out(slow: slice, by_us: float, noise: float, left_out: int) -> None:
    times = 1000.0 * (1 + noise * np.random.default_rng(7).standard_normal(40))
    times[slow] += by_us
    assert warm_up(times) == left_out
