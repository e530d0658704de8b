"""What the kernel's notices mean for the JOBs of the board."""

from __future__ import annotations

import enum
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from profagentd.changes import Touch, joined
from profagentd.inotify import Inotify, Notice, is_exhausted
from profagentd.logs import DATA_DIRECTORY
from profagentd.opening import Place, in_data

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_LOGGER = logging.getLogger(__name__)

# Directories that are watched only because JOBs may appear in them, at most.
PARENTS_LIMIT = 4096


class Hearer(Protocol):
    """Who is told what the notices mean; called on the loop."""

    def look_in(self, place: Place) -> None:
        """A directory has come, or has gone: JOBs may have with it."""

    def look_everywhere(self) -> None:
        """Notices were lost: anything may have changed."""

    def lost(self, place: Place) -> None:
        """The directory of a JOB is gone."""

    def changed(self, place: Place, touches: Mapping[bytes, Touch]) -> None:
        """These names of a JOB may have changed."""

    def names_removed(self, place: Place) -> None:
        """Names of a JOB may be gone."""

    def unsure(self, place: Place) -> None:
        """Anything in a JOB may have changed."""


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


class Notices:
    """Which directory each watch belongs to, and what a notice of it says."""

    def __init__(self, inotify: Inotify, hearer: Hearer) -> None:
        self.is_exhausted = False  # some directory could not be watched
        self._inotify = inotify
        self._hearer = hearer
        self._targets: dict[int, Target] = {}
        self._watches: dict[Target, int] = {}

    def start(self) -> None:
        """Take notices on the running loop."""
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
        """Whether notices of a JOB are taken."""
        return Target(Role.JOB, place) in self._watches

    def unwatch_job(self, place: Place) -> None:
        """Take no more notices of a JOB."""
        for role in (Role.JOB, Role.DATA):
            self._drop(Target(role, place))

    def take(self, notices: Sequence[Notice]) -> None:
        """Tell the hearer what these notices mean."""
        touches: dict[Place, dict[bytes, Touch]] = {}
        for notice in notices:
            target = self._targets.get(notice.watch)
            if notice.is_overflow:
                _LOGGER.warning("notices of changes were lost: everything is looked at again")
                self._hearer.look_everywhere()
            elif target is None:
                continue  # a last word of a watch that is dropped already
            elif notice.is_end:
                self._tell(target.place, touches.pop(target.place, {}))
                self._end(target)
            elif target.role is Role.PARENT:
                self._hear_parent(target, notice)
            else:
                self._hear_job(target, notice, touches.setdefault(target.place, {}))
        for place, paths in touches.items():
            self._tell(place, paths)

    # One notice

    def _tell(self, place: Place, touches: Mapping[bytes, Touch]) -> None:
        if touches:
            self._hearer.changed(place, touches)

    def _end(self, target: Target) -> None:
        self._drop(target)
        if target.role is Role.DATA:
            self._hearer.names_removed(target.place)
        elif target.role is Role.JOB:
            self.unwatch_job(target.place)
            self._hearer.lost(target.place)
        else:
            self._hearer.look_in(target.place)

    def _hear_parent(self, target: Target, notice: Notice) -> None:
        if notice.is_directory:
            place = target.place
            self._hearer.look_in(Place(place.root, os.path.join(place.path, notice.name)))

    def _hear_job(self, target: Target, notice: Notice, touches: dict[bytes, Touch]) -> None:
        if target.role is Role.JOB and notice.name == DATA_DIRECTORY and notice.is_directory:
            self._data_came_or_went(target.place, notice)
        elif notice.name:
            path = in_data(notice.name) if target.role is Role.DATA else notice.name
            known = touches.get(path)
            touches[path] = notice.touch if known is None else joined(known, notice.touch)
        else:
            self._hearer.unsure(target.place)  # the directory's own mode changed: what was hidden may be readable

    def _data_came_or_went(self, place: Place, notice: Notice) -> None:
        if not notice.touch & Touch.MADE:
            self._hearer.names_removed(place)
            return
        try:
            self._watch_data(place)
        except OSError as error:
            self._note_failure(error)
        self._hearer.unsure(place)

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
        # Where there is none, the JOB's own notices tell when it comes.
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
