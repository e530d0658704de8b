"""The host's disk: whether it is full, what is free, and whether there is room again."""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from typing import TYPE_CHECKING

from profagent.errors import DiskFullError

if TYPE_CHECKING:
    from pathlib import Path

# A batch in the mirror, its rows, and the database's log of both.
ROOM_BYTES = 8 << 20
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_PRIMARY_CODE = 0xFF


def is_full(error: OSError) -> bool:
    """Whether the disk, or a quota, takes no more."""
    return error.errno in _FULL


def is_full_database(error: sqlite3.Error, directory: Path) -> bool:
    """Whether SQLite means a full disk; a quota that is used up it calls an I/O error."""
    # Errors of Python's own have no code.
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
    return code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and not has_room(directory))


def disk_full(place: Path) -> DiskFullError:
    """The error for the full file system that `place` is on, or would be."""
    mounted = next(above for above in (place.absolute(), *place.absolute().parents) if above.is_mount())
    found = os.statvfs(mounted)
    free = found.f_bavail * found.f_frsize
    return DiskFullError(
        f"the disk at {mounted} is full: {free / 1e6:,.1f} MB are free",
        hint=f"make room, {ROOM_BYTES / 1e6:.0f} MB at least; what was committed is safe, and the next capture goes on",
    )


def has_room(directory: Path) -> bool:
    """Whether a batch can be written; asks by taking the space and giving it back, so that a quota has its say."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            os.posix_fallocate(file.fileno(), 0, ROOM_BYTES)
    except OSError as error:
        # Whatever else is wrong, the next write tells.
        return not is_full(error)
    return True
