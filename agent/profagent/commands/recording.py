"""A board's stream into a workspace: what is held, and each batch through the commit rule."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from profagent.commands.counter_maps import simulated_map
from profagent.commands.mirroring import BoardMirrors
from profagent.commands.told import profiling_known
from profagent.errors import FormatError, ProtocolError, UnreachableError, UnsupportedBoardError
from profagent.formats.names import is_job_name
from profagent.formats.sampling import interval_of
from profagent.formats.schedule import ByTime
from profagent.ingest.changes import Entry, JobChanges, LinkLedger, TakenBack
from profagent.ingest.commit import commit
from profagent.ingest.disk import has_room
from profagent.ingest.loss import REMOVED_UNSEEN, unseen_removal
from profagent.ingest.mirror import checked_path
from profagent.link.messages import ENDED_STATES, Acknowledgement, Holding
from profagent.store.sessions import SessionStart

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Sequence
    from pathlib import Path

    from profagent.commands.workspace import Workspace
    from profagent.formats.countermap import CounterMap
    from profagent.formats.schedule import Keeping
    from profagent.ingest.changes import Change
    from profagent.ingest.commit import Step
    from profagent.link.channel import Channel
    from profagent.link.messages import Board, Profiling
    from profagent.link.session import FollowedLog, Happened
    from profagent.store.store import Store
    from profagent.store.stored_session import HeldJob, StoredSession

T = TypeVar("T")
CLOCK_EXCHANGES = 5
# Within one exchange a board's two clocks differ by no more than that, unless one was set.
CLOCK_DRIFT_US = 1_000
# So much may wait for the next batch, which a board need not ever send.
MOST_COMPLAINTS = 1_000


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """How a recording is kept. `now_us` is the host's wall clock; `job` as of SessionStart.

    `keeping` chooses inferences; with `drops`, those passed over do not stay in the mirror either.
    """

    now_us: Callable[[], int]
    source: str = "record"
    counter_map: CounterMap | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    always_new: bool = False
    job: str = ""
    keeping: Keeping | None = None
    drops: bool = False


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
        """`reached` is called after each step of the commit rule."""
        self._workspace = workspace
        self._store = store
        self._options = options
        self._reached = reached
        self._identity = ""
        self._opened: BoardMirrors | None = None
        self._session: StoredSession | None = None
        self._directories: dict[str, str] = {}
        self._told: dict[str, Profiling] = {}
        self._complaints: list[JobChanges] = []
        self._begun_jobs: set[str] = set()

    async def begin(self, board: Board, address: str) -> None:
        """Begin or go on with the board's session; on a later stream, see that it is the same board."""
        identity = board.identity or f"address {address}"
        if self._identity:
            if identity != self._identity:
                raise UnreachableError(
                    f"another board answers at {address}: {identity}, not {self._identity}",
                    hint="check the address; the capture goes on when its own board is back",
                )
            self._mirrors.begin_stream()
            return
        counter_map = self._options.counter_map or (simulated_map() if board.simulated else None)
        start = self._session_start(board, identity, address, counter_map)
        options = self._options
        self._opened = BoardMirrors(
            self._workspace, identity, counter_map, keeping=options.keeping, drops=options.drops
        )
        self._session = await self._store.begin(start)
        self._begun_jobs = await self._session.begun_jobs()
        # Bytes that were written to the mirror and never committed.
        await asyncio.to_thread(self._opened.cut, await self._session.growing_logs())
        self._identity = identity

    @property
    def refused(self) -> Mapping[str, UnsupportedBoardError]:
        """JOBs that turned out to be of another SoC."""
        return self._opened.refused if self._opened is not None else {}

    def has_begun(self, job: str) -> bool:
        """Whether the session that goes on holds a part of this JOB already."""
        return job in self._begun_jobs

    async def sample_clock(self, channel: Channel) -> None:
        """Store the clocks' difference, from the exchange with the shortest round trip.

        One during which either wall clock was set tells nothing; where all are so, none is stored.
        """
        samples = []
        for _ in range(CLOCK_EXCHANGES):
            sent_us = self._options.now_us()
            received, answered = await channel.clocks()
            back_us = self._options.now_us()
            inside_us = answered.monotonic_us - received.monotonic_us
            round_trip_us = (back_us - sent_us) - inside_us
            offset_us = (received.wall_us - sent_us + answered.wall_us - back_us) // 2
            is_steady = abs(answered.wall_us - received.wall_us - inside_us) <= CLOCK_DRIFT_US
            if is_steady and round_trip_us >= 0:
                samples.append((round_trip_us, offset_us, sent_us))
        if samples:
            round_trip_us, offset_us, host_us = min(samples)
            await self.session.add_clock_sample(host_us, offset_us, round_trip_us)

    async def has_room(self) -> bool:
        """Whether the workspace's disk has room for a batch."""
        return await asyncio.to_thread(has_room, self._workspace.root)

    def know_job(self, name: str, directory: str, profiling: Profiling | None = None) -> None:
        """Note where a JOB stands and what it was to record; ProtocolError for a name that no JOB has."""
        if not is_job_name(name):
            raise ProtocolError(f"the board names a JOB {name[:40]!r}", hint="upgrade profagentd on the board")
        self._directories[name] = directory
        if profiling is not None:
            self._told[name] = profiling
            self._complaints.append(JobChanges(name, directory, (profiling_known(profiling),)))

    async def holdings(self, logs: Sequence[FollowedLog]) -> list[Holding]:
        """What is held of each announced log."""
        wanted: dict[str, dict[str, FollowedLog]] = {}
        answers: list[Holding] = []
        for log in logs:
            if log.job in self.refused:
                answers.append(Holding(log.handle, skip=True))
                continue
            try:
                wanted.setdefault(log.job, {})[checked_path(log.path)] = log
            except FormatError as error:
                self.note(log.job, Entry("loss", "bad-path", str(error)))
                answers.append(Holding(log.handle, skip=True))
        for job, by_path in wanted.items():
            await self._know_interval(job)
            held = await self.session.held(job, list(by_path))
            holdings, lost = await asyncio.to_thread(self._mirrors.compare, job, by_path, held)
            answers += holdings
            for entry in lost:
                self.note(job, entry)
        if len(self._complaints) >= MOST_COMPLAINTS:
            await self.session.apply(self._take_complaints())
        return answers

    async def _know_interval(self, job: str) -> None:
        """The interval that was told first stays, also over a restart: steps of a schedule are counted by it."""
        if self._options.keeping is None or job in self._mirrors.intervals:
            return
        interval = await self.session.told_interval(job)
        told = self._told.get(job)
        self._mirrors.intervals[job] = interval_of(told.interval) if interval is None and told is not None else interval

    async def take(
        self, events: Sequence[Happened], acknowledge: Callable[[Sequence[Acknowledgement]], Awaitable[None]]
    ) -> Sequence[JobChanges]:
        """Take events through the commit rule; returns what they meant. Raises StoreError, ProtocolError."""
        batch = _EventBatch(self, events, acknowledge)
        try:
            if self._reached is None:
                changes = await commit(batch, self.session)
            else:
                changes = await commit(batch, self.session, reached=self._reached)
        except BaseException:
            # What was decoded may not have been committed: it is decoded again, from what was.
            self._mirrors.forget()
            raise
        await _to_the_end(self._mirrors.drop)
        return changes

    async def change_state(self, name: str, state: str, *, caught_up: bool) -> Sequence[JobChanges]:
        """Write a JOB's state; when all of an ended one has come, note what never got complete."""
        has_ended = caught_up and state in ENDED_STATES
        changes: list[Change] = [] if state == "removed" else [TakenBack(REMOVED_UNSEEN)]
        if has_ended:
            unsettled, orphans = await self.session.unsettled_logs(name), await self.session.orphan_dones(name)
            if isinstance(self._options.keeping, ByTime):
                unsettled = sorted({*unsettled, *await self.session.undecoded_logs(name)})
            changes += await _to_the_end(self._mirrors.assess, name, unsettled, orphans)
        directory = self._directories.get(name, "")
        batches = [*self._take_complaints(), JobChanges(name, directory, changes, state, caught_up)]
        await self.session.apply(batches)
        if has_ended:
            await self.session.note_full_rings(name)
            await self.session.note_samples(name)
        return batches

    async def listed(self, names: Collection[str]) -> Sequence[JobChanges]:
        """Held JOBs that the board has no longer are over; what that means is in the ledger.

        Returns the changes of those that this session began.
        """
        batches: list[JobChanges] = []
        ours = await self.session.begun_jobs()
        for job in await self.session.standing_jobs():
            if job.name not in names:
                changes = await self._gone_unseen(job, is_ours=job.name in ours)
                batches += changes if job.name in ours else ()
        return batches

    async def _gone_unseen(self, job: HeldJob, *, is_ours: bool) -> Sequence[JobChanges]:
        self._directories.setdefault(job.name, job.directory)
        if not (job.caught_up and job.state in ENDED_STATES):
            unsettled = len(await self.session.unsettled_logs(job.name))
            entry = unseen_removal(is_ours=is_ours, is_whole=job.caught_up, incomplete_logs=unsettled)
            self.note(job.name, entry)
        return await self.change_state(job.name, "removed", caught_up=True)

    async def end(self) -> None:
        """Mark the session as ended and close the mirrors' files."""
        if self._session is not None:
            await self._session.apply(self._take_complaints())
            for job in self._directories:
                await self._session.note_samples(job)
            await self._session.end(self._options.now_us())
            self._mirrors.close()

    async def write(self, events: Sequence[Happened]) -> tuple[list[JobChanges], list[Acknowledgement]]:
        """Put events into the mirrors: what they mean, and what can be acknowledged once that is durable."""
        by_job, reached = await _to_the_end(self._mirrors.take, events)
        batches = [JobChanges(job, self._directories.get(job, ""), changes) for job, changes in by_job.items()]
        return [*self._take_complaints(), *batches], reached

    async def sync(self) -> None:
        """Make the mirrors durable."""
        await _to_the_end(self._mirrors.sync)

    @property
    def is_begun(self) -> bool:
        """Whether the board was reached."""
        return self._session is not None

    @property
    def session(self) -> StoredSession:
        """The session that is written."""
        assert self._session is not None, "begin() comes first"
        return self._session

    @property
    def mirror(self) -> Path:
        """The folder of the board's mirrored JOBs."""
        return self._mirrors.root

    @property
    def _mirrors(self) -> BoardMirrors:
        assert self._opened is not None, "begin() comes first"
        return self._opened

    def _session_start(self, board: Board, identity: str, address: str, counter_map: CounterMap | None) -> SessionStart:
        return SessionStart(
            identity=identity,
            hostname=board.hostname,
            board_model=board.model,
            source=self._options.source,
            address=address,
            started_us=self._options.now_us(),
            simulated=board.simulated,
            daemon_version=board.daemon_version,
            sdk_version=board.sdk_version,
            counter_map=None if counter_map is None else counter_map.name,
            labels=self._options.labels,
            always_new=self._options.always_new,
            keeping=None if self._options.keeping is None else str(self._options.keeping),
            job=self._options.job,
        )

    def note(self, job: str, entry: Entry) -> None:
        """Write an entry about a JOB with what is written next."""
        change = LinkLedger(None, entry)
        self._complaints.append(JobChanges(job, self._directories.get(job, ""), (change,)))

    def _take_complaints(self) -> list[JobChanges]:
        complaints, self._complaints = self._complaints, []
        return complaints


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
        changes, self._reached = await self._recording.write(self._events)
        return changes

    async def sync(self) -> None:
        await self._recording.sync()

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
