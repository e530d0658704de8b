"""What stands in a JOB directory, as retention sees it. Blocks: for a thread of its root."""

from __future__ import annotations

import heapq
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable

from profagentd.logs import DATA_DIRECTORY, LogKind, api_model, done_of, ended_by, is_table, kind_of
from profagentd.opening import (
    Fingerprint,
    Gone,
    NotAFile,
    OpenJob,
    Place,
    Unreadable,
    fingerprint,
    in_data,
    open_directory,
)
from profagentd.retention import JobFacts, Part, Stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    IsDelivered = Callable[[Place, bytes, Fingerprint], bool]

# Logs of one JOB that are weighed in one go, oldest first.
LOGS_LIMIT = 10_000
# What was written so lately may be written still.
SETTLE_NS = 1_000_000_000

_CONTINUATION = re.compile(rb"cont\.\d+\..*\d", re.DOTALL)


def part_of(path: bytes) -> Part | None:
    """What the runtime's file at `path` inside a JOB is to it; None for what the runtime does not write."""
    directory, _, name = path.rpartition(b"/")
    if is_table(path):
        return Part.TABLE
    if directory != DATA_DIRECTORY:
        return None
    data = ended_by(name) or name
    if kind_of(data) is LogKind.DATA:
        return Part.WORK if api_model(data) is None else Part.CALLS
    return Part.WORK if _CONTINUATION.fullmatch(name) else None


@dataclass(frozen=True)
class Look:
    """How a JOB is looked at: the wall clock now, and who has what."""

    now_ns: int
    is_delivered: IsDelivered
    with_undelivered: bool

    def facts(self, place: Place, is_over: bool) -> JobFacts:
        """Everything in the JOB; of very many logs the oldest. OSError when it cannot be read."""
        with OpenJob(place) as files:
            names = list(_paths(place))
            present = set(names)
            logs = (self._stored(place, files, path, present) for path in names if not _comes_with(path, present))
            known = [each for each in logs if each is not None]
        is_all = len(known) + sum(_comes_with(path, present) for path in names) == len(names)
        if len(known) > LOGS_LIMIT:
            known, is_all = heapq.nsmallest(LOGS_LIMIT, known, key=lambda each: each.changed_ns), False
        return JobFacts(known, is_all, is_over)

    def _stored(self, place: Place, files: OpenJob, path: bytes, present: set[bytes]) -> Stored | None:
        part = part_of(path)
        if part is None:
            return None
        done = done_of(path)
        paths = [path, done] if kind_of(path) is LogKind.DATA and done in present else [path]
        try:
            seen = tuple((each, fingerprint(files.status(each))) for each in paths)
        except (Gone, NotAFile, Unreadable):
            return None
        if len(paths) == 1 and kind_of(path) is LogKind.DATA and not seen[0][1].size:
            # Models that are not built for profiling leave such; nothing is in it (format page 2.1).
            return Stored(place, seen, Part.TABLE, is_complete=True, is_delivered=True)
        is_delivered = all(self.is_delivered(place, each, found) for each, found in seen)
        is_complete = is_delivered or (self.with_undelivered and self._is_complete(files, path, seen))
        return Stored(place, seen, part, is_complete, is_delivered)

    def _is_complete(self, files: OpenJob, path: bytes, seen: tuple[tuple[bytes, Fingerprint], ...]) -> bool:
        """Whether it has stopped changing, by a wall clock that may jump, and a data log's `.done` parses."""
        if any(abs(self.now_ns - each.mtime_ns) < SETTLE_NS for _, each in seen):
            return False
        return kind_of(path) is not LogKind.DATA or files.done_length(path) is not None


def _comes_with(path: bytes, present: set[bytes]) -> bool:
    """Whether it is a `.done` that goes with its data."""
    ended = ended_by(path)
    return ended is not None and ended in present


def _paths(place: Place) -> Iterator[bytes]:
    """Every name in the JOB and in its data directory, but that directory itself."""
    for name, is_directory in _entries(place):
        if name != DATA_DIRECTORY or not is_directory:
            yield name
            continue
        data = Place(place.root, os.path.join(place.path, DATA_DIRECTORY))
        yield from (in_data(below) for below, _ in _entries(data))


def _entries(place: Place) -> list[tuple[bytes, bool]]:
    descriptor = open_directory(place)
    try:
        with os.scandir(descriptor) as entries:
            return [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
    finally:
        os.close(descriptor)
