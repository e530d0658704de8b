"""A board's wall clock, which nobody may have set, or which may be damaged."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["EARLIEST", "board_time"]

# A board without a battery wakes up in 1970, or when its image was made; nobody has profiled with this before.
EARLIEST = datetime(2024, 1, 1, tzinfo=UTC)
LATEST_S = 253_402_300_799


def board_time(wall_us: int) -> datetime:
    """The date that a clock shows; the nearest one, to the end of the year 9999, where no date can say it."""
    return datetime.fromtimestamp(min(max(wall_us / 1e6, 0), LATEST_S), UTC)
