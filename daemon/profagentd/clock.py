"""The clocks that the daemon reads, as one thing that tests can replace."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple, Protocol

US_PER_S = 1_000_000


class Clock(Protocol):
    """Wall clock, monotonic clock and waiting."""

    def wall_us(self) -> int:
        """Real-time clock in microseconds since the Unix epoch; it may jump."""

    def monotonic(self) -> float:
        """Seconds that never go back; the zero is arbitrary."""

    async def sleep(self, delay_s: float) -> None:
        """Wait for `delay_s` seconds of the monotonic clock."""


class SystemClock:
    """The clocks of this machine."""

    def wall_us(self) -> int:
        """Microseconds since the Unix epoch."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    async def sleep(self, delay_s: float) -> None:
        """Wait on the running loop."""
        await asyncio.sleep(delay_s)


class Moment(NamedTuple):
    """Both clocks, read one right after the other."""

    monotonic: float
    wall_us: int

    def seen(self, changed_wall_us: int) -> float:
        """Monotonic time of a change that the wall clock dates; a date in the future counts as now."""
        return self.monotonic - max(0, self.wall_us - changed_wall_us) / US_PER_S


def moment(clock: Clock) -> Moment:
    """Both clocks now."""
    return Moment(clock.monotonic(), clock.wall_us())
