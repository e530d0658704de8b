"""Finding collections below the roots, and what they hold, in pages that a worker thread fetches."""

from __future__ import annotations

import itertools
import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from profagentd.sources import source_of
from profagentd.sources.files import (
    FolderPlace,
    Gone,
    JobGone,
    NotAFile,
    OpenCollection,
    Unreadable,
    list_directory,
    open_directory,
)
from profagentd.sources.source import DATA

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from profagentd.sources.source import LogKind, Source


def directories_of(place: FolderPlace) -> tuple[bytes, ...]:
    """Where the logs of the collection at `place` lie, inside it."""
    source = source_of(place.name)
    return source.directories if source else (b"",)


# Trees that are large and never hold a program's output.
_SKIPPED_NAMES = frozenset((b"node_modules", b"__pycache__", b"lost+found"))
_SKIPPED_DIRECTORIES = frozenset((b"/proc", b"/sys", b"/dev"))


@dataclass
class FoundCollections:
    """Collections, and the directories in which others may appear."""

    jobs: list[FolderPlace] = field(default_factory=list)
    directories: list[FolderPlace] = field(default_factory=list)
    unreadable: list[FolderPlace] = field(default_factory=list)


def find_jobs(start: FolderPlace, depth: int) -> FoundCollections:
    """All collections at most `depth` levels below the root of `start`, `start` itself and whatever is below it.

    Follows no link and looks into no collection; a directory that cannot be read is listed, not raised.
    """
    found = FoundCollections()
    pending = [start]
    while pending:
        place = pending.pop()
        level = place.path.count(b"/") + 1 if place.path else 0
        if source_of(place.name):
            if _is_directory(place):
                found.jobs.append(place)
        elif level < depth and _is_searched(place):
            try:
                pending += [place.below(name) for name, is_directory in list_directory(place) if is_directory]
                found.directories.append(place)
            except OSError:
                found.unreadable.append(place)
    return found


def job_times(place: FolderPlace) -> tuple[int, int]:
    """Wall clock at which the collection was made, and of the newest coming or going of a name, in microseconds.

    The making is the last name that came to its own directory: the runtime makes all at once (format page 1).
    """
    times = [_mtime_us(place.below(name)) for name in directories_of(place)]
    return times[0], max(times)


def _is_directory(place: FolderPlace) -> bool:
    """Whether a directory is there, reached without a link, readable or not."""
    try:
        parent = open_directory(FolderPlace(place.root, os.path.dirname(place.path)))
        try:
            return stat.S_ISDIR(os.stat(place.name, dir_fd=parent, follow_symlinks=False).st_mode)
        finally:
            os.close(parent)
    except OSError:
        return False


def _mtime_us(place: FolderPlace) -> int:
    """0 also for a date before 1970, as a clock that was wrong leaves it: the wire has no such times."""
    try:
        descriptor = open_directory(place)
    except OSError:
        return 0
    try:
        return max(0, os.fstat(descriptor).st_mtime_ns // 1000)
    finally:
        os.close(descriptor)


def _is_searched(place: FolderPlace) -> bool:
    name = place.name
    return not (name.startswith(b".") or name in _SKIPPED_NAMES or place.directory in _SKIPPED_DIRECTORIES)


class Sighting(NamedTuple):
    """A regular file in a collection."""

    path: bytes
    kind: LogKind
    size: int
    changed_wall_us: int


@dataclass
class WalkPage:
    """Some names of a collection, looked at."""

    logs: list[Sighting] = field(default_factory=list)
    odd: list[bytes] = field(default_factory=list)  # something else than a regular file
    missing: list[bytes] = field(default_factory=list)
    unreadable: str | None = None  # why the directory cannot be read
    is_last: bool = True
    is_job_gone: bool = False  # nothing was looked at: the directory is not there


class CollectionWalk:
    """Everything in a collection, a page at a time: early files first, and what belongs together at once."""

    def __init__(self, place: FolderPlace, source: Source) -> None:
        self._place = place
        self._source = source
        self._groups = _groups(place, source)

    def page(self, limit: int, announced: Collection[bytes] = ()) -> WalkPage:
        """The next `limit` names, or a few more that belong together, looked at as by `look`. One caller at a time."""
        paths: list[bytes] = []
        try:
            while len(paths) < limit and (group := next(self._groups, None)):
                paths += group
        except JobGone:
            return WalkPage(is_job_gone=True)
        except OSError as error:
            return WalkPage(unreadable=error.strerror)
        page = look(self._place, self._source, paths, announced)
        page.is_last = len(paths) < limit
        return page


def look(
    place: FolderPlace, source: Source, paths: Iterable[bytes], announced: Collection[bytes] | None = ()
) -> WalkPage:
    """The status of these paths inside the collection at `place`.

    Each comes behind what must be announced before it, unless that is `announced`; with None for it the paths are in
    order already. What stands first is looked at last: it was made before the others or not at all.
    """
    page = WalkPage()
    names = list(paths) if announced is None else list(_with_earlier(source, paths, announced))
    try:
        with OpenCollection(place) as files:
            for path in reversed(names):
                _look_at(files, source.kind(path), path, page)
    except JobGone:
        return WalkPage(is_job_gone=True)
    page.logs.reverse()
    return page


def _with_earlier(source: Source, paths: Iterable[bytes], announced: Collection[bytes]) -> dict[bytes, None]:
    asked = dict.fromkeys(paths)
    names = dict.fromkeys(path for path in asked if source.is_early(path))
    seen: set[bytes] = set()
    for path in asked:
        group = () if path in seen else source.together(path)
        seen.update(group)
        for each in group:
            if each in asked or each not in announced:
                names.update(dict.fromkeys(early for early in source.before(each) if early not in announced))
                names[each] = None
    return names


def _look_at(files: OpenCollection, kind: LogKind, path: bytes, page: WalkPage) -> None:
    try:
        status = files.status(path)
    except JobGone:
        raise
    except Gone:
        page.missing.append(path)
    except NotAFile:
        page.odd.append(path)
    except Unreadable as error:
        page.unreadable = str(error)
    else:
        page.logs.append(Sighting(path, kind, status.st_size, status.st_mtime_ns // 1000))


def _groups(place: FolderPlace, source: Source) -> Iterator[list[bytes]]:
    with OpenCollection(place) as files:
        for early in (True, False):
            for path, _ in entries(files, source):
                if source.is_early(path) == early:
                    group = source.together(path)
                    at = group.index(path)
                    if not any(_stands(files, each) for each in group[:at]):
                        yield list(group[at:])


def entries(files: OpenCollection, source: Source) -> Iterator[tuple[bytes, os.DirEntry[str]]]:
    """The paths that stand in the collection's directories, but those themselves. Raises JobGone, OSError."""
    files.directory()
    for inside in source.directories:
        # A JOB has its data directory a moment after itself, and may have something else in its place.
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(files.directory(inside)) as found:
            for entry in found:
                path = os.path.join(inside, os.fsencode(entry.name))
                if not (path in source.directories and entry.is_dir(follow_symlinks=False)):
                    yield path, entry


def _stands(files: OpenCollection, path: bytes) -> bool:
    try:
        files.status(path)
    except (Gone, NotAFile, Unreadable):
        return False
    return True


class Measure(NamedTuple):
    """How much a collection holds; `is_all` when all of it was counted."""

    logs: int
    bytes: int
    inferences: int
    is_all: bool


def measure(place: FolderPlace, source: Source, patience_s: float) -> Measure:
    """Count for so long at most. Blocks; JobGone."""
    until = time.monotonic() + patience_s
    logs = size = inferences = 0
    is_all = False
    with OpenCollection(place) as files, suppress(PermissionError):
        for path, entry in entries(files, source):
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    logs, size = logs + 1, size + status.st_size
                    inferences += _is_first_data(files, source, path)
            if time.monotonic() > until:
                break
        else:
            is_all = True
    return Measure(logs, size, inferences, is_all)


def _is_first_data(files: OpenCollection, source: Source, path: bytes) -> bool:
    """Whether it is the first data log that stands of an inference: nothing is kept of those that were counted."""
    group = source.together(path)
    if source.kind(path) is not DATA or not source.inference_logs or len(group) != source.inference_logs:
        return False
    return not any(_stands(files, each) for each in itertools.takewhile(lambda each: each != path, group))
