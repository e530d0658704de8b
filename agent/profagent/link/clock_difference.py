"""Measurement of the difference between a board's clock and this machine's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from profagent.link.channel import Channel

CLOCK_EXCHANGES = 5
# Within one exchange a board's wall and monotonic clocks drift apart by less than this, unless the wall clock was set.
CLOCK_DRIFT_US = 1_000


@dataclass(frozen=True, slots=True, order=True)
class ClockDifference:
    """Result of one exchange: at `host_us` the board's clock is `offset_us` ahead. Results sort by their round trip."""

    round_trip_us: int
    offset_us: int
    host_us: int


async def clock_difference(channel: Channel, now_us: Callable[[], int]) -> ClockDifference | None:
    """Return the difference measured by the exchange with the shortest round trip.

    An exchange during which a wall clock was set is dropped; None if no exchange is left.
    """
    differences = []
    for _ in range(CLOCK_EXCHANGES):
        sent_us = now_us()
        received, answered = await channel.clocks()
        back_us = now_us()
        inside_us = answered.monotonic_us - received.monotonic_us
        round_trip_us = (back_us - sent_us) - inside_us
        offset_us = (received.wall_us - sent_us + answered.wall_us - back_us) // 2
        is_steady = abs(answered.wall_us - received.wall_us - inside_us) <= CLOCK_DRIFT_US
        if is_steady and round_trip_us >= 0:
            differences.append(ClockDifference(round_trip_us, offset_us, sent_us))
    return min(differences, default=None)
