"""Both clocks of the board."""

from __future__ import annotations

import time

from profagentd.loop import Moment, SystemClock, moment


def test_the_wall_clock_counts_microseconds_since_the_epoch() -> None:
    before, after = time.time_ns() // 1000, time.time_ns() // 1000 + 10_000_000
    assert before <= SystemClock().wall_us() <= after


async def test_sleeping_takes_its_time_on_the_monotonic_clock() -> None:
    clock = SystemClock()
    began = clock.monotonic()
    await clock.sleep(0.02)
    assert clock.monotonic() - began >= 0.019


def test_a_change_is_dated_by_its_age() -> None:
    now = Moment(monotonic=50.0, wall_us=9_000_000)
    assert now.seen(7_500_000) == 48.5


def test_a_change_in_the_future_counts_as_now() -> None:
    assert Moment(monotonic=50.0, wall_us=9_000_000).seen(99_000_000) == 50.0


def test_a_moment_is_what_the_clocks_show() -> None:
    class Stopped(SystemClock):
        def wall_us(self) -> int:
            return 7

        def monotonic(self) -> float:
            return 8.0

    assert moment(Stopped()) == Moment(8.0, 7)
