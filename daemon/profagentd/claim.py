"""One daemon at a time for a state directory: two would overwrite each other's losses."""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from profagentd.errors import DaemonError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE_NAME = "lock"
_SHOWN_BYTES = 200


@contextmanager
def claimed(directory: Path | None, listen: str) -> Iterator[None]:
    """Have the directory to oneself. Raises DaemonError when another daemon has it, or its lock is no regular file.

    One that cannot be written, or knows no locks, is nobody's: nothing is kept there that could be lost.
    """
    descriptor = None if directory is None else _opened(directory)
    try:
        if descriptor is not None:
            _lock(descriptor, f"{directory}")
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()}, for {listen}\n".encode(), 0)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _opened(directory: Path) -> int | None:
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        path = directory / FILE_NAME
        if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
            raise DaemonError(f"{path} is no regular file", hint="take it away: the daemon makes its own")
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError:
        return None


def _lock(descriptor: int, directory: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, _SHOWN_BYTES, 0).decode("utf-8", "replace").strip()
        raise DaemonError(
            f"{directory} is in use by another profagentd: {holder or 'it does not say which'}",
            hint="end that one, or give each daemon a --state of its own",
        ) from error
    except OSError:
        return
