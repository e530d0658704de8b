"""JOB directories by name, and finding them under a root."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from profagentd.opening import Place, open_directory

# Trees that are large and never hold a program's output.
_SKIPPED_NAMES = frozenset((b"node_modules", b"__pycache__", b"lost+found"))
_SKIPPED_DIRECTORIES = frozenset((b"/proc", b"/sys", b"/dev"))

_JOB_NAME = re.compile(rb"JOB[A-Z]{29}")


@dataclass
class Found:
    """JOB directories, and the directories in which others may appear."""

    jobs: list[Place] = field(default_factory=list)
    directories: list[Place] = field(default_factory=list)
    unreadable: list[Place] = field(default_factory=list)


def is_job_name(name: bytes) -> bool:
    """Whether a directory of this name is a JOB (format page 1)."""
    return _JOB_NAME.fullmatch(name) is not None


def level(place: Place) -> int:
    """How many levels below its root a directory is."""
    return place.path.count(b"/") + 1 if place.path else 0


def find_jobs(start: Place, depth: int) -> Found:
    """All JOB directories at most `depth` levels below the root of `start`, from `start` on downwards.

    Follows no link and looks into no JOB; a directory that cannot be read is listed, not raised.
    """
    found = Found()
    pending = [start]
    while pending:
        place = pending.pop()
        try:
            names = _subdirectories(place)
        except OSError:
            found.unreadable.append(place)
            continue
        found.directories.append(place)
        below = [Place(place.root, place.path + b"/" + name if place.path else name) for name in names]
        found.jobs += [each for each in below if is_job_name(os.path.basename(each.path))]
        if level(place) < depth - 1:
            pending += [each for each in below if _is_searched(each)]
    return found


def _subdirectories(place: Place) -> list[bytes]:
    descriptor = open_directory(place)
    try:
        with os.scandir(descriptor) as entries:
            return [os.fsencode(entry.name) for entry in entries if entry.is_dir(follow_symlinks=False)]
    finally:
        os.close(descriptor)


def _is_searched(place: Place) -> bool:
    name = os.path.basename(place.path)
    skipped = name.startswith(b".") or name in _SKIPPED_NAMES or place.directory in _SKIPPED_DIRECTORIES
    return not skipped and not is_job_name(name)
