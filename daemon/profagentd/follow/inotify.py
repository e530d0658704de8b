"""The kernel's inotify events, translated into changes of JOBs."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import os
import struct
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from profagentd.follow.log import FileEvent
from profagentd.limits import PARENTS_LIMIT
from profagentd.sources.walk import directories_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from profagentd.follow.registry import JobRegistry
    from profagentd.follow.watcher import LogDiscovery
    from profagentd.sources.files import FolderPlace

_LOGGER = logging.getLogger(__name__)

# From <sys/inotify.h>.
_MODIFY, _ATTRIB = 0x2, 0x4
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x40, 0x80, 0x100, 0x200, 0x400, 0x800
_UNMOUNT, _Q_OVERFLOW, _IGNORED = 0x2000, 0x4000, 0x8000
_ONLYDIR, _DONT_FOLLOW, _ISDIR = 0x1000000, 0x2000000, 0x40000000
# Parents are watched for names alone: a write to any other file below a root must not wake the daemon.
_NAMES = _CREATE | _MOVED_TO | _MOVED_FROM | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLYDIR | _DONT_FOLLOW
_ENDS = _DELETE_SELF | _MOVE_SELF | _UNMOUNT | _IGNORED
_NOT_OF_A_FILE = _ENDS | _Q_OVERFLOW | _ISDIR
_CONTENT = _NAMES | _MODIFY | _ATTRIB
_EVENTS = (
    (_MODIFY, FileEvent.WRITTEN),
    (_CREATE | _MOVED_TO, FileEvent.CREATED),
    (_DELETE, FileEvent.DELETED),
    (_MOVED_FROM, FileEvent.MOVED),
)
_TOO_MANY = (errno.ENOSPC, errno.EMFILE, errno.ENOMEM)

_HEADER = struct.Struct("iIII")
_READ_BYTES = 64 * 1024
# The first event after a rest is handled after FIRST_S. While more arrive they are gathered for GATHER_S, so that a
# program that writes all the time costs a dozen wake-ups a second.
FIRST_S, GATHER_S = 0.01, 0.08


class InotifyEvent(NamedTuple):
    """One event about a watched directory, or about `name` in it."""

    watch: int
    mask: int
    name: bytes


@lru_cache
def file_event(mask: int) -> FileEvent:
    """Return the file event that a kernel mask stands for."""
    event = FileEvent.HINT
    for bits, flag in _EVENTS:
        if mask & bits:
            event |= flag
    return event


def parse_events(data: bytes) -> list[InotifyEvent]:
    """Return the events in bytes read from the kernel.

    Events of one file are merged, up to the next event of a directory.
    """
    events: list[InotifyEvent] = []
    files: dict[tuple[int, bytes], int] = {}
    at = 0
    while at < len(data):
        watch, mask, _, length = _HEADER.unpack_from(data, at)
        name_at, at = at + _HEADER.size, at + _HEADER.size + length
        file = watch, data[name_at:at]
        if mask & _NOT_OF_A_FILE:
            events += _take_merged(files)
            events.append(InotifyEvent(watch, mask, file[1].rstrip(b"\0")))
        else:
            files[file] = files.get(file, 0) | mask
    return events + _take_merged(files)


def _take_merged(files: dict[tuple[int, bytes], int]) -> list[InotifyEvent]:
    # The kernel pads a name to the same length each time, so padded names can be compared, and few are stripped.
    events = [InotifyEvent(watch, mask, name.rstrip(b"\0")) for (watch, name), mask in files.items()]
    files.clear()
    return events


@dataclass(frozen=True)
class WatchTarget:
    """Directory that is watched: `inside` a collection at `place`, or a possible parent of collections (None)."""

    place: FolderPlace
    inside: bytes | None = None


class InotifyWatcher:
    """Table of the kernel's watches and their directories, and the reader of their events. The owner closes it."""

    def __init__(self, discovery: LogDiscovery, registry: JobRegistry) -> None:
        """Report directories to `discovery`, and changes in known JOBs to `registry`.

        Raises OSError without inotify.
        """
        self.is_exhausted = False  # some directory could not be watched, so others must be scanned
        self._discovery = discovery
        self._registry = registry
        # One table in both directions: an event has the number of a watch, a removal has the directory.
        self._targets: dict[int, WatchTarget] = {}
        self._watches: dict[WatchTarget, int] = {}
        self._parents = 0  # watches of possible parents, bounded by PARENTS_LIMIT
        self._timer: asyncio.TimerHandle | None = None  # while events are being gathered
        # The standard library has no inotify. With `use_errno`, get_errno returns that of
        # this thread's last call.
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._check(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def start(self) -> None:
        """Wait for events on the running loop."""
        asyncio.get_running_loop().add_reader(self._descriptor, self._start_gathering)

    def close(self) -> None:
        """Stop waiting and close the inotify descriptor, which removes all watches."""
        asyncio.get_running_loop().remove_reader(self._descriptor)
        if self._timer:
            self._timer.cancel()
        os.close(self._descriptor)

    def catch_up(self) -> bool:
        """Handle the events that wait in the kernel; return True if there were any."""
        events: list[InotifyEvent] = []
        with suppress(BlockingIOError):
            while True:
                events += parse_events(os.read(self._descriptor, _READ_BYTES))
        self._handle_events(events)
        return bool(events)

    def watch_parents(self, places: Iterable[FolderPlace]) -> bool:
        """Watch directories in which JOBs may appear; return True if some were not watched before.

        A directory that is watched already is watched anew: another one may have been moved or mounted to its path.
        """
        added = [self._watch_parent(WatchTarget(place)) for place in places]
        return any(added)

    def watch_job(self, place: FolderPlace) -> bool:
        """Watch a JOB's directories; return False if they cannot be watched and must be scanned."""
        try:
            for inside in directories_of(place):
                self._watch_inside(place, inside)
        except OSError as error:
            self._note_failure(error)
            self.unwatch_job(place)
            return False
        return True

    def unwatch_job(self, place: FolderPlace) -> None:
        """Remove the watches of a JOB's directories."""
        for inside in directories_of(place):
            self._remove_watch(WatchTarget(place, inside))

    # Events

    def _start_gathering(self) -> None:
        loop = asyncio.get_running_loop()
        # The loop would wake for each event. While a program writes, a timer takes them in groups instead.
        loop.remove_reader(self._descriptor)
        self._timer = loop.call_later(FIRST_S, self._gather)

    def _gather(self) -> None:
        """Handle what has gathered. After an interval without events, wait for the descriptor again."""
        if self.catch_up():
            self._timer = asyncio.get_running_loop().call_later(GATHER_S, self._gather)
        else:
            self.start()

    def _handle_events(self, events: Iterable[InotifyEvent]) -> None:
        touches: dict[FolderPlace, dict[bytes, FileEvent]] = {}
        for event in events:
            target = self._targets.get(event.watch)
            if event.mask & _Q_OVERFLOW:
                _LOGGER.warning("the kernel dropped inotify events: all directories are scanned again")
                self._discovery.search_everywhere()
            elif target is None:
                continue  # the kernel still delivers events of a watch that was just removed
            elif event.mask & _ENDS:
                # Changes before the end are reported first: the registry forgets the JOB with it.
                self._report(target.place, touches.pop(target.place, {}))
                self._handle_watch_end(target)
            elif target.inside is None:
                if event.mask & _ISDIR:
                    self._discovery.search_in(target.place.below(event.name))
            else:
                self._handle_inside(target, event, touches.setdefault(target.place, {}))
        for place, paths in touches.items():
            self._report(place, paths)

    def _report(self, place: FolderPlace, touches: dict[bytes, FileEvent]) -> None:
        if touches:
            self._registry.note_changes(place, touches)

    def _handle_watch_end(self, target: WatchTarget) -> None:
        self._remove_watch(target)
        if target.inside is None:
            self._discovery.search_in(target.place)
        elif target.inside:
            self._registry.note_changes(target.place, {})
        else:
            self.unwatch_job(target.place)
            self._discovery.remove_job(target.place)

    def _handle_inside(self, target: WatchTarget, event: InotifyEvent, touches: dict[bytes, FileEvent]) -> None:
        place, inside = target.place, target.inside or b""
        path = inside + b"/" + event.name if inside else event.name
        if event.mask & _ISDIR and path in directories_of(place):
            self._handle_subdirectory(place, path, event)
        elif event.name:
            seen = file_event(event.mask)
            known = touches.get(path)
            touches[path] = seen if known is None else known | seen
        else:
            self._registry.note_changes(
                place, None
            )  # the directory's own mode changed: what was hidden may be readable

    def _handle_subdirectory(self, place: FolderPlace, inside: bytes, event: InotifyEvent) -> None:
        if not file_event(event.mask).is_created:
            self._registry.note_changes(place, {})
            return
        try:
            self._watch_inside(place, inside)
        except OSError as error:
            self._note_failure(error)
        self._registry.note_changes(place, None)

    # Watches

    def _watch_parent(self, target: WatchTarget) -> bool:
        if target not in self._watches and self._parents >= PARENTS_LIMIT:
            self.is_exhausted = True
            return False
        try:
            return self._add_watch(target, _NAMES)
        except OSError as error:
            self._note_failure(error)
            return False

    def _watch_inside(self, place: FolderPlace, inside: bytes) -> None:
        # A missing subdirectory is no error: the watch of the JOB itself reports its creation.
        with suppress(*((FileNotFoundError, NotADirectoryError) if inside else ())):
            self._add_watch(WatchTarget(place, inside), _CONTENT)

    def _add_watch(self, target: WatchTarget, mask: int) -> bool:
        """Watch a directory; return True if it was not watched before. Raises OSError, also at the kernel's limit."""
        directory = target.place.below(target.inside or b"").directory
        watch = self._check(self._libc.inotify_add_watch(self._descriptor, directory, mask))
        # The kernel gives one number to one inode: a number with another target means that the directory was renamed.
        if self._targets.get(watch) == target:
            return False
        self._remove_watch(target)
        self._targets[watch] = target
        self._watches[target] = watch
        self._parents += target.inside is None
        return True

    def _remove_watch(self, target: WatchTarget) -> None:
        watch = self._watches.pop(target, None)
        if watch is not None:
            self._targets.pop(watch, None)
            self._parents -= target.inside is None
            self._libc.inotify_rm_watch(
                self._descriptor, watch
            )  # fails for a watch that the kernel has removed itself, which is harmless

    def _note_failure(self, error: OSError) -> None:
        if error.errno in _TOO_MANY and not self.is_exhausted:
            self.is_exhausted = True
            _LOGGER.warning(
                "cannot watch more directories (%s): the others are polled; raise fs.inotify.max_user_watches",
                error.strerror,
            )

    def _check(self, result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result
