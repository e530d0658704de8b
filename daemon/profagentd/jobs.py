"""JOB directories by name, and finding them under a root."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field

from profagentd.logs import DATA_DIRECTORY
from profagentd.opening import DirectoryId, Place, directory_id, open_directory

# Trees that are large and never hold a program's output.
_SKIPPED_NAMES = frozenset((b"node_modules", b"__pycache__", b"lost+found"))
_SKIPPED_DIRECTORIES = frozenset((b"/proc", b"/sys", b"/dev"))

_JOB_NAME = re.compile(rb"JOB[A-Z]{29}")


@dataclass
class Found:
    """JOB directories, and the directories in which others may appear."""

    jobs: dict[Place, DirectoryId] = field(default_factory=dict)
    directories: list[Place] = field(default_factory=list)
    unreadable: list[Place] = field(default_factory=list)


def is_job_name(name: bytes) -> bool:
    """Whether a directory of this name is a JOB (format page 1)."""
    return _JOB_NAME.fullmatch(name) is not None


def find_jobs(start: Place, depth: int) -> Found:
    """All JOB directories at most `depth` levels below the root of `start`, `start` itself and whatever is below it.

    Follows no link and looks into no JOB; a directory that cannot be read is listed, not raised.
    """
    found = Found()
    pending, jobs = [start], []
    while pending:
        place = pending.pop()
        level = place.path.count(b"/") + 1 if place.path else 0
        if is_job_name(os.path.basename(place.path)):
            jobs.append(place)
            continue
        if level >= depth or not _is_searched(place):
            continue
        try:
            pending += _subdirectories(place)
            found.directories.append(place)
        except OSError:
            found.unreadable.append(place)
    standing = ((place, _directory(place)) for place in jobs)
    found.jobs = {place: directory for place, directory in standing if directory}
    return found


def job_times(place: Place) -> tuple[int, int]:
    """Wall clock at which the JOB was made, and of the newest coming or going of a name in it, in microseconds.

    The making is the last name that came to the JOB's own directory: the runtime makes all at once (format page 1).
    """
    made_us = _mtime_us(place)
    return made_us, max(made_us, _mtime_us(Place(place.root, os.path.join(place.path, DATA_DIRECTORY))))


def _directory(place: Place) -> DirectoryId | None:
    """Which directory is there and reached without a link, readable or not; None where there is none."""
    try:
        parent = open_directory(Place(place.root, os.path.dirname(place.path)))
    except OSError:
        return None
    try:
        status = os.stat(os.path.basename(place.path), dir_fd=parent, follow_symlinks=False)
    except OSError:
        return None
    finally:
        os.close(parent)
    return directory_id(status) if stat.S_ISDIR(status.st_mode) else None


def _mtime_us(place: Place) -> int:
    """0 also for a date before 1970, as a clock that was wrong leaves it: the wire has no such times."""
    try:
        descriptor = open_directory(place)
    except OSError:
        return 0
    try:
        return max(0, os.fstat(descriptor).st_mtime_ns // 1000)
    finally:
        os.close(descriptor)


def _subdirectories(place: Place) -> list[Place]:
    descriptor = open_directory(place)
    try:
        with os.scandir(descriptor) as entries:
            names = [os.fsencode(entry.name) for entry in entries if entry.is_dir(follow_symlinks=False)]
    finally:
        os.close(descriptor)
    return [Place(place.root, os.path.join(place.path, name)) for name in names]


def _is_searched(place: Place) -> bool:
    name = os.path.basename(place.path)
    return not (name.startswith(b".") or name in _SKIPPED_NAMES or place.directory in _SKIPPED_DIRECTORIES)
