"""Search for collections below the roots, and walks through their files, in pages for a worker thread."""

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

    from profagentd.sources.source import LogMode, Source


def directories_of(place: FolderPlace) -> tuple[bytes, ...]:
    """Return the directories of the collection at `place` that hold logs, relative to it."""
    source = source_of(place.name)
    return source.directories if source else (b"",)


# Large trees that never hold a program's output.
_SKIPPED_NAMES = frozenset((b"node_modules", b"__pycache__", b"lost+found"))
_SKIPPED_DIRECTORIES = frozenset((b"/proc", b"/sys", b"/dev"))


@dataclass
class FoundCollections:
    """Collections below a directory, and the directories in which others may appear."""

    # The collections; the searched directories; those that could not be read.
    jobs: list[FolderPlace] = field(default_factory=list)
    directories: list[FolderPlace] = field(default_factory=list)
    unreadable: list[FolderPlace] = field(default_factory=list)


def find_jobs(start: FolderPlace, depth: int) -> FoundCollections:
    """Return all collections below `start`, at most `depth` levels below its root.

    No link is followed and no collection entered. A directory that cannot be read is listed, not raised.
    """
    found = FoundCollections()
    pending = [start]
    while pending:
        place = pending.pop()
        level = place.path.count(b"/") + 1 if place.path else 0
        if source_of(place.name):
            if _is_real_directory(place):
                found.jobs.append(place)
        elif level < depth and _is_searched(place):
            try:
                pending += [place.below(name) for name, is_directory in list_directory(place) if is_directory]
                found.directories.append(place)
            except OSError:
                found.unreadable.append(place)
    return found


def job_times(place: FolderPlace) -> tuple[int, int]:
    """Return the wall-clock times, in µs, at which the collection was made and a name last came or went in it.

    The first is the time of its own directory: the runtime makes all names in it at once (the-format.md 1).
    """
    times = [_mtime_us(place.below(name)) for name in directories_of(place)]
    return times[0], max(times)


def _is_real_directory(place: FolderPlace) -> bool:
    try:
        parent = open_directory(FolderPlace(place.root, os.path.dirname(place.path)))
        try:
            return stat.S_ISDIR(os.stat(place.name, dir_fd=parent, follow_symlinks=False).st_mode)
        finally:
            os.close(parent)
    except OSError:
        return False


def _mtime_us(place: FolderPlace) -> int:
    """Return the directory's time in µs; 0 for none, or for a date before 1970, which the wire cannot express."""
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
    """Regular file in a collection."""

    path: bytes
    kind: LogMode
    size: int
    changed_wall_us: int


@dataclass
class WalkPage:
    """Result of looking up some names of a collection."""

    logs: list[Sighting] = field(default_factory=list)
    odd: list[bytes] = field(default_factory=list)  # paths that are no regular files
    missing: list[bytes] = field(default_factory=list)  # paths without a file
    unreadable: str | None = None  # why the directory cannot be read
    is_last: bool = True
    is_job_gone: bool = False  # the collection's directory does not exist, so nothing was looked up


class CollectionWalk:
    """Walk through all files of a collection, a page at a time: early files first, and groups together."""

    def __init__(self, place: FolderPlace, source: Source) -> None:
        self._place = place
        self._source = source
        self._groups = _groups(place, source)  # suspended between pages, with its directories open

    def page(self, limit: int, announced: Collection[bytes] = ()) -> WalkPage:
        """Return the next `limit` names or a few more, so that no group is split. One caller at a time."""
        paths: list[bytes] = []
        try:
            while len(paths) < limit and (group := next(self._groups, None)):
                paths += group
        except JobGone:
            return WalkPage(is_job_gone=True)
        except OSError as error:
            return WalkPage(unreadable=error.strerror)
        page = look_up(self._place, self._source, paths, announced)
        page.is_last = len(paths) < limit
        return page


def look_up(
    place: FolderPlace, source: Source, paths: Iterable[bytes], announced: Collection[bytes] | None = ()
) -> WalkPage:
    """Return the status of these paths inside the collection at `place`.

    Each path follows those that must be announced before it, unless they are `announced`. With None the paths are in
    order already. The first ones are looked up last: so a prerequisite that exists when its log is seen is never
    missed.
    """
    page = WalkPage()
    names = list(paths) if announced is None else list(_in_order(source, paths, announced))
    try:
        with OpenCollection(place) as files:
            for path in reversed(names):
                _look_up(files, source.kind(path), path, page)
    except JobGone:
        return WalkPage(is_job_gone=True)
    page.logs.reverse()
    return page


def _in_order(source: Source, paths: Iterable[bytes], announced: Collection[bytes]) -> dict[bytes, None]:
    requested = dict.fromkeys(paths)
    names = dict.fromkeys(path for path in requested if source.is_early(path))
    seen: set[bytes] = set()
    for path in requested:
        group = () if path in seen else source.announced_together(path)
        seen.update(group)
        for each in group:
            if each in requested or each not in announced:
                names.update(dict.fromkeys(early for early in source.announced_before(each) if early not in announced))
                names[each] = None
    return names


def _look_up(files: OpenCollection, kind: LogMode, path: bytes, page: WalkPage) -> None:
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
        # Two passes over the directory keep early files first without holding all names in memory.
        for early in (True, False):
            for path, _ in entries(files, source):
                if source.is_early(path) == early:
                    group = source.announced_together(path)
                    at = group.index(path)
                    # The first member that exists brings the whole group, so each group comes once without remembering
                    # names.
                    if not any(_exists(files, each) for each in group[:at]):
                        yield list(group[at:])


def entries(files: OpenCollection, source: Source) -> Iterator[tuple[bytes, os.DirEntry[str]]]:
    """Yield the paths in the collection's directories, without these directories. Raises JobGone, OSError."""
    files.directory()
    for inside in source.directories:
        # The runtime makes the data directory just after the JOB's, and another file may stand under that name.
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(files.directory(inside)) as found:
            for entry in found:
                path = os.path.join(inside, os.fsencode(entry.name))
                if not (path in source.directories and entry.is_dir(follow_symlinks=False)):
                    yield path, entry


def _exists(files: OpenCollection, path: bytes) -> bool:
    try:
        files.status(path)
    except (Gone, NotAFile, Unreadable):
        return False
    return True


class Measure(NamedTuple):
    """Size of a collection; `is_all` if all of it was counted."""

    logs: int
    bytes: int
    inferences: int
    is_all: bool


def measure(place: FolderPlace, source: Source, patience_s: float) -> Measure:
    """Count a collection's files, for at most `patience_s` seconds. Blocks; raises JobGone."""
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
    group = source.announced_together(path)
    if source.kind(path) is not DATA or not source.inference_logs or len(group) != source.inference_logs:
        return False
    return not any(_exists(files, each) for each in itertools.takewhile(lambda each: each != path, group))
