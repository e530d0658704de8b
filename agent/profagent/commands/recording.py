"""A board's stream into a workspace: what is held, and each batch through the commit rule."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from profagent.commands.counter_maps import simulated_map
from profagent.errors import FormatError, ProtocolError, UnreachableError
from profagent.formats.names import is_job_name
from profagent.ingest.changes import Entry, JobChanges, LinkLedger, LogRemoved
from profagent.ingest.commit import commit
from profagent.ingest.decode import JobDecoder
from profagent.ingest.loss import loss_entry, removal_entry
from profagent.ingest.mirror import JobMirror, checked_path, syncfs
from profagent.link.messages import ENDED_STATES, Acknowledgement, Chunk, Completed, Holding, Loss, Removed, Started

from profagent.store.sessions import SessionStart
from profagent.store.writer import path_from_sql

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence
    from pathlib import Path

    from profagent.commands.workspace import Workspace
    from profagent.formats.countermap import CounterMap
    from profagent.ingest.changes import Change
    from profagent.ingest.commit import Step
    from profagent.link.channel import Channel
    from profagent.link.messages import Board
    from profagent.link.session import FollowedLog, Happened
    from profagent.store.store import HeldLog, Store

T = TypeVar("T")
CLOCK_EXCHANGES = 5


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """How a recording is kept. `now_us` is the host's wall clock."""

    now_us: Callable[[], int]
    source: str = "record"
    counter_map: CounterMap | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    always_new: bool = False


class _Job:
    """One JOB's mirror and decoder."""

    def __init__(self, mirror: JobMirror, counter_map: CounterMap | None) -> None:
        self.mirror = mirror
        self.decoder = JobDecoder(mirror, counter_map, marked_map=simulated_map())


class Recording:
    """Keeps what a board sends; the sink of a capture into a workspace."""

    def __init__(
        self,
        workspace: Workspace,
        store: Store,
        options: RecordingOptions,
        *,
        reached: Callable[[Step], None] | None = None,
    ) -> None:
        self._workspace = workspace
        self._store = store
        self._options = options
        self._reached = reached
        self._identity = ""
        self._counter_map = options.counter_map
        self._jobs: dict[str, _Job] = {}
        self._directories: dict[str, str] = {}
        self._complaints: list[JobChanges] = []

    async def begin(self, board: Board, address: str) -> None:
        """Begin or go on with the board's session; on a later stream, see that it is the same board."""
        identity = board.identity or f"address {address}"
        if self._identity:
            if identity != self._identity:
                raise UnreachableError(
                    f"another board answers at {address}: {identity}, not {self._identity}",
                    hint="check the address; the capture goes on when its own board is back",
                )
            return
        self._identity = identity
        if self._counter_map is None and board.simulated:
            self._counter_map = simulated_map()
        await self._store.begin(
            SessionStart(
                identity=identity,
                hostname=board.hostname,
                board_model=board.model,
                source=self._options.source,
                address=address,
                started_us=self._options.now_us(),
                simulated=board.simulated,
                daemon_version=board.daemon_version,
                sdk_version=board.sdk_version,
                counter_map=None if self._counter_map is None else self._counter_map.name,
                labels=self._options.labels,
                always_new=self._options.always_new,
            )
        )
        await self._cut_to_database()

    async def sample_clock(self, channel: Channel) -> None:
        """Store the clocks' difference, from the exchange with the shortest round trip."""
        samples = []
        for _ in range(CLOCK_EXCHANGES):
            sent_us = self._options.now_us()
            received, answered = await channel.clocks()
            back_us = self._options.now_us()
            round_trip_us = (back_us - sent_us) - (answered.wall_us - received.wall_us)
            offset_us = (received.wall_us - sent_us + answered.wall_us - back_us) // 2
            samples.append((round_trip_us, offset_us, sent_us))
        round_trip_us, offset_us, host_us = min(samples)
        await self._store.execute(
            "INSERT INTO clock_sample VALUES (?, ?, ?, ?)", (self._store.session, host_us, offset_us, round_trip_us)
        )

    def know_job(self, name: str, directory: str) -> None:
        """Note where a JOB stands on the board; ProtocolError for a name that no JOB has."""
        if not is_job_name(name):
            raise ProtocolError(f"the board names a JOB {name[:40]!r}", hint="upgrade profagentd on the board")
        self._directories[name] = directory

    async def _cut_to_database(self) -> None:
        """Drop bytes that were written to the mirror and never committed."""
        rows = await self._store.query(
            "SELECT j.name, l.path, l.offset FROM log l JOIN job j USING (job)"
            " WHERE j.board = ? AND l.complete = 0 AND l.kind IN ('aicore', 'aicpu', 'acl_api')",
            (self._store.board,),
        )
        await asyncio.to_thread(self._cut, rows)

    async def holdings(self, logs: Sequence[FollowedLog]) -> list[Holding]:
        """What is held of each announced log."""
        wanted: dict[str, dict[str, FollowedLog]] = {}
        answers: list[Holding] = []
        for log in logs:
            try:
                wanted.setdefault(log.job, {})[checked_path(log.path)] = log
            except FormatError as error:
                self._complain(log.job, "bad-path", str(error))
                answers.append(Holding(log.handle, skip=True))
        for job, by_path in wanted.items():
            held = await self._store.held(job, list(by_path))
            answers += await asyncio.to_thread(self._compare, job, by_path, held)
        return answers

    async def take(
        self, events: Sequence[Happened], acknowledge: Callable[[Sequence[Acknowledgement]], Awaitable[None]]
    ) -> Sequence[JobChanges]:
        """Take events through the commit rule; returns what they meant."""
        batch = _EventBatch(self, events, acknowledge)
        if self._reached is None:
            return await commit(batch, self._store)
        return await commit(batch, self._store, reached=self._reached)

    async def change_state(self, name: str, state: str, *, caught_up: bool) -> Sequence[JobChanges]:
        """Write a JOB's state; when all of an ended one has come, note what never got complete."""
        directory = self._directories.get(name, "")
        if not (caught_up and state in ENDED_STATES):
            await self._store.apply([JobChanges(name, directory, (), state)])
            return ()
        unsettled, orphans = await self._store.unsettled_logs(name), await self._store.orphan_dones(name)
        changes = await _to_the_end(lambda: list(self._job(name).decoder.end(unsettled, orphans)))
        batch = (JobChanges(name, directory, changes, state),)
        await self._store.apply(batch)
        await self._store.note_full_rings(name)
        return batch

    async def end(self) -> None:
        """Mark the session as ended and close the mirrors' files."""
        if self._identity:
            await self._store.end(self._options.now_us())
        for job in self._jobs.values():
            job.mirror.close()

    def mean(self, events: Sequence[Happened]) -> tuple[list[JobChanges], list[Acknowledgement]]:
        """Write events to the mirrors; returns what they mean and what can be acknowledged once that is durable."""
        by_job: dict[str, list[Change]] = {}
        reached: dict[int, Acknowledgement] = {}
        for happened in events:
            changes = by_job.setdefault(happened.job, [])
            changes.extend(self._mean(happened, reached))
        complaints, self._complaints = self._complaints, []
        batches = [JobChanges(job, self._directories.get(job, ""), changes) for job, changes in by_job.items() if job]
        return [*complaints, *batches], list(reached.values())

    def sync(self) -> None:
        """Make the mirrors durable."""
        syncfs(self._workspace.root)

    def _mean(self, happened: Happened, reached: dict[int, Acknowledgement]) -> Iterable[Change]:
        log, event = happened.log, happened.event
        if isinstance(event, Loss):
            path = None if log is None else checked_path(log.path)
            return [LinkLedger(path, loss_entry(event.reason, event.detail, event.lost_bytes))]
        assert log is not None, "only a Loss can be about no log"
        job, path = self._job(log.job), checked_path(log.path)
        match event:
            case Started():
                return self._started(job, log, path, event)
            case Chunk():
                job.mirror.append(path, event.offset, event.data, snapshot=log.snapshot)
                if not log.snapshot:
                    reached[log.handle] = Acknowledgement(log.handle, log.generation, log.offset, complete=False)
                    return list(job.decoder.append(path, event.generation, event.offset, event.data))
            case Completed():
                reached[log.handle] = Acknowledgement(log.handle, event.generation, event.size, complete=True)
                return self._completed(job, log, path, event)
            case Removed():
                entries = removal_entry(event.sent, event.size)
                return [LogRemoved(path), *(LinkLedger(path, entry) for entry in entries)]
        return []

    def _started(self, job: _Job, log: FollowedLog, path: str, event: Started) -> Iterable[Change]:
        job.mirror.begin(path, event.generation, event.offset, snapshot=log.snapshot)
        changes: list[Change] = [] if log.snapshot else list(job.decoder.begin(path, event.generation, event.offset))
        if event.reason in ("different", "recreated") and not log.snapshot:
            detail = "the board's file is not the one that was copied before: copied anew, the earlier copy is set aside"
            changes.append(LinkLedger(path, Entry("note", event.reason, detail)))
        return changes

    def _completed(self, job: _Job, log: FollowedLog, path: str, event: Completed) -> Iterable[Change]:
        if log.snapshot:
            content = job.mirror.finish_snapshot(path)
            changes = [] if content is None else list(job.decoder.snapshot(path, event.generation, content, event.digest))
        else:
            changes = list(job.decoder.complete(path, event.generation, event.size, event.digest))
        if job.mirror.prefix_digest(path, event.size) != event.digest:
            raise ProtocolError(
                f"the copy of {log.job}/{path} does not have the board's digest",
                hint="check the disk of the host; the log is copied anew",
            )
        return changes

    def _compare(self, job: str, by_path: dict[str, FollowedLog], held: dict[str, HeldLog]) -> list[Holding]:
        mirror = self._job(job).mirror
        return [self._holding(mirror, job, path, log, held.get(path)) for path, log in by_path.items()]

    def _holding(
        self, mirror: JobMirror, job: str, path: str, log: FollowedLog, held: HeldLog | None
    ) -> Holding:
        if held is None or held.generation == 0:
            return Holding(log.handle)
        digest = mirror.prefix_digest(path, held.offset)
        if digest is None:
            self._complain(job, "mirror-changed", f"the mirror's {path} lost bytes that were committed: copied anew")
            return Holding(log.handle, held.generation)
        return Holding(log.handle, held.generation, held.offset, digest)

    def _complain(self, job: str, reason: str, detail: str) -> None:
        grade = "loss" if reason == "bad-path" else "note"
        change = LinkLedger(None, Entry(grade, reason, detail))
        self._complaints.append(JobChanges(job, self._directories.get(job, ""), (change,)))

    def _job(self, name: str) -> _Job:
        job = self._jobs.get(name)
        if job is None:
            job = self._jobs[name] = _Job(self._workspace.job_mirror(self._identity, name), self._counter_map)
        return job

    def _cut(self, rows: Sequence[tuple[str, str | bytes, int]]) -> None:
        for name, path, offset in rows:
            self._job(name).mirror.cut(path_from_sql(path), offset)

    @property
    def mirror(self) -> Path:
        """The folder of the board's mirrored JOBs."""
        return self._workspace.board_mirror(self._identity)


class _EventBatch:
    """Events that arrived together, as the commit rule sees them."""

    def __init__(
        self,
        recording: Recording,
        events: Sequence[Happened],
        acknowledge: Callable[[Sequence[Acknowledgement]], Awaitable[None]],
    ) -> None:
        self._recording = recording
        self._events = events
        self._acknowledge = acknowledge
        self._reached: list[Acknowledgement] = []

    async def write(self) -> Sequence[JobChanges]:
        changes, self._reached = await _to_the_end(self._recording.mean, self._events)
        return changes

    async def sync(self) -> None:
        await _to_the_end(self._recording.sync)

    async def acknowledge(self) -> None:
        if self._reached:
            await self._acknowledge(self._reached)


async def _to_the_end(function: Callable[..., T], *arguments: object) -> T:
    """Run on a thread; a cancellation waits for it, so that nobody closes a file that is being written."""
    running = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
