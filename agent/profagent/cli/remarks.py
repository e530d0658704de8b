"""What a person should know about a board when a link to it is open, and when it is gone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from profagent.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from profagent.errors import ProfagentError
    from profagent.link.messages import Board

US_PER_S = 1_000_000
REPEATED_S = 30.0
# A clock that is off by more than this was never set, or set wrongly.
FAR_OFF_S = 86_400


def remarks(board: Board, role: str, host_wall_us: int) -> Iterator[str]:
    """Sentences about trust, for a board that told of itself when this host's clock showed `host_wall_us`."""
    name = board.hostname or board.identity
    if board.insecure:
        yield (
            f"{name} is open (--insecure): whoever reaches it may follow it, and nothing proves that it is the board;"
            " give its daemon certificates, see docs/reference/security.md"
        )
    if role == "viewer" and board.deletes:
        yield (
            f"to {name} this host is a viewer: what it copies does not count as delivered, and is not deleted there;"
            " for that it needs a certificate of `profagent keys issue host --role operator`"
        )
    if abs(board.clocks.wall_us - host_wall_us) > FAR_OFF_S * US_PER_S:
        yield (
            f"the clock of {name} shows {_day(board.clocks.wall_us)}, this host's {_day(host_wall_us)}: times of the"
            " capture are the board's, and a clock past a certificate's end lets nobody in; set it with `date -s`"
        )


class LinkRemarks:
    """What is said of a link that is gone and tried again: the same no more than once in REPEATED_S."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._said = ""
        self._said_s = 0.0

    def linked(self) -> None:
        """The link stands: whatever becomes of it is news."""
        self._said = ""

    def gone(self, error: ProfagentError, wait_s: float) -> str | None:
        """A line, if there is one to say; where waiting does not mend it, also what somebody has to do."""
        now_s = self._now_s()
        if self._said == str(error) and now_s - self._said_s < REPEATED_S:
            return None
        self._said, self._said_s = str(error), now_s
        line = f"{error}; {retrying(wait_s)}"
        return f"{line}; {error.hint}" if isinstance(error, RefusedError) else line


def retrying(wait_s: float) -> str:
    """That something is tried again, in whole seconds."""
    return f"retrying in {max(1, round(wait_s))} s"


def _day(wall_us: int) -> str:
    try:
        return datetime.fromtimestamp(wall_us / US_PER_S, UTC).strftime("%Y-%m-%d")
    except (OverflowError, ValueError, OSError):
        return "no date"
