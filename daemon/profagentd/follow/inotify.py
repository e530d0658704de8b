"""What the kernel's events mean for the JOBs of the board."""

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
    from profagentd.follow.watcher import Watch
    from profagentd.sources.files import FolderPlace

_LOGGER = logging.getLogger(__name__)

# From <sys/inotify.h>.
_MODIFY, _ATTRIB = 0x2, 0x4
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x40, 0x80, 0x100, 0x200, 0x400, 0x800
_UNMOUNT, _Q_OVERFLOW, _IGNORED = 0x2000, 0x4000, 0x8000
_ONLYDIR, _DONT_FOLLOW, _ISDIR = 0x1000000, 0x2000000, 0x40000000
_NAMES = _CREATE | _MOVED_TO | _MOVED_FROM | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLYDIR | _DONT_FOLLOW
_ENDS = _DELETE_SELF | _MOVE_SELF | _UNMOUNT | _IGNORED
_NOT_OF_A_FILE = _ENDS | _Q_OVERFLOW | _ISDIR
_CONTENT = _NAMES | _MODIFY | _ATTRIB
_EVENTS = (
    (_MODIFY, FileEvent.WRITTEN),
    (_CREATE | _MOVED_TO, FileEvent.MADE),
    (_DELETE, FileEvent.DELETED),
    (_MOVED_FROM, FileEvent.MOVED),
)
_TOO_MANY = (errno.ENOSPC, errno.EMFILE, errno.ENOMEM)

_HEADER = struct.Struct("iIII")
_READ_BYTES = 64 * 1024
# The first event after a rest goes on after this; while more arrive, they are gathered for longer.
FIRST_S, GATHER_S = 0.01, 0.08


class InotifyEvent(NamedTuple):
    """One event about a watched directory, or about `name` in it."""

    watch: int
    mask: int
    name: bytes


@lru_cache
def file_event(mask: int) -> FileEvent:
    """What happened to a name."""
    event = FileEvent.HINT
    for bits, flag in _EVENTS:
        if mask & bits:
            event |= flag
    return event


def parse_events(data: bytes) -> list[InotifyEvent]:
    """The events in what was read from the kernel; those of one file between two of another kind are one."""
    events: list[InotifyEvent] = []
    files: dict[tuple[int, bytes], int] = {}
    at = 0
    while at < len(data):
        watch, mask, _, length = _HEADER.unpack_from(data, at)
        name_at, at = at + _HEADER.size, at + _HEADER.size + length
        file = watch, data[name_at:at]
        if mask & _NOT_OF_A_FILE:
            events += _drained(files)
            events.append(InotifyEvent(watch, mask, file[1].rstrip(b"\0")))
        else:
            files[file] = files.get(file, 0) | mask
    return events + _drained(files)


def _drained(files: dict[tuple[int, bytes], int]) -> list[InotifyEvent]:
    # The kernel fills up a name to the same length each time.
    events = [InotifyEvent(watch, mask, name.rstrip(b"\0")) for (watch, name), mask in files.items()]
    files.clear()
    return events


@dataclass(frozen=True)
class WatchTarget:
    """A watched directory: `inside` a collection at `place`, or None for one in which collections may appear."""

    place: FolderPlace
    inside: bytes | None = None


class InotifyWatcher:
    """Which directory each watch belongs to, and what an event of it says. The owner closes it."""

    def __init__(self, watch: Watch, registry: JobRegistry) -> None:
        """Of directories the watch is told, of what changes in known JOBs the registry. OSError without inotify."""
        self.is_exhausted = False  # some directory could not be watched
        self._watch = watch
        self._registry = registry
        self._targets: dict[int, WatchTarget] = {}
        self._watches: dict[WatchTarget, int] = {}
        self._parents = 0
        self._timer: asyncio.TimerHandle | None = None
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def start(self) -> None:
        """Take events on the running loop."""
        asyncio.get_running_loop().add_reader(self._descriptor, self._is_readable)

    def close(self) -> None:
        """Take no more."""
        asyncio.get_running_loop().remove_reader(self._descriptor)
        if self._timer:
            self._timer.cancel()
        os.close(self._descriptor)

    def catch_up(self) -> bool:
        """Take events that are there and not taken yet; whether there were any."""
        events: list[InotifyEvent] = []
        with suppress(BlockingIOError):
            while True:
                events += parse_events(os.read(self._descriptor, _READ_BYTES))
        self._take(events)
        return bool(events)

    def watch_parents(self, places: Iterable[FolderPlace]) -> bool:
        """Watch directories in which JOBs may appear; whether some were not watched before.

        A directory that is watched already is watched anew: another may have been put, or mounted, in its place.
        """
        added = [self._watch_parent(WatchTarget(place)) for place in places]
        return any(added)

    def watch_job(self, place: FolderPlace) -> bool:
        """Watch a JOB's directories; False when it cannot be watched and must be looked at instead."""
        try:
            for inside in directories_of(place):
                self._watch_inside(place, inside)
        except OSError as error:
            self._note_failure(error)
            self.unwatch_job(place)
            return False
        return True

    def unwatch_job(self, place: FolderPlace) -> None:
        """Take no more events of a JOB."""
        for inside in directories_of(place):
            self._drop(WatchTarget(place, inside))

    # Events

    def _is_readable(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._descriptor)
        self._timer = loop.call_later(FIRST_S, self._gather)

    def _gather(self) -> None:
        """Take what has gathered; where that is nothing, the kernel is to wake the loop for the next."""
        if self.catch_up():
            self._timer = asyncio.get_running_loop().call_later(GATHER_S, self._gather)
        else:
            self.start()

    def _take(self, events: Iterable[InotifyEvent]) -> None:
        touches: dict[FolderPlace, dict[bytes, FileEvent]] = {}
        for event in events:
            target = self._targets.get(event.watch)
            if event.mask & _Q_OVERFLOW:
                _LOGGER.warning("events of the kernel were lost: everything is looked at again")
                self._watch.look_everywhere()
            elif target is None:
                continue  # a last word of a watch that is dropped already
            elif event.mask & _ENDS:
                self._tell(target.place, touches.pop(target.place, {}))
                self._end(target)
            elif target.inside is None:
                if event.mask & _ISDIR:
                    self._watch.look_in(target.place.below(event.name))
            else:
                self._take_inside(target, event, touches.setdefault(target.place, {}))
        for place, paths in touches.items():
            self._tell(place, paths)

    def _tell(self, place: FolderPlace, touches: dict[bytes, FileEvent]) -> None:
        if touches:
            self._registry.changed(place, touches)

    def _end(self, target: WatchTarget) -> None:
        self._drop(target)
        if target.inside is None:
            self._watch.look_in(target.place)
        elif target.inside:
            self._registry.changed(target.place, {})
        else:
            self.unwatch_job(target.place)
            self._watch.lost(target.place)

    def _take_inside(self, target: WatchTarget, event: InotifyEvent, touches: dict[bytes, FileEvent]) -> None:
        place, inside = target.place, target.inside or b""
        path = inside + b"/" + event.name if inside else event.name
        if event.mask & _ISDIR and path in directories_of(place):
            self._directory_came_or_went(place, path, event)
        elif event.name:
            seen = file_event(event.mask)
            known = touches.get(path)
            touches[path] = seen if known is None else known | seen
        else:
            self._registry.changed(place, None)  # the directory's own mode changed: what was hidden may be readable

    def _directory_came_or_went(self, place: FolderPlace, inside: bytes, event: InotifyEvent) -> None:
        if not file_event(event.mask).is_made:
            self._registry.changed(place, {})
            return
        try:
            self._watch_inside(place, inside)
        except OSError as error:
            self._note_failure(error)
        self._registry.changed(place, None)

    # Watches

    def _watch_parent(self, target: WatchTarget) -> bool:
        if target not in self._watches and self._parents >= PARENTS_LIMIT:
            self.is_exhausted = True
            return False
        try:
            return self._add(target, _NAMES)
        except OSError as error:
            self._note_failure(error)
            return False

    def _watch_inside(self, place: FolderPlace, inside: bytes) -> None:
        # Where there is none, the JOB's own events tell when it comes.
        with suppress(*((FileNotFoundError, NotADirectoryError) if inside else ())):
            self._add(WatchTarget(place, inside), _CONTENT)

    def _add(self, target: WatchTarget, mask: int) -> bool:
        """Whether the directory was not watched before. OSError, also when there are too many."""
        directory = target.place.below(target.inside or b"").directory
        watch = self._checked(self._libc.inotify_add_watch(self._descriptor, directory, mask))
        if self._targets.get(watch) == target:
            return False
        self._drop(target)
        self._targets[watch] = target
        self._watches[target] = watch
        self._parents += target.inside is None
        return True

    def _drop(self, target: WatchTarget) -> None:
        watch = self._watches.pop(target, None)
        if watch is not None:
            self._targets.pop(watch, None)
            self._parents -= target.inside is None
            self._libc.inotify_rm_watch(self._descriptor, watch)  # one that is gone already is fine

    def _note_failure(self, error: OSError) -> None:
        if error.errno in _TOO_MANY and not self.is_exhausted:
            self.is_exhausted = True
            _LOGGER.warning(
                "no more directories can be watched (%s): the others are looked at; raise fs.inotify.max_user_watches",
                error.strerror,
            )

    def _checked(self, result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result
