"""Which logs a JOB directory holds, in pages that a worker thread fetches."""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from profagentd.logs import DATA, DATA_DIRECTORY, DONE_SUFFIX, SNAPSHOT, done_of, ended_by, kind_of
from profagentd.opening import Gone, JobGone, NotAFile, OpenJob, Unreadable, in_data, open_below, open_job

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from profagentd.logs import LogKind
    from profagentd.opening import DirectoryId, Place


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
    is_last: bool = True
    is_job_gone: bool = False  # nothing was looked at: the directory is not there


class Walk:
    """Everything in a JOB directory, a page at a time.

    The small files that give names to others come first. A `.done` comes right after its data, so that a host need not
    take up again what it has put aside; data that is made while the walk goes on may leave its `.done` unseen.
    """

    def __init__(self, place: Place, directory: DirectoryId | None = None) -> None:
        self._place = place
        self._directory = directory
        self._paths = _paths(place, directory)

    def page(self, limit: int) -> Page:
        """The next `limit` names, looked at. One caller at a time."""
        try:
            paths = list(itertools.islice(self._paths, limit))
        except JobGone:
            return Page(is_job_gone=True)
        except OSError as error:
            return Page(unreadable=error.strerror)
        page = look(self._place, paths, self._directory)
        page.is_last = len(paths) < limit
        return page


def look(place: Place, paths: Iterable[bytes], directory: DirectoryId | None = None) -> Page:
    """The status of these paths inside the JOB at `place`; snapshots come before the data that they explain."""
    page = Page()
    try:
        with OpenJob(place, directory) as files:
            for path in paths:
                _look_at(files, path, page)
    except JobGone:
        return Page(is_job_gone=True)
    page.logs.sort(key=lambda each: each.kind is DATA or each.path.endswith(DONE_SUFFIX))
    return page


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


def _paths(place: Place, directory: DirectoryId | None) -> Iterator[bytes]:
    yield from _of_job(place, directory, early=True)
    for early in (True, False):
        # A JOB has its data directory a moment after itself, and may have something else in its place.
        with suppress(FileNotFoundError, NotADirectoryError):
            yield from map(in_data, _of_data(place, directory, early=early))
    yield from _of_job(place, directory, early=False)


def _of_job(place: Place, directory: DirectoryId | None, *, early: bool) -> Iterator[bytes]:
    """Names in the JOB's own directory, all but that of its data."""
    yield from _of_directory(open_job(place, directory), early=early, without=DATA_DIRECTORY)


def _of_data(place: Place, directory: DirectoryId | None, *, early: bool) -> Iterator[bytes]:
    job = open_job(place, directory)
    try:
        data = open_below(job, DATA_DIRECTORY)
    finally:
        os.close(job)
    yield from _of_directory(data, early=early)


def _of_directory(descriptor: int, *, early: bool, without: bytes = b"") -> Iterator[bytes]:
    """Names in a directory, which is closed, all but a subdirectory of the name `without`."""
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                name = os.fsencode(entry.name)
                is_without = name == without and entry.is_dir(follow_symlinks=False)
                if _is_early(name) == early and not is_without:
                    yield from _with_done(descriptor, name)
    finally:
        os.close(descriptor)


def _with_done(directory: int, name: bytes) -> Iterator[bytes]:
    """The name, and that of the `.done` that it may have; nothing for a `.done` that comes with its data."""
    ended = ended_by(name)
    if ended is None or not _stands(directory, ended):
        yield name
    if kind_of(name) is DATA:
        yield done_of(name)


def _stands(directory: int, name: bytes) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return False
    return True


def _is_early(path: bytes) -> bool:
    return not path.endswith(DONE_SUFFIX) and kind_of(path) is SNAPSHOT
