"""Waits between attempts."""

from __future__ import annotations

import asyncio

from profagent.link.backoff import Backoff, retrying


def test_waits_double_up_to_the_longest_and_begin_again_after_a_success() -> None:
    backoff = Backoff(first_s=1.0, longest_s=5.0, draw=max)
    assert [backoff.wait_s() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    backoff.reset()
    assert backoff.wait_s() == 1.0


def test_waits_are_drawn_between_none_and_the_limit() -> None:
    backoff = Backoff(first_s=1.0, draw=lambda low, high: low + high / 4)
    assert [backoff.wait_s(), backoff.wait_s()] == [0.25, 0.5]
    assert all(0 <= Backoff(first_s=1.0).wait_s() <= 1 for _ in range(20))


def test_a_pause_says_when_the_next_attempt_comes() -> None:
    told: list[str] = []
    asyncio.run(Backoff(first_s=0.0, draw=max).pause("gone", told.append))
    assert told == ["gone; retrying in 1 s"]
    assert retrying(29.6) == "retrying in 30 s"
