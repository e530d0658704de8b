"""How far a board's clock is from the host's: the line through a session's clock samples, and how sure it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

# Of samples that are closer together, a drift would be the noise of their round trips.
LEAST_SPREAD_US = 30_000_000


class ClockLine(NamedTuple):
    """`offset_us` at the board's time `at_us`, which grows by `drift` for each µs of it. All in µs."""

    at_us: float
    offset_us: float
    drift: float
    uncertainty_us: float
    samples: int

    def offset_at(self, board_us: float) -> float:
        """How much the board's clock is ahead of the host's."""
        return self.offset_us + self.drift * (board_us - self.at_us)


def clock_line(samples: Sequence[tuple[int, int, int]]) -> ClockLine | None:
    """The line through samples of host time, offset and round trip; None without any.

    The half with the shorter round trips counts. The uncertainty is the farthest of these from the line, and half of
    their longest round trip, within which nobody knows when the board looked at its clock.
    """
    if not samples:
        return None
    host_us, offset_us, round_trip_us = np.array(samples, np.float64).T
    best = round_trip_us <= np.median(round_trip_us)
    board_us, offset_us = (host_us + offset_us)[best], offset_us[best]
    at_us, middle = float(board_us.mean()), float(offset_us.mean())
    away = board_us - at_us
    is_wide = float(np.ptp(away)) >= LEAST_SPREAD_US
    drift = float((away * (offset_us - middle)).sum() / (away**2).sum()) if is_wide else 0.0
    residual = float(np.abs(offset_us - middle - drift * away).max())
    return ClockLine(at_us, middle, drift, residual + float(round_trip_us[best].max()) / 2, len(samples))
