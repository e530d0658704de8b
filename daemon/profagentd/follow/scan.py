"""Finding what changed in a JOB directory by looking at all of it: for file systems and boards without inotify.

Nothing is kept for each file but for those changed within the last moments: a file counts as changed when its ctime is
not before the newest one seen. The clock that writes these times decides, whoever keeps it; when it is seen to go back,
anything may have changed.
"""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagentd.follow.log import NAMES_LIMIT, FileEvent
from profagentd.sources.job import DATA_DIRECTORY, Place, in_data, open_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

# File times have the grain of the kernel's tick, 10 ms at most; a file written within it may be written again.
SLACK_NS = 50_000_000


@dataclass(frozen=True)
class Scanned:
    """What one look gave."""

    touches: dict[bytes, FileEvent]
    is_all: bool = False  # anything may have changed; `touches` does not tell
    names_changed: bool = False  # names were made or removed
    cpu_s: float = 0.0


@dataclass(frozen=True)
class _Seen:
    inode: int
    size: int
    ctime_ns: int


class DirectoryScan:
    """One directory, looked at again and again by one thread at a time. The first look gives no touches."""

    def __init__(self, place: Place, *, without: bytes = b"") -> None:
        """`without`: the name of a subdirectory that is somebody else's concern."""
        self._place = place
        self._without = without
        self._newest_ns: int | None = None
        self._recent: dict[bytes, _Seen] = {}
        self._directory_ns = 0

    def scan(self) -> Scanned:
        """Names whose files changed since the last call. OSError when the directory cannot be read."""
        descriptor = open_directory(self._place)
        try:
            directory_ns = os.fstat(descriptor).st_mtime_ns
            went_back = directory_ns < self._directory_ns
            is_first = self._newest_ns is None
            touches = self._changed(descriptor, 0 if is_first or went_back else self._since_ns)
        finally:
            os.close(descriptor)
        names_changed = directory_ns != self._directory_ns
        self._directory_ns = directory_ns
        if is_first:
            return Scanned({})
        is_all = went_back or len(touches) > NAMES_LIMIT
        return Scanned({} if is_all else touches, is_all, names_changed)

    @property
    def _since_ns(self) -> int:
        return (self._newest_ns or 0) - SLACK_NS

    def _changed(self, descriptor: int, since_ns: int) -> dict[bytes, FileEvent]:
        before, self._recent = self._recent, {}
        self._newest_ns = max(self._newest_ns or 0, since_ns) if since_ns else 0
        touches: dict[bytes, FileEvent] = {}
        for name, status in entries(descriptor, self._without):
            if status.st_ctime_ns < since_ns:
                continue
            self._newest_ns = max(self._newest_ns, status.st_ctime_ns)
            seen = _Seen(status.st_ino, status.st_size, status.st_ctime_ns)
            if before.get(name) != seen and len(touches) <= NAMES_LIMIT:
                touches[name] = FileEvent.WRITTEN
            self._remember(name, seen)
        self._forget_old()
        return touches

    def _remember(self, name: bytes, seen: _Seen) -> None:
        if seen.ctime_ns >= self._since_ns:
            self._recent[name] = seen
        if len(self._recent) > NAMES_LIMIT:
            self._forget_old()

    def _forget_old(self) -> None:
        self._recent = {name: each for name, each in self._recent.items() if each.ctime_ns >= self._since_ns}


class JobScan:
    """The two directories of a JOB."""

    def __init__(self, place: Place) -> None:
        self._root = DirectoryScan(place, without=DATA_DIRECTORY)
        self._data = DirectoryScan(Place(place.root, os.path.join(place.path, DATA_DIRECTORY)))
        self._has_data = False

    def scan(self) -> Scanned:
        """Paths inside the JOB that changed since the last call. OSError when the JOB cannot be read."""
        begun_s = time.thread_time()
        root = self._root.scan()
        had_data = self._has_data
        try:
            data = self._data.scan()
            self._has_data = True
        except (FileNotFoundError, NotADirectoryError):
            data = Scanned({}, is_all=had_data)
            self._has_data = False
        touches = {**root.touches, **{in_data(name): touch for name, touch in data.touches.items()}}
        is_all = root.is_all or data.is_all or (self._has_data and not had_data)
        names_changed = root.names_changed or data.names_changed
        return Scanned(touches, is_all, names_changed, time.thread_time() - begun_s)


def entries(descriptor: int, without: bytes = b"") -> Iterator[tuple[bytes, os.stat_result]]:
    """What stands in a directory, all but a subdirectory of the name `without`."""
    with os.scandir(descriptor) as found:
        for entry in found:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # it has just gone
            name = os.fsencode(entry.name)
            if not (name == without and stat.S_ISDIR(status.st_mode)):
                yield name, status
