"""What a board's wall clock shows when nobody has set it."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["EARLIEST"]

# A board without a battery wakes up in 1970, or when its image was made; nobody has profiled with this before.
EARLIEST = datetime(2024, 1, 1, tzinfo=UTC)
