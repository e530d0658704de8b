"""Regular files by their descriptors: no link in a file's place is followed, and nothing else in it is opened.

Whatever the system refuses raises OSError.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
# A link stands there, or something that is no file: nothing that this mirror made.
_NOT_OURS = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO})
# A fifo would block in open without O_NONBLOCK; regular files do not care.
_OPEN_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN_FLAGS


def stands(file: Path) -> bool:
    """Whether anything has this name, a link that leads nowhere among it."""
    return file.is_symlink() or file.exists()


def opened(file: str, access: int) -> int | None:
    """A descriptor of a regular file; None where there is none."""
    try:
        handle = os.open(file, access | _OPEN_FLAGS)
    except OSError as error:
        if error.errno in _NOT_OURS:
            return None
        raise
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    return None


def required(file: str) -> int:
    """A descriptor to read a regular file; OSError where there is none."""
    handle = opened(file, os.O_RDONLY)
    if handle is None:
        raise FileNotFoundError(errno.ENOENT, "it is no regular file", file)
    return handle


def content(file: str, size: int | None, start: int = 0) -> bytes | None:
    """At most `size` bytes of a regular file from `start` on, or all; None where there is none."""
    handle = opened(file, os.O_RDONLY)
    if handle is None:
        return None
    try:
        return pread(handle, os.fstat(handle).st_size if size is None else size, start)
    finally:
        os.close(handle)


def pread(handle: int, size: int, start: int = 0) -> bytes:
    """`size` bytes of a file from `start` on, or all that there are."""
    left = max(0, min(size, os.fstat(handle).st_size - start))
    blocks, at = [], start
    while left and (block := os.pread(handle, left, at)):
        blocks.append(block)
        at += len(block)
        left -= len(block)
    return b"".join(blocks)


def make_anew(file: str) -> int:
    """The descriptor of an empty file, whatever stood in its place."""
    try:
        return os.open(file, _MAKE_FLAGS, PRIVATE_FILE)
    except FileNotFoundError:
        make_private_folder(Path(file).parent)
    except FileExistsError:
        Path(file).unlink()
    return os.open(file, _MAKE_FLAGS, PRIVATE_FILE)


def make_private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for their owner alone; what is there stays as it is."""
    try:
        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    except FileNotFoundError:
        make_private_folder(folder.parent)
        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def move(arrived: str, file: str) -> None:
    """Let a file take the place of another, in a folder that is made where there is none."""
    try:
        os.rename(arrived, file)  # noqa: PTH104 - a Path for each file would cost more
    except FileNotFoundError:
        make_private_folder(Path(file).parent)
        Path(arrived).rename(file)


def write_all(handle: int, offset: int, data: bytes) -> None:
    """Write all of `data` at `offset`."""
    written = 0
    while written < len(data):
        written += os.pwrite(handle, data[written:], offset + written)
