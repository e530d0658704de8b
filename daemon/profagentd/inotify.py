"""The kernel's notices of changed directories, through ctypes, gathered before they are handed on."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Callable, NamedTuple

from profagentd.changes import Touch

if TYPE_CHECKING:
    from collections.abc import Sequence

# From <sys/inotify.h>.
_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x40, 0x80, 0x100, 0x200, 0x400, 0x800
_UNMOUNT, _Q_OVERFLOW, _IGNORED = 0x2000, 0x4000, 0x8000
_ONLYDIR, _DONT_FOLLOW, _ISDIR = 0x1000000, 0x2000000, 0x40000000
_MADE = _CREATE | _MOVED_TO
_NAMES = _CREATE | _MOVED_TO | _MOVED_FROM | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLYDIR | _DONT_FOLLOW
_ENDS = _DELETE_SELF | _MOVE_SELF | _UNMOUNT | _IGNORED
_NOT_OF_A_FILE = _ENDS | _Q_OVERFLOW | _ISDIR
_CONTENT = _NAMES | _MODIFY | _CLOSE_WRITE | _ATTRIB

_HEADER = struct.Struct("iIII")
_READ_BYTES = 64 * 1024
# The first notice after a rest goes on after this; while more arrive, they are gathered for longer.
FIRST_S = 0.01
GATHER_S = 0.075


class Notice(NamedTuple):
    """One notice about a watched directory, or about `name` in it."""

    watch: int
    mask: int
    name: bytes

    @property
    def is_overflow(self) -> bool:
        """Whether notices were lost: anything may have changed."""
        return bool(self.mask & _Q_OVERFLOW)

    @property
    def is_end(self) -> bool:
        """Whether the watched directory itself is gone, or stands elsewhere now."""
        return bool(self.mask & _ENDS)

    @property
    def is_directory(self) -> bool:
        """Whether `name` is a directory."""
        return bool(self.mask & _ISDIR)

    @property
    def touch(self) -> Touch:
        """What happened to `name`."""
        return _touch(self.mask)


@lru_cache
def _touch(mask: int) -> Touch:
    touch = Touch.WRITTEN if mask & _MODIFY else Touch.CLOSED if mask & _CLOSE_WRITE else Touch.HINT
    touch |= Touch.MADE if mask & _MADE else Touch.HINT
    touch |= Touch.DELETED if mask & _DELETE else Touch.HINT
    return touch | (Touch.MOVED if mask & _MOVED_FROM else Touch.HINT)


def parse_notices(data: bytes) -> list[Notice]:
    """The notices in what was read from the kernel; those of one file between two of another kind are one."""
    notices: list[Notice] = []
    files: dict[tuple[int, bytes], int] = {}
    at = 0
    while at < len(data):
        watch, mask, _, length = _HEADER.unpack_from(data, at)
        name_at, at = at + _HEADER.size, at + _HEADER.size + length
        file = watch, data[name_at:at]
        if mask & _NOT_OF_A_FILE:
            notices += _drained(files)
            notices.append(Notice(watch, mask, file[1].rstrip(b"\0")))
        else:
            files[file] = files.get(file, 0) | mask
    return notices + _drained(files)


def _drained(files: dict[tuple[int, bytes], int]) -> list[Notice]:
    # The kernel fills up a name to the same length each time.
    notices = [Notice(watch, mask, name.rstrip(b"\0")) for (watch, name), mask in files.items()]
    files.clear()
    return notices


class Inotify:
    """Watched directories. The owner closes it."""

    def __init__(self) -> None:
        """Raises OSError when the kernel gives no inotify, or no more of it."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._deliver: Callable[[Sequence[Notice]], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def watch_names(self, directory: bytes) -> int:
        """Be told of names that come and go in `directory`; the number of the watch. OSError, also when exhausted."""
        return self._checked(self._libc.inotify_add_watch(self._descriptor, directory, _NAMES))

    def watch_content(self, directory: bytes) -> int:
        """Be told of everything in `directory`; the number of the watch. OSError, also when exhausted."""
        return self._checked(self._libc.inotify_add_watch(self._descriptor, directory, _CONTENT))

    def unwatch(self, watch: int) -> None:
        """Be told no more; a watch that is gone already is fine."""
        self._libc.inotify_rm_watch(self._descriptor, watch)

    def deliver(self, take: Callable[[Sequence[Notice]], None]) -> None:
        """Hand notices to `take` on the running loop, gathered."""
        self._deliver = take
        asyncio.get_running_loop().add_reader(self._descriptor, self._is_readable)

    def read(self) -> list[Notice]:
        """Those that there are; they are not delivered any more."""
        notices: list[Notice] = []
        while True:
            try:
                data = os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                return notices
            notices += parse_notices(data)

    def close(self) -> None:
        """Stop everything."""
        if self._deliver:
            asyncio.get_running_loop().remove_reader(self._descriptor)
        if self._timer:
            self._timer.cancel()
        os.close(self._descriptor)

    def _is_readable(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._descriptor)
        self._timer = loop.call_later(FIRST_S, self._drain)

    def _drain(self) -> None:
        """Deliver what has gathered; where that is nothing, the kernel is to wake the loop for the next."""
        loop = asyncio.get_running_loop()
        notices = self.read()
        if not notices:
            loop.add_reader(self._descriptor, self._is_readable)
            return
        self._timer = loop.call_later(GATHER_S, self._drain)
        assert self._deliver is not None, "a drain follows `deliver`"
        self._deliver(notices)

    def _checked(self, result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result


def is_exhausted(error: OSError) -> bool:
    """Whether a watch was refused because there are too many."""
    return error.errno in (errno.ENOSPC, errno.EMFILE, errno.ENOMEM)
