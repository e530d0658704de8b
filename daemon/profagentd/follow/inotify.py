"""What the kernel's events mean for the JOBs of the board."""

from __future__ import annotations

import asyncio
import ctypes
import enum
import errno
import logging
import os
import struct
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Callable, NamedTuple, Protocol

from profagentd.follow.log import FileEvent, merged
from profagentd.sources.job import DATA_DIRECTORY, Place, in_data

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from profagentd.follow.registry import JobRegistry


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
# The first event after a rest goes on after this; while more arrive, they are gathered for longer.
FIRST_S = 0.01
GATHER_S = 0.075


class InotifyEvent(NamedTuple):
    """One event about a watched directory, or about `name` in it."""

    watch: int
    mask: int
    name: bytes

    @property
    def is_overflow(self) -> bool:
        """Whether events were lost: anything may have changed."""
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
    def touch(self) -> FileEvent:
        """What happened to `name`."""
        return _touch(self.mask)


@lru_cache
def _touch(mask: int) -> FileEvent:
    touch = FileEvent.WRITTEN if mask & _MODIFY else FileEvent.CLOSED if mask & _CLOSE_WRITE else FileEvent.HINT
    touch |= FileEvent.MADE if mask & _MADE else FileEvent.HINT
    touch |= FileEvent.DELETED if mask & _DELETE else FileEvent.HINT
    return touch | (FileEvent.MOVED if mask & _MOVED_FROM else FileEvent.HINT)


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


class Inotify:
    """Watched directories. The owner closes it."""

    def __init__(self) -> None:
        """Raises OSError when the kernel gives no inotify, or no more of it."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._deliver: Callable[[Sequence[InotifyEvent]], None] | None = None
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

    def deliver(self, take: Callable[[Sequence[InotifyEvent]], None]) -> None:
        """Hand events to `take` on the running loop, gathered."""
        self._deliver = take
        asyncio.get_running_loop().add_reader(self._descriptor, self._is_readable)

    def read(self) -> list[InotifyEvent]:
        """Those that there are; they are not delivered any more."""
        events: list[InotifyEvent] = []
        while True:
            try:
                data = os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                return events
            events += parse_events(data)

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
        events = self.read()
        if not events:
            loop.add_reader(self._descriptor, self._is_readable)
            return
        self._timer = loop.call_later(GATHER_S, self._drain)
        assert self._deliver is not None, "a drain follows `deliver`"
        self._deliver(events)

    def _checked(self, result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result


def is_exhausted(error: OSError) -> bool:
    """Whether a watch was refused because there are too many."""
    return error.errno in (errno.ENOSPC, errno.EMFILE, errno.ENOMEM)


_LOGGER = logging.getLogger(__name__)

# Directories that are watched only because JOBs may appear in them, at most.
PARENTS_LIMIT = 4096


class WatchListener(Protocol):
    """Who is told what the events mean; called on the loop."""

    def look_in(self, place: Place) -> None:
        """A directory has come, or has gone: JOBs may have with it."""

    def look_everywhere(self) -> None:
        """InotifyWatcher were lost: anything may have changed."""

    def lost(self, place: Place) -> None:
        """The directory of a JOB is gone."""


class Role(enum.Enum):
    """What a watched directory is."""

    PARENT = "parent"  # JOBs may appear in it
    JOB = "job"
    DATA = "data"  # of a JOB


@dataclass(frozen=True)
class Target:
    """A watched directory; `place` is the JOB's for JOB and DATA."""

    role: Role
    place: Place

    @property
    def directory(self) -> bytes:
        """The absolute path."""
        own = self.place.directory
        return os.path.join(own, DATA_DIRECTORY) if self.role is Role.DATA else own


class InotifyWatcher:
    """Which directory each watch belongs to, and what a event of it says."""

    def __init__(self, inotify: Inotify, listener: WatchListener, registry: JobRegistry) -> None:
        """Of directories the listener is told, of what changes in known JOBs the registry."""
        self.is_exhausted = False  # some directory could not be watched
        self._inotify = inotify
        self._listener = listener
        self._registry = registry
        self._targets: dict[int, Target] = {}
        self._watches: dict[Target, int] = {}

    def start(self) -> None:
        """Take events on the running loop."""
        self._inotify.deliver(self.take)

    def close(self) -> None:
        """Take no more."""
        self._inotify.close()

    def catch_up(self) -> None:
        """Take those that are there and not delivered yet."""
        self.take(self._inotify.read())

    def watch_parents(self, places: Iterable[Place]) -> bool:
        """Watch directories in which JOBs may appear; whether some were not watched before.

        A directory that is watched already is watched anew: another may have been put, or mounted, in its place.
        """
        added = [self._watch_parent(place) for place in places]
        return any(added)

    def watch_job(self, place: Place) -> bool:
        """Watch a JOB and its data; False when it cannot be watched and must be looked at instead."""
        try:
            self._watch(Target(Role.JOB, place))
            self._watch_data(place)
        except OSError as error:
            self._note_failure(error)
            self.unwatch_job(place)
            return False
        return True

    def is_watched(self, place: Place) -> bool:
        """Whether events of a JOB are taken."""
        return Target(Role.JOB, place) in self._watches

    def unwatch_job(self, place: Place) -> None:
        """Take no more events of a JOB."""
        for role in (Role.JOB, Role.DATA):
            self._drop(Target(role, place))

    def take(self, events: Sequence[InotifyEvent]) -> None:
        """Tell the listener what these events mean."""
        touches: dict[Place, dict[bytes, FileEvent]] = {}
        for event in events:
            target = self._targets.get(event.watch)
            if event.is_overflow:
                _LOGGER.warning("events of the kernel were lost: everything is looked at again")
                self._listener.look_everywhere()
            elif target is None:
                continue  # a last word of a watch that is dropped already
            elif event.is_end:
                self._tell(target.place, touches.pop(target.place, {}))
                self._end(target)
            elif target.role is Role.PARENT:
                self._hear_parent(target, event)
            else:
                self._hear_job(target, event, touches.setdefault(target.place, {}))
        for place, paths in touches.items():
            self._tell(place, paths)

    # One event

    def _tell(self, place: Place, touches: Mapping[bytes, FileEvent]) -> None:
        if touches:
            self._registry.changed(place, touches)

    def _end(self, target: Target) -> None:
        self._drop(target)
        if target.role is Role.DATA:
            self._registry.names_removed(target.place)
        elif target.role is Role.JOB:
            self.unwatch_job(target.place)
            self._listener.lost(target.place)
        else:
            self._listener.look_in(target.place)

    def _hear_parent(self, target: Target, event: InotifyEvent) -> None:
        if event.is_directory:
            place = target.place
            self._listener.look_in(Place(place.root, os.path.join(place.path, event.name)))

    def _hear_job(self, target: Target, event: InotifyEvent, touches: dict[bytes, FileEvent]) -> None:
        if target.role is Role.JOB and event.name == DATA_DIRECTORY and event.is_directory:
            self._data_came_or_went(target.place, event)
        elif event.name:
            path = in_data(event.name) if target.role is Role.DATA else event.name
            known = touches.get(path)
            touches[path] = event.touch if known is None else merged(known, event.touch)
        else:
            self._registry.unsure(target.place)  # the directory's own mode changed: what was hidden may be readable

    def _data_came_or_went(self, place: Place, event: InotifyEvent) -> None:
        if not event.touch & FileEvent.MADE:
            self._registry.names_removed(place)
            return
        try:
            self._watch_data(place)
        except OSError as error:
            self._note_failure(error)
        self._registry.unsure(place)

    # Watches

    def _watch_parent(self, place: Place) -> bool:
        target = Target(Role.PARENT, place)
        parents = sum(each.role is Role.PARENT for each in self._watches) if target not in self._watches else 0
        if parents >= PARENTS_LIMIT:
            self.is_exhausted = True
            return False
        try:
            return self._watch(target)
        except OSError as error:
            self._note_failure(error)
            return False

    def _watch_data(self, place: Place) -> None:
        # Where there is none, the JOB's own events tell when it comes.
        with suppress(FileNotFoundError, NotADirectoryError):
            self._watch(Target(Role.DATA, place))

    def _watch(self, target: Target) -> bool:
        """Whether the directory was not watched before. OSError."""
        add = self._inotify.watch_names if target.role is Role.PARENT else self._inotify.watch_content
        watch = add(target.directory)
        if self._targets.get(watch) == target:
            return False
        self._drop(target)
        self._targets[watch] = target
        self._watches[target] = watch
        return True

    def _drop(self, target: Target) -> None:
        watch: int | None = self._watches.pop(target, None)
        if watch is not None:
            self._targets.pop(watch, None)
            self._inotify.unwatch(watch)

    def _note_failure(self, error: OSError) -> None:
        if is_exhausted(error) and not self.is_exhausted:
            self.is_exhausted = True
            _LOGGER.warning(
                "no more directories can be watched (%s): the others are looked at; raise fs.inotify.max_user_watches",
                error.strerror,
            )
