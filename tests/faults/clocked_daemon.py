"""A daemon whose wall clock is ahead of this machine's by what a file says, in microseconds, whenever it is read.

Arguments: that file, then those of `profagentd`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from profagentd.loop import SystemClock
from profagentd.main import main


class SetClock(SystemClock):
    """A wall clock that somebody sets; the monotonic one goes on as it does."""

    def __init__(self, ahead: Path) -> None:
        self._ahead = ahead

    def wall_us(self) -> int:
        """Microseconds since the Unix epoch."""
        return super().wall_us() + int(self._ahead.read_text("ascii"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:], SetClock(Path(sys.argv[1]))))
