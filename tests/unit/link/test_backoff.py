"""Waiting before the next attempt."""

from __future__ import annotations

import random

import pytest

from profagent.link.backoff import LONGEST_S, delay_s


@pytest.mark.parametrize(("attempt", "longest_s"), [(0, 0.25), (1, 0.5), (4, 4.0), (7, 30.0), (10_000, LONGEST_S)])
def test_the_longest_wait_doubles_up_to_its_cap(attempt: int, longest_s: float) -> None:
    assert delay_s(attempt, lambda _, high: high) == longest_s


def test_the_wait_is_anywhere_below_it() -> None:
    draw = random.Random(1).uniform
    waits = [delay_s(3, draw) for _ in range(1000)]
    assert min(waits) < 0.1
    assert max(waits) > 1.9
    assert all(0 <= wait <= 2.0 for wait in waits)
