"""The JOBs of one board that are in use: each with its mirror's open files and the state of its decoder."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from profagent.ingest.decode import JobDecoder
from profagent.ingest.mirror import checked_path
from profagent.link.messages import Chunk
from profagent.store.counter_maps import simulated_map

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from profagent.formats.countermap import CounterMap
    from profagent.formats.schedule import Keeping
    from profagent.ingest.mirror import JobMirror
    from profagent.link.session import Happened
    from profagent.store.workspace import Workspace

# JOBs with open files and decoding state; those of any other are opened and built again when it goes on.
REMEMBERED_JOBS = 16


class OpenJob(NamedTuple):
    """One JOB's mirror and decoder."""

    mirror: JobMirror
    decoder: JobDecoder


class OpenJobs:
    """The latest JOBs of a board by name; at most REMEMBERED_JOBS."""

    def __init__(
        self, workspace: Workspace, identity: str, counter_map: CounterMap | None, keeping: Keeping | None
    ) -> None:
        self._workspace = workspace
        self._identity = identity
        self._counter_map = counter_map
        self._keeping = keeping
        # The intervals of JOBs whose programs' acl.json is known, set before anything of them comes.
        self.intervals: dict[str, int | None] = {}
        self._jobs: OrderedDict[str, OpenJob] = OrderedDict()

    def __len__(self) -> int:
        return len(self._jobs)

    def of(self, name: str) -> OpenJob:
        """The JOB, opened where it is not in use."""
        job = self._jobs.get(name)
        if job is None:
            mirror, interval = self._workspace.job_mirror(self._identity, name), self.intervals.get(name)
            decoder = JobDecoder(
                mirror, self._counter_map, marked_map=simulated_map(), keeping=self._keeping, interval=interval
            )
            job = self._jobs[name] = OpenJob(mirror, decoder)
            if len(self._jobs) > REMEMBERED_JOBS:
                self._jobs.popitem(last=False)[1].mirror.close()
        self._jobs.move_to_end(name)
        return job

    def read_ahead(self, events: Iterable[Happened], *, passing_over: Container[str]) -> None:
        """Let what begins with these events be read together, but of some JOBs."""
        beginnings: dict[str, list[tuple[str, bytes]]] = {}
        for name, log, event in ((each.job, each.log, each.event) for each in events):
            if isinstance(event, Chunk) and log is not None and not log.snapshot and not event.offset:
                beginnings.setdefault(name, []).append((checked_path(log.path), event.data))
        for name, logs in beginnings.items():
            if name not in passing_over:
                self.of(name).decoder.read_ahead(logs)

    def begin_stream(self) -> None:
        """A stream of the board begins."""
        for job in self._jobs.values():
            job.decoder.begin_stream()

    def settle(self) -> None:
        """Have what was written read back from now on."""
        for job in self._jobs.values():
            job.mirror.settle()

    def close(self, name: str) -> None:
        """Close the JOB's files and drop what is in memory of it."""
        self._jobs.pop(name).mirror.close()

    def close_all(self) -> None:
        """Close all files and drop all that is in memory."""
        while self._jobs:
            self._jobs.popitem()[1].mirror.close()
