"""What the daemon itself takes of the board."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_STATM = Path("/proc/self/statm")
_NS_PER_US = 1000


@dataclass(frozen=True)
class Usage:
    """CPU time since the start, memory now, free space of each root's file system; 0 where it cannot be seen."""

    cpu_us: int
    rss_bytes: int
    free_bytes: tuple[int, ...]


def usage(roots: Sequence[bytes]) -> Usage:
    """The daemon's use of the board now. Asks file systems: for a worker thread."""
    return Usage(time.process_time_ns() // _NS_PER_US, _rss_bytes(), tuple(_free_bytes(root) for root in roots))


def _rss_bytes() -> int:
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _free_bytes(root: bytes) -> int:
    try:
        found = os.statvfs(root)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize
