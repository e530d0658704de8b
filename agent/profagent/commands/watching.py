"""A board's stream for the eye only: decoded in memory, acknowledged, kept nowhere."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from profagent.commands.counter_maps import simulated_map
from profagent.errors import FormatError
from profagent.formats.names import LogKind, LogName, parse_log_name
from profagent.ingest.changes import Entry, JobChanges, LinkLedger
from profagent.ingest.decode import SIMULATED_MARKER, JobDecoder
from profagent.ingest.loss import loss_entry, removal_entry
from profagent.ingest.mirror import checked_path, digest_of
from profagent.link.messages import Acknowledgement, Chunk, Completed, Holding, Loss, Removed, Started

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from profagent.formats.countermap import CounterMap
    from profagent.ingest.changes import Change
    from profagent.link.channel import Channel
    from profagent.link.messages import Board
    from profagent.link.session import FollowedLog, Happened

# Small files that are remembered for the join: tables for good, a `.done` until many others have come.
REMEMBERED_DONES = 512
LARGEST_SNAPSHOT_BYTES = 16 << 20


class RememberedFiles:
    """What decoding may ask for again: tables of layers and recent `.done` files; no data."""

    def __init__(self) -> None:
        self._tables: dict[str, bytes] = {}
        self._dones: OrderedDict[str, bytes] = OrderedDict()

    def keep(self, path: str, name: LogName, data: bytes) -> None:
        """Remember a snapshot."""
        if not name.is_done:
            self._tables[path] = data
            return
        self._dones[path] = data
        if len(self._dones) > REMEMBERED_DONES:
            self._dones.popitem(last=False)

    def read(self, path: str, size: int | None = None) -> bytes | None:
        """A remembered file; None for data."""
        data = self._tables.get(path, self._dones.get(path))
        return data if data is None or size is None else data[:size]

    def names(self) -> list[str]:
        """Nothing: what was shown is not shown again."""
        return []


class _Job:
    def __init__(self, counter_map: CounterMap | None) -> None:
        self.files = RememberedFiles()
        self.decoder = JobDecoder(self.files, counter_map, marked_map=simulated_map())
        self.directory = ""
        self.has_caught_up = False
        self.arriving: dict[int, bytearray] = {}


class Watching:
    """The sink of a capture that keeps nothing. From now on, or `from_start` of each JOB."""

    def __init__(self, counter_map: CounterMap | None, *, from_start: bool) -> None:
        self._counter_map = counter_map
        self._from_start = from_start
        self._jobs: dict[str, _Job] = {}

    async def begin(self, board: Board, address: str) -> None:  # noqa: ARG002 - the sink's interface
        """Choose the simulated board's counter map; what was on the way in an earlier stream comes again."""
        if self._counter_map is None and board.simulated:
            self._counter_map = simulated_map()
        for job in self._jobs.values():
            job.arriving.clear()

    @property
    def has_counter_map(self) -> bool:
        """Whether PMU columns can be shown."""
        return self._counter_map is not None

    def know_job(self, name: str, directory: str) -> None:
        """A JOB that is watched from now on."""
        self._jobs.setdefault(name, _Job(self._counter_map)).directory = directory

    async def holdings(self, logs: Sequence[FollowedLog]) -> list[Holding]:
        """Nothing is held; data from before, and what is no file of the runtime, is not wanted."""
        return [Holding(log.handle, skip=not self._is_wanted(log)) for log in logs]

    async def take(
        self, events: Sequence[Happened], acknowledge: Callable[[Sequence[Acknowledgement]], Awaitable[None]]
    ) -> Sequence[JobChanges]:
        """Decode events; everything is acknowledged, so that the board forgets it."""
        reached: dict[int, Acknowledgement] = {}
        changes = [
            JobChanges(happened.job, self._jobs[happened.job].directory, list(self._mean(happened, reached)))
            for happened in events
            if happened.job in self._jobs
        ]
        if reached:
            await acknowledge(list(reached.values()))
        return changes

    async def change_state(self, name: str, state: str, *, caught_up: bool) -> Sequence[JobChanges]:
        """Pass the state on; what comes after the first time that a JOB has caught up is new."""
        job = self._jobs[name]
        job.has_caught_up = job.has_caught_up or caught_up
        return (JobChanges(name, job.directory, (), state),)

    async def sample_clock(self, channel: Channel) -> None:
        """Nothing is stored, so nothing is compared."""

    def _is_wanted(self, log: FollowedLog) -> bool:
        try:
            path = checked_path(log.path)
        except FormatError:
            return False
        name = parse_log_name(path)
        if name is None:
            return path == SIMULATED_MARKER
        is_of_data = name.is_data or name.is_done or name.kind is LogKind.CONT
        return self._from_start or self._jobs[log.job].has_caught_up or not is_of_data

    def _mean(self, happened: Happened, reached: dict[int, Acknowledgement]) -> Iterable[Change]:
        log, event = happened.log, happened.event
        if isinstance(event, Loss):
            return [LinkLedger(None, loss_entry(event.reason, event.detail, event.lost_bytes))]
        assert log is not None, "only a Loss can be about no log"
        job, path = self._jobs[log.job], checked_path(log.path)
        reached[log.handle] = Acknowledgement(log.handle, log.generation, log.offset, isinstance(event, Completed))
        if isinstance(event, Removed):
            reached.pop(log.handle)
            return [LinkLedger(path, entry) for entry in removal_entry(event.sent, event.size)]
        if log.snapshot:
            return self._snapshot(job, log, path, event)
        match event:
            case Started():
                return job.decoder.begin(path, event.generation, event.offset)
            case Chunk():
                return job.decoder.append(path, event.generation, event.offset, event.data)
        return job.decoder.complete(path, event.generation, event.size, event.digest)

    def _snapshot(self, job: _Job, log: FollowedLog, path: str, event: Started | Chunk | Completed) -> Iterable[Change]:
        match event:
            case Started():
                job.arriving[log.handle] = bytearray()
                return ()
            case Chunk():
                job.arriving[log.handle] += event.data
                if len(job.arriving[log.handle]) > LARGEST_SNAPSHOT_BYTES:
                    job.arriving[log.handle] = bytearray()
                    return [LinkLedger(path, Entry("note", "too-large", "a small file has grown past 16 MiB: not read"))]
                return ()
        data = bytes(job.arriving.pop(log.handle, b""))
        name = parse_log_name(path)
        if name is not None:
            job.files.keep(path, name, data)
        return job.decoder.snapshot(path, event.generation, data, digest_of(data))
