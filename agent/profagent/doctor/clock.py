"""Check of the board's clock against this host's."""

from __future__ import annotations

from profagent.doctor.finding import Finding, bad, good, unknown
from profagent.link.board_clock import EARLIEST, board_time

__all__ = ["clock"]

# Boards are joined, and certificates valid, by their clocks; programs of one board need none.
MOST_OFFSET_US = 1_000_000
_REMEDY = "on the board, with this host's seconds: date -u -s @$(date +%s); for good: an NTP client"


def clock(offset_us: int | None, uncertainty_us: int, board_us: int) -> Finding:
    """The board's clock is `offset_us` ahead, known to ± `uncertainty_us`; None where no exchange told."""
    if offset_us is None:
        return unknown("clock", "the clock was set while it was compared", "run doctor again")
    board = board_time(board_us)
    shown = board.isoformat(" ", "seconds")
    told = f"the board's clock is {offset_us / 1e6:+,.6f} s ± {uncertainty_us / 1e6:.6f} s from this host's"
    if board < EARLIEST:
        return bad("clock", f"{told}: it shows {shown}, it was never set", _REMEDY)
    if abs(offset_us) - uncertainty_us > MOST_OFFSET_US:
        return bad("clock", f"{told}: it shows {shown}", _REMEDY)
    if abs(offset_us) + uncertainty_us > MOST_OFFSET_US:
        return unknown("clock", f"{told}: the link is too slow to tell more", "run doctor again when the link is idle")
    return good("clock", told)
