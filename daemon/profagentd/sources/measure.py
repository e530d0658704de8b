"""How much a JOB holds: a look through its directories, a slice at a time."""

from __future__ import annotations

import itertools
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from profagentd.errors import Fault, Refusal
from profagentd.follow.scan import entries
from profagentd.loop import in_time
from profagentd.sources.job import DATA, DATA_DIRECTORY, JobGone, group_of, kind_of, open_below, open_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagentd.follow.registry import Job
    from profagentd.loop import Clock
    from profagentd.sources.job import DirectoryId, Place

# It is looked for so long, and for each slice of it.
LOOK_S = 4.0
PATIENCE_S = 1.0
# Files that are looked at in one go.
SLICE_FILES = 500
# Of an inference there are the data of two units and their `.done`s; of other logs one of each.
_GROUP_OF_INFERENCE = 4


class Measure:
    """What was counted of a JOB. Of an inference nothing is kept: it is counted where its first unit's data stand."""

    def __init__(self, place: Place, directory: DirectoryId | None = None) -> None:
        self.logs = 0
        self.bytes = 0
        self.inferences = 0
        self.is_all = False
        self._counts = self._count(place, directory)

    def look(self, files: int) -> None:
        """Count so many files more. Blocks; JobGone, OSError."""
        self.is_all = sum(1 for _ in itertools.islice(self._counts, files)) < files

    def _count(self, place: Place, directory: DirectoryId | None) -> Iterator[None]:
        job = open_job(place, directory)
        try:
            yield from self._count_in(job, without=DATA_DIRECTORY)
            with suppress(FileNotFoundError, NotADirectoryError):
                data = open_below(job, DATA_DIRECTORY)
                try:
                    yield from self._count_in(data)
                finally:
                    os.close(data)
        finally:
            os.close(job)

    def _count_in(self, directory: int, without: bytes = b"") -> Iterator[None]:
        for name, status in entries(directory, without):
            if stat.S_ISREG(status.st_mode):
                self.logs += 1
                self.bytes += status.st_size
                self.inferences += _is_first_data(directory, name)
            yield


class Measurer:
    """Measures JOBs; one whose root does not answer is not waited for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def measure(self, job: Job | None) -> Measure:
        """What the JOB holds, or has so far been found to hold. Raises Refusal when there is none, or it is gone."""
        if job is None:
            raise Refusal(Fault.NOT_FOUND, "there is no such JOB")
        measure, root = Measure(job.place, job.directory), job.place.root
        until = self._clock.monotonic() + LOOK_S
        try:
            while not measure.is_all and self._clock.monotonic() < until:
                await in_time(root, measure.look, SLICE_FILES, patience_s=PATIENCE_S)
        except JobGone:
            raise Refusal(Fault.NOT_FOUND, f"{job.name} is gone") from None
        except OSError:
            measure.is_all = False
        return measure


def _is_first_data(directory: int, name: bytes) -> bool:
    """Whether it is the data of an inference's only unit, or of the first of both."""
    group = group_of(name)
    if kind_of(name) is not DATA or len(group) != _GROUP_OF_INFERENCE:
        return False
    if name == group[0]:
        return True
    try:
        return not stat.S_ISREG(os.stat(group[0], dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return True
