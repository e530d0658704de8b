"""Which logs a JOB directory holds, in pages that a worker thread fetches."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from profagentd.sources.job import (
    DATA,
    DATA_DIRECTORY,
    DONE_SUFFIX,
    SNAPSHOT,
    DirectoryId,
    Gone,
    JobGone,
    NotAFile,
    OpenJob,
    Place,
    Unreadable,
    directory_id,
    group_of,
    in_data,
    kind_of,
    open_below,
    open_directory,
    open_job,
    tables_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from profagentd.sources.job import DirectoryId, LogKind


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


class Sighting(NamedTuple):
    """A regular file in a JOB directory."""

    path: bytes
    kind: LogKind
    size: int
    changed_wall_us: int


@dataclass
class Page:
    """Some names of a JOB directory, looked at."""

    logs: list[Sighting] = field(default_factory=list)
    odd: list[bytes] = field(default_factory=list)  # something else than a regular file
    missing: list[bytes] = field(default_factory=list)
    unreadable: str | None = None  # why the directory cannot be read
    brought: set[bytes] = field(default_factory=set)  # names that nobody asked for: others must not come before them
    is_last: bool = True
    is_job_gone: bool = False  # nothing was looked at: the directory is not there


class Walk:
    """Everything in a JOB directory, a page at a time.

    The small files that give names to others come first. The `.done`s of an inference come right after its data, so
    that a host need not take up again what it has put aside; data that is made while the walk goes on may leave others
    of its inference unseen.
    """

    def __init__(self, place: Place, directory: DirectoryId | None = None) -> None:
        self._place = place
        self._directory = directory
        self._groups = _groups(place, directory)

    def page(self, limit: int, settled: Collection[bytes] = ()) -> Page:
        """The next `limit` names, or a few more that belong together, looked at as by `look`. One caller at a time."""
        paths: list[bytes] = []
        try:
            while len(paths) < limit and (group := next(self._groups, None)):
                paths += group
        except JobGone:
            return Page(is_job_gone=True)
        except OSError as error:
            return Page(unreadable=error.strerror)
        page = look(self._place, paths, self._directory, settled)
        page.is_last = len(paths) < limit
        return page


def look(
    place: Place, paths: Iterable[bytes], directory: DirectoryId | None = None, settled: Collection[bytes] = ()
) -> Page:
    """The status of these paths inside the JOB at `place`, and of what must be announced before them.

    That is the data of a `.done`'s inference and the tables of data, but for what is `settled`. It is looked at after
    them, and stands before them: it was made before them or not at all.
    """
    asked = list(paths)
    names = _with_earlier(asked, settled)
    page = Page(brought=names.keys() - set(asked))
    try:
        with OpenJob(place, directory) as files:
            for path in reversed(names):
                _look_at(files, path, page)
    except JobGone:
        return Page(is_job_gone=True)
    page.logs.reverse()
    page.logs.sort(key=lambda each: each.kind is DATA or each.path.endswith(DONE_SUFFIX))
    return page


def _with_earlier(paths: Iterable[bytes], settled: Collection[bytes]) -> dict[bytes, None]:
    """These paths, in order, each behind what must be announced before it."""
    names: dict[bytes, None] = {}
    for path in paths:
        is_data = kind_of(path) is DATA
        for each in (path,) if is_data else () if path in settled else group_of(path):
            if kind_of(each) is DATA and each not in names:
                names.update(dict.fromkeys(table for table in tables_of(each) if table not in settled))
                names[each] = None
        names[path] = None
    return names


def _look_at(files: OpenJob, path: bytes, page: Page) -> None:
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
        page.logs.append(Sighting(path, kind_of(path), status.st_size, status.st_mtime_ns // 1000))


def _groups(place: Place, directory: DirectoryId | None) -> Iterator[list[bytes]]:
    yield from _of_job(place, directory, early=True)
    for early in (True, False):
        # A JOB has its data directory a moment after itself, and may have something else in its place.
        with suppress(FileNotFoundError, NotADirectoryError):
            for group in _of_data(place, directory, early=early):
                yield [in_data(name) for name in group]
    yield from _of_job(place, directory, early=False)


def _of_job(place: Place, directory: DirectoryId | None, *, early: bool) -> Iterator[list[bytes]]:
    """Names in the JOB's own directory, all but that of its data."""
    yield from _of_directory(open_job(place, directory), early=early, without=DATA_DIRECTORY)


def _of_data(place: Place, directory: DirectoryId | None, *, early: bool) -> Iterator[list[bytes]]:
    job = open_job(place, directory)
    try:
        data = open_below(job, DATA_DIRECTORY)
    finally:
        os.close(job)
    yield from _of_directory(data, early=early)


def _of_directory(descriptor: int, *, early: bool, without: bytes = b"") -> Iterator[list[bytes]]:
    """Names in a directory, which is closed, by groups; all but a subdirectory of the name `without`."""
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                name = os.fsencode(entry.name)
                is_without = name == without and entry.is_dir(follow_symlinks=False)
                if _is_early(name) == early and not is_without and (group := _led_by(descriptor, name)):
                    yield group
    finally:
        os.close(descriptor)


def _led_by(directory: int, name: bytes) -> list[bytes]:
    """The name and those that come with it; none where it comes with another that stands."""
    group = group_of(name)
    at = group.index(name)
    return [] if any(_stands(directory, each) for each in group[:at]) else [*group[at:]]


def _stands(directory: int, name: bytes) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return False
    return True


def _is_early(path: bytes) -> bool:
    return not path.endswith(DONE_SUFFIX) and kind_of(path) is SNAPSHOT
