"""Finding what changed in a JOB directory by looking at all of it: for file systems and boards without inotify.

Nothing is kept for each file but for those changed within the last moments: a file counts as changed when its ctime is
not before the newest one seen. The directory's own clock decides, whoever keeps it; when that clock goes back, the
caller is told to look at everything.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Optional

from profagentd.changes import Touch
from profagentd.logs import DATA_DIRECTORY
from profagentd.opening import Place, in_data, open_directory

# File times have the grain of the kernel's tick, 10 ms at most; a file written within it may be written again.
SLACK_NS = 50_000_000


@dataclass(frozen=True)
class Scanned:
    """What one look at a directory gave."""

    touches: dict[bytes, Touch]
    names_changed: bool  # names were made or removed since the last look


class DirectoryScan:
    """One directory, looked at again and again by one thread at a time."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._newest_ns = 0
        self._recent: dict[bytes, tuple[int, int, int]] = {}
        self._directory_ns: Optional[int] = None

    def scan(self) -> Scanned:
        """Names whose files changed since the last call; all of them at the first. OSError when it cannot be read."""
        descriptor = open_directory(self._place)
        try:
            directory_ns = os.fstat(descriptor).st_mtime_ns
            touches, recent = self._changed(descriptor)
        finally:
            os.close(descriptor)
        names_changed = directory_ns != self._directory_ns
        self._directory_ns = directory_ns
        self._recent = recent
        return Scanned(touches, names_changed)

    def _changed(self, descriptor: int) -> tuple[dict[bytes, Touch], dict[bytes, tuple[int, int, int]]]:
        touches: dict[bytes, Touch] = {}
        seen: dict[bytes, tuple[int, int, int]] = {}
        since_ns = self._newest_ns - SLACK_NS
        with os.scandir(descriptor) as entries:
            for entry in entries:
                status = _status(entry)
                if status is None or status.st_ctime_ns < since_ns:
                    continue
                name = os.fsencode(entry.name)
                seen[name] = (status.st_ino, status.st_size, status.st_ctime_ns)
                if self._recent.get(name) != seen[name]:
                    touches[name] = Touch.WRITTEN
                self._newest_ns = max(self._newest_ns, status.st_ctime_ns)
        recent = {name: each for name, each in seen.items() if each[2] >= self._newest_ns - SLACK_NS}
        return touches, recent


class JobScan:
    """The two directories of a JOB."""

    def __init__(self, place: Place) -> None:
        self._root = DirectoryScan(place)
        self._data = DirectoryScan(Place(place.root, os.path.join(place.path, DATA_DIRECTORY)))

    def scan(self) -> Scanned:
        """Paths inside the JOB that changed since the last call. OSError when the JOB cannot be read."""
        root = self._root.scan()
        try:
            data = self._data.scan()
        except (FileNotFoundError, NotADirectoryError):
            data = Scanned({}, names_changed=False)
        touches = {name: touch for name, touch in root.touches.items() if name != DATA_DIRECTORY}
        touches.update((in_data(name), touch) for name, touch in data.touches.items())
        return Scanned(touches, root.names_changed or data.names_changed)


def _status(entry: os.DirEntry[str]) -> Optional[os.stat_result]:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return None  # it has just gone
    return None if stat.S_ISDIR(status.st_mode) else status
