"""Reading many small files in a known order: the kernel fetches those to come while one that was read is decoded.

A file that is not in the page cache costs a wait for the disk. Once one was not, a thread asks the kernel for the files
that follow, a few of them first, and more while many of those are not in the page cache either, within bounds of files
and bytes; it waits for their inodes only. While all files are in the page cache, no thread runs, and a file costs no
call of the system more than otherwise.
"""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING

from profagent.files import required
from profagent.limits import BYTES_AHEAD, FILES_AHEAD, FIRST_FILES_AHEAD

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# To ask for a file that is in memory costs a tenth of the wait for one that is not: fewer cold ones are waited for.
COLD_SHARE = 1 / 16
# The file system cannot tell what is in memory, as that of tmpfs, which is in memory itself.
_CANNOT_TELL = frozenset({errno.EOPNOTSUPP, errno.EINVAL})


class AheadReader:
    """Reads the files of a directory, whose `paths` are in the order of reading."""

    def __init__(
        self, directory: Path, paths: Sequence[str], *, files_ahead: int = FILES_AHEAD, bytes_ahead: int = BYTES_AHEAD
    ) -> None:
        self._directory, self._paths = str(directory), paths
        self._files_ahead, self._bytes_ahead = files_ahead, bytes_ahead
        self._buffer = bytearray()
        self._asked = 0  # files before this place have been read, or the kernel was asked for them
        self._is_cold = False  # many of the files that were asked for last were not in memory
        self._asking: threading.Thread | None = None

    def read(self, place: int, most: int) -> bytes | None:
        """Return the file at this place of `paths`; None if it has more than `most` bytes. Raises OSError."""
        handle, size = required(f"{self._directory}/{self._paths[place]}")
        try:
            if size > most:
                return None
            if size > len(self._buffer):
                self._buffer = bytearray(size)
            view = memoryview(self._buffer)[:size]
            at = _read_from_memory(handle, view)
            self._reached(place, is_cold=at is None)
            at = at or 0
            while at < size and (count := os.preadv(handle, [view[at:]], at)):
                at += count
            return bytes(view[:at])
        finally:
            os.close(handle)

    def _reached(self, place: int, *, is_cold: bool) -> None:
        is_due = place >= self._asked or (self._is_cold and place + self._files_ahead // 2 >= self._asked)
        if not (is_cold or self._is_cold) or not is_due or (self._asking is not None and self._asking.is_alive()):
            return
        self._asked = max(self._asked, place + 1)
        self._asking = threading.Thread(target=self._ask, name="read-ahead", daemon=True)
        self._asking.start()

    def _ask(self) -> None:
        """Ask the kernel for the next files."""
        first = place = self._asked
        most = self._files_ahead if self._is_cold else min(FIRST_FILES_AHEAD, self._files_ahead)
        end, left, cold = min(place + most, len(self._paths)), self._bytes_ahead, 0
        while place < end and left > 0:
            try:
                handle, size = required(f"{self._directory}/{self._paths[place]}")
            except OSError:
                pass  # whoever reads it tells why
            else:
                cold += _ask_for(handle, min(size, left))
                left -= size
            place += 1
        self._asked, self._is_cold = place, cold > (place - first) * COLD_SHARE


def _ask_for(handle: int, size: int) -> bool:
    """Ask for a file, and close it. Returns True if it was not in memory."""
    try:
        is_cold = _read_from_memory(handle, memoryview(bytearray(min(size, 1)))) is None
        if is_cold:
            os.posix_fadvise(handle, 0, size, os.POSIX_FADV_WILLNEED)
        return is_cold
    finally:
        os.close(handle)


def _read_from_memory(handle: int, view: memoryview) -> int | None:
    """Read a file's beginning as far as it is in memory; returns how much, None if nothing is there of some."""
    try:
        return os.preadv(handle, [view], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno in _CANNOT_TELL:
            return 0
        raise
