"""A clock that tests turn, and one that hurries."""

from __future__ import annotations

import asyncio

from profagentd.loop import ClockReading, SystemClock

WALL_US = 1_800_000_000_000_000


class FakeClock:
    """Both clocks go on only by `advance` and by sleeping."""

    def __init__(self) -> None:
        self.now = 100.0
        self.wall = WALL_US
        self.slept: list[float] = []

    def wall_us(self) -> int:
        return self.wall

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, delay_s: float) -> None:
        self.slept.append(delay_s)
        self.advance(delay_s)
        await asyncio.sleep(0)

    def advance(self, delay_s: float) -> ClockReading:
        """Let time pass."""
        self.now += delay_s
        self.wall += round(delay_s * 1_000_000)
        return ClockReading(self.now, self.wall)


class FastClock(SystemClock):
    """Its monotonic clock goes ten times as fast as this machine's, and whoever waits by it waits as much less."""

    TIMES = 10

    def monotonic(self) -> float:
        return self.TIMES * super().monotonic()

    async def sleep(self, delay_s: float) -> None:
        await super().sleep(delay_s / self.TIMES)
