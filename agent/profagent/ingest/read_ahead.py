"""Reading of many small files in a known order: the kernel fetches the next ones while one is decoded.

A file that is not in the page cache costs a wait for the disk. After the first such file, a thread asks the kernel for
those that follow, a few at first, and more while many of them are not in the page cache either, within bounds of files
and bytes; it waits for their inodes only. While all files are in the page cache, no thread runs, and a file costs one
system call more.
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

# Share of cold files from which asking pays off: asking for a file in memory costs a tenth of a wait for the disk.
COLD_SHARE = 1 / 16
# Errors of a file system that has no such answer, as tmpfs, which is in memory itself.
_CANNOT_TELL = frozenset({errno.EOPNOTSUPP, errno.EINVAL})


class AheadReader:
    """Reader of the files of a directory, with `paths` in reading order."""

    def __init__(
        self, directory: Path, paths: Sequence[str], *, files_ahead: int = FILES_AHEAD, bytes_ahead: int = BYTES_AHEAD
    ) -> None:
        self._directory, self._paths = str(directory), paths
        self._files_ahead, self._bytes_ahead = files_ahead, bytes_ahead
        self._buffer = bytearray()
        # Place of the first file for which the kernel has not been asked.
        self._next_to_request = 0
        # True if many of the last files that were asked for were not in memory.
        self._is_cold = False
        # The thread that asks. It alone changes the two fields above while it runs.
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
        """Start the thread that asks if files are cold, and the reader is near the end of what was asked for."""
        is_due = place >= self._next_to_request or (
            self._is_cold and place + self._files_ahead // 2 >= self._next_to_request
        )
        if not (is_cold or self._is_cold) or not is_due or (self._asking is not None and self._asking.is_alive()):
            return
        self._next_to_request = max(self._next_to_request, place + 1)
        self._asking = threading.Thread(target=self._ask, name="read-ahead", daemon=True)
        self._asking.start()

    def _ask(self) -> None:
        """Ask for the next files, few while the files before were in memory."""
        first = place = self._next_to_request
        most = self._files_ahead if self._is_cold else min(FIRST_FILES_AHEAD, self._files_ahead)
        end, left, cold = min(place + most, len(self._paths)), self._bytes_ahead, 0
        while place < end and left > 0:
            try:
                handle, size = required(f"{self._directory}/{self._paths[place]}")
            except OSError:
                pass  # the reader of this file raises it
            else:
                cold += _ask_for(handle, min(size, left))
                left -= size
            place += 1
        self._next_to_request, self._is_cold = place, cold > (place - first) * COLD_SHARE


def _ask_for(handle: int, size: int) -> bool:
    """Ask the kernel for an open file, and close it. Return True if it was not in memory."""
    try:
        is_cold = _read_from_memory(handle, memoryview(bytearray(min(size, 1)))) is None
        if is_cold:
            os.posix_fadvise(handle, 0, size, os.POSIX_FADV_WILLNEED)
        return is_cold
    finally:
        os.close(handle)


def _read_from_memory(handle: int, view: memoryview) -> int | None:
    """Read the beginning of a file that is in memory; return its length, None if nothing is in memory."""
    try:
        return os.preadv(handle, [view], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno in _CANNOT_TELL:
            return 0
        raise
