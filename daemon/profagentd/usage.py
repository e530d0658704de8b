"""What the daemon itself takes of the board."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_STATM = Path("/proc/self/statm")
_NS_PER_US = 1000


@dataclass(frozen=True)
class Usage:
    """CPU time since the start, memory now, free space of each root's file system; 0 where it cannot be seen."""

    cpu_us: int
    rss_bytes: int
    free_bytes: tuple[int, ...]


def usage(free_bytes: tuple[int, ...]) -> Usage:
    """The daemon's use of the board now, with what is known of the roots' file systems."""
    return Usage(time.process_time_ns() // _NS_PER_US, _rss_bytes(), free_bytes)


def _rss_bytes() -> int:
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
