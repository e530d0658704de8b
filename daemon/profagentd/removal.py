"""Deleting files of a JOB, and its directories when nothing is left in them. Blocks: for a thread of its root.

Nothing is deleted on a file system of others, through a link, or of a file that is not the one that was meant.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from profagentd.filesystems import is_local
from profagentd.logs import DATA_DIRECTORY
from profagentd.opening import Fingerprint, Place, fingerprint, open_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Files = tuple[tuple[bytes, Fingerprint], ...]


# The number of CAP_DAC_OVERRIDE (capabilities(7)).
_DAC_OVERRIDE = 1
_STATUS = "/proc/self/status"


def may_write(directory: int) -> bool:
    """Whether names in an open directory may be made and removed."""
    if os.access(f"/proc/self/fd/{directory}", os.W_OK):
        return True
    # access(2) passes over the capabilities of a user who is not root.
    return _overrides_permissions() and not os.fstatvfs(directory).f_flag & os.ST_RDONLY


def _overrides_permissions() -> bool:
    with open(_STATUS, encoding="ascii", errors="replace") as file:
        effective = next((line.split()[1] for line in file if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> _DAC_OVERRIDE & 1)


# A fifo would block in open without O_NONBLOCK; regular files do not care.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass
class Removed:
    """What came of it. `late_bytes` were written to files in the very moment in which they went."""

    paths: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    changed: list[bytes] = field(default_factory=list)  # not deleted: they are not what they were
    late_bytes: int = 0


class NotOurs(Exception):  # noqa: N818 - a state of the board, not a fault
    """The JOB is not on a file system of this board alone."""


def check(place: Place) -> None:
    """Make sure that files of the JOB can be deleted. Raises NotOurs, and OSError when that is not allowed."""
    with _directories(place) as directories:
        for descriptor in directories.values():
            if not may_write(descriptor):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def remove(place: Place, logs: Sequence[Files]) -> Removed:
    """Delete these logs, each file after the other; a log of which a part is not what it was stays.

    A log goes before its `.done`: what is left by a crash in between is a `.done` alone, never data that seems open.
    Raises NotOurs, and OSError when the directory cannot be written.
    """
    removed = Removed()
    with _directories(place) as directories:
        for files in logs:
            if all(_is_as_it_was(directories, path, seen) for path, seen in files):
                for path, seen in files:
                    _unlink(directories, path, seen, removed)
            else:
                removed.changed += [path for path, _ in files]
    return removed


def remove_directories(place: Place) -> bool:
    """Delete the JOB's two directories; whether they were empty. Raises NotOurs and OSError."""
    parent, _, name = place.path.rpartition(b"/")
    with _directories(place) as directories:
        try:
            if DATA_DIRECTORY in directories:
                os.rmdir(DATA_DIRECTORY, dir_fd=directories[b""])
        except OSError:
            return False
    above = open_directory(Place(place.root, parent))
    try:
        os.rmdir(name, dir_fd=above)
    except OSError:
        return False
    finally:
        os.close(above)
    return True


@contextmanager
def _directories(place: Place) -> Iterator[dict[bytes, int]]:
    """Descriptors of the JOB's directories, by their path inside it."""
    opened: dict[bytes, int] = {}
    try:
        opened[b""] = open_directory(place)
        with suppress(FileNotFoundError, NotADirectoryError):
            opened[DATA_DIRECTORY] = open_directory(Place(place.root, os.path.join(place.path, DATA_DIRECTORY)))
        if not all(map(is_local, opened.values())):
            raise NotOurs
        yield opened
    finally:
        for descriptor in opened.values():
            os.close(descriptor)


def _is_as_it_was(directories: dict[bytes, int], path: bytes, seen: Fingerprint) -> bool:
    directory, _, name = path.rpartition(b"/")
    try:
        status = os.stat(name, dir_fd=directories[directory], follow_symlinks=False)
    except (OSError, KeyError):
        return False
    return stat.S_ISREG(status.st_mode) and fingerprint(status) == seen


def _unlink(directories: dict[bytes, int], path: bytes, seen: Fingerprint, removed: Removed) -> None:
    """Delete one file, held open meanwhile: what is written to it until it has no name is noticed."""
    directory, _, name = path.rpartition(b"/")
    descriptor = os.open(name, _FILE, dir_fd=directories[directory])
    try:
        if fingerprint(os.fstat(descriptor)) != seen:
            removed.changed.append(path)
            return
        os.unlink(name, dir_fd=directories[directory])
        removed.late_bytes += max(0, os.fstat(descriptor).st_size - seen.size)
    finally:
        os.close(descriptor)
    removed.paths.append(path)
    removed.size_bytes += seen.size
