"""Private directories for the sockets of tunnels; what a process that was killed has left, the next one removes."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["socket_folder"]

_PREFIX = "profagent-ssh-"
# Locked for as long as whoever made it lives.
_LOCK = "lock"


@contextmanager
def socket_folder(parent: Path = Path("/tmp")) -> Iterator[Path]:  # noqa: S108 - the path of a socket must be short
    """A directory that only this user may enter; those of this user whose owners have died are removed first."""
    for left in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            _clear(left)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        # It has its name only once it is locked.
        with (folder / f"{_LOCK}.new").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / f"{_LOCK}.new").rename(folder / _LOCK)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _clear(folder: Path) -> None:
    """Remove one that nobody has locked. Raises OSError where somebody has, or it is none, or another user's."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return
    lock = os.open(folder / _LOCK, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(lock)
