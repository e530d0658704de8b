"""Recording of a board's stream into a workspace: answers about held logs, and batches through the commit rule."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from msgspec.structs import replace

from profagent import ledger
from profagent.errors import FormatError, UnreachableError, UnsupportedBoardError
from profagent.files import finished, to_the_end
from profagent.formats.names import display_text
from profagent.formats.sampling import interval_of
from profagent.ingest.changes import JobChanges, LinkLedger, LogRemoved, NamesAnnounced, ProfilingKnown
from profagent.ingest.feed import Feed
from profagent.ingest.source import SOURCES, no_decoder, without_rows
from profagent.ledger import Entry, checked_path, open_removal, unfollowed_job_removal, unfollowed_removal
from profagent.limits import ANSWER_S, INFERENCES_PER_LOOK, MOST_REMARKS, RING_STEP_S
from profagent.link.clock_difference import clock_difference
from profagent.link.coverage import Standing
from profagent.link.messages import ENDED_STATES, JOB_SOURCE, OPEN, REMOVED, Acknowledgement, Holding
from profagent.record.mirroring import BoardMirrors
from profagent.store.inference_columns import ColumnReader
from profagent.store.ring import Ring
from profagent.store.writer import Applied
from profagent.tables.table import time_text

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Collection, Mapping, Sequence
    from pathlib import Path

    from profagent.ingest.changes import Change
    from profagent.ingest.feed import Arrival
    from profagent.link.channel import Channel
    from profagent.link.coverage import Coverage
    from profagent.link.messages import Board, FollowedLog, JobStatus, Received
    from profagent.record.mirroring import BatchLogs
    from profagent.record.options import RecordingOptions
    from profagent.store.inference_columns import InferenceColumns
    from profagent.store.store import HeldJob, HeldLog, Store, StoredSession
    from profagent.store.workspace import Workspace

    Acknowledge = Callable[[Sequence[Acknowledgement]], Awaitable[None]]


# Share of free pages from which on a flight recorder rewrites the database at its end.
WORTHWHILE_FREE = 0.5


class Step(Enum):
    """Step of the commit rule that a batch has just passed, in this order. Acknowledgements are sent a little later."""

    MIRRORED = "mirrored"
    SYNCED = "synced"
    COMMITTED = "committed"
    ACKNOWLEDGED = "acknowledged"
    # Of a flight recorder, now and then behind a batch: figures in the place of records, and then files removed.
    THINNED = "thinned"
    REMOVED = "removed"


class Recording:
    """Sink of a capture that stores a board's stream in a workspace.

    Its methods are called one at a time on the event loop; decoding and the database run on the store's thread. One
    batch at most is being committed while the next one is decoded.
    """

    def __init__(
        self,
        workspace: Workspace,
        store: Store,
        options: RecordingOptions,
        *,
        reached: Callable[[Step], None] | None = None,
    ) -> None:
        """`reached` is called after each step of the commit rule."""
        self._workspace, self._store = workspace, store
        self._options, self._reached = options, reached or (lambda _: None)
        # The board's identity, set once its session has begun.
        self._identity = ""
        self._held = ""  # the board whose lock is held, even if its session could not begin
        # The mirrors and the session are None until the board was reached for the first time.
        self._opened: BoardMirrors | None = None
        self._session: StoredSession | None = None
        self._directories: dict[str, str] = {}  # directories of JOBs on the board
        self._intervals: dict[str, int | None] = {}  # by JOB, the sampling interval of its program
        self._waiting: dict[str, list[Change]] = {}  # by JOB, changes for the next batch
        # By JOB, logs that were begun on an earlier stream and not announced on this one yet, with their committed
        # bytes.
        self._unoffered: dict[str, dict[str, int]] = {}
        # Names of JOBs of which the continued session holds a part.
        self._begun_jobs: set[str] = set()
        self._applied: list[Applied] = []  # committed batches that no method has returned yet
        # Made by the first read on the store's thread, which owns its connection.
        self._reader: ColumnReader | None = None
        self._unread: deque[tuple[str, list[int]]] = deque()  # by JOB, inferences whose columns were not returned yet
        self._ring: Ring | None = None  # of a flight recorder
        self._ring_due_s = 0.0  # time of its next step, by the monotonic clock
        self._is_torn = False  # a batch failed; the mirrors may have bytes without rows
        self._committing: asyncio.Task[None] | None = None  # the commit of the latest batch
        # True if the daemon deletes files by itself.
        self._deletes = False
        self._roots: tuple[str, ...] = ()  # directories in which the daemon looks for JOBs

    async def begin(self, board: Board, address: str) -> None:
        """Begin or continue the board's session; on a later stream, check that it is the same board."""
        identity, self._deletes = board.identity or f"address {address}", board.deletes
        self._roots = board.roots
        if self._identity:
            if identity != self._identity:
                raise UnreachableError(
                    f"another board answers at {address}: {identity}, not {self._identity}",
                    hint="check the address; the capture goes on when its own board is back",
                )
            self._mirrors.begin_stream()
            self._unoffered.clear()
            if self._is_torn:
                await self._restore()
            return
        options, maps = self._options, self._options.maps
        counter_map = await asyncio.to_thread(lambda: maps.of(simulated=board.simulated, sdk=board.sdk_version))
        # Nothing is awaited from here until the store has noted the board, so that the second of two captures of one
        # board is refused with the right reason.
        self._store.check_board(identity, address)
        if self._held != identity:
            options.hold(identity)
            self._held = identity
        start = options.session_start(board, identity, address, counter_map)
        is_past = None if options.past_filter is None else options.past_filter.is_in_past
        feed = None if options.reads else Feed()
        self._opened = BoardMirrors(
            self._workspace, identity, counter_map, feed, keeping=options.keeping, is_past=is_past
        )
        self._session = await self._store.begin(start)
        # Set before the steps that a full disk can stop: a later stream then restores and goes on.
        self._identity, self._is_torn = identity, True
        self._begun_jobs = await self._session.begun_jobs()
        # A process that ended behind a commit may have left files of thinned logs.
        await to_the_end(self._mirrors.remove, await self._session.files_to_remove())
        await self._restore()
        if options.keep_when is not None:
            self._ring = Ring(self._session.number, options.keep_when)

    async def _restore(self) -> None:
        """Undo what was written to the mirrors and never committed.

        Logs that the board has removed meanwhile do not come again, so what an open batch left of them is written
        first.
        """
        # Decoders may be ahead of the database, so they are rebuilt from committed bytes. The mirrors are closed only
        # here and not when a batch fails: after a second Ctrl-C the thread may still write, and a closed file's
        # descriptor could then name another file.
        self._mirrors.close()
        uncommitted = await asyncio.to_thread(self._mirrors.batch.names)
        self._mirrors.sources |= {each.job: each.source for each in uncommitted}
        await self._write_uncommitted(uncommitted, self._mirrors.begun)
        aside = await asyncio.to_thread(self._mirrors.set_aside)
        unfinished = await self.session.unfinished_logs()
        await to_the_end(self._mirrors.restore, [*unfinished, *await self.session.committed_logs(aside)])
        await to_the_end(self._mirrors.expect, unfinished)
        await self._write_uncommitted(uncommitted, self._mirrors.arrived)
        self._is_torn = False

    async def _write_uncommitted(
        self, uncommitted: Sequence[BatchLogs], meaning: Callable[[BatchLogs, Mapping[str, HeldLog]], Sequence[Change]]
    ) -> None:
        """Write the changes for logs that an uncommitted batch left in the mirrors; their JOBs count as open."""
        for each in uncommitted:
            held = await self.session.held(each.job, [*each.data, *each.snapshots])
            if changes := await to_the_end(meaning, each, held):
                await self._apply([JobChanges(each.job, each.directory, changes, OPEN)])

    @property
    def refused(self) -> Mapping[str, UnsupportedBoardError]:
        """JOBs that turned out to be from another SoC."""
        return self._opened.refused if self._opened is not None else {}

    def has_begun(self, job: str) -> bool:
        """Return True if the continued session holds a part of this JOB already."""
        return job in self._begun_jobs

    async def sample_clock(self, channel: Channel) -> None:
        """Store the difference of the clocks if it could be measured."""
        found = await clock_difference(channel, self._options.now_us)
        if found is not None:
            self._options.compared(found.offset_us)
            await self.session.add_clock_sample(found.host_us, found.offset_us, found.round_trip_us)

    async def has_room(self) -> bool:
        """Return True if the workspace's disk has room for a batch."""
        return await asyncio.to_thread(self._workspace.has_room)

    def know_job(self, job: JobStatus) -> None:
        """Note a JOB's directory, source and profiling configuration."""
        self._directories[job.name], self._mirrors.sources[job.name] = job.directory, job.source
        if job.source not in SOURCES:
            self._add(job.name, [no_decoder(job.source)])
        if (profiling := self._options.profiling or job.profiling) is not None:
            interval = self._intervals[job.name] = interval_of(profiling.interval)
            self._add(job.name, [ProfilingKnown(interval, display_text(profiling.path))])

    async def holdings(self, logs: Sequence[FollowedLog]) -> list[Holding]:
        """Return a Holding for each announced log. A batch without any of these logs may go to the disk meanwhile."""
        if self._committing is not None and any(map(self._mirrors.batch.has, logs)):
            await self._wait_for_commit()
        wanted: dict[str, dict[str, FollowedLog]] = {}
        answers: list[Holding] = []
        for log in logs:
            if log.job in self.refused:
                answers.append(Holding(log.handle, skip=True))
                continue
            try:
                path = checked_path(log.path)
            except FormatError as error:
                self.note(log.job, ledger.entry(ledger.BAD_PATH, str(error)))
                answers.append(Holding(log.handle, skip=True))
            else:
                wanted.setdefault(log.job, {})[path] = log
        for job, by_path in wanted.items():
            answers += await self._holdings_of(job, by_path)
        if sum(map(len, self._waiting.values())) >= MOST_REMARKS:
            await self._wait_for_commit()
            await self._apply(self._take_waiting())
        return answers

    async def _holdings_of(self, job: str, by_path: dict[str, FollowedLog]) -> list[Holding]:
        await self._know_interval(job)
        unoffered = await self._unoffered_of(job)
        for path in by_path:
            unoffered.pop(path, None)
        held = await self.session.held(job, list(by_path))
        thinned = await self.session.thinned(job, by_path.keys() - held.keys())
        skipped = [Holding(by_path.pop(path).handle, skip=True) for path in thinned]
        compare = partial(self._compare, job, by_path, held)
        # Nothing is read for new logs; the digests of held ones may need gigabytes, on a thread.
        is_quick = self._mirrors.is_open(job) and not any(log.generation for log in held.values())
        changes, answers = compare() if is_quick else await to_the_end(compare)
        self._add(job, changes)
        return [*skipped, *answers]

    def _compare(
        self, job: str, by_path: dict[str, FollowedLog], held: Mapping[str, HeldLog]
    ) -> tuple[list[Change], list[Holding]]:
        # Generation 0 means that a log was announced and never started: nothing of it is held.
        begun = {path for path, log in held.items() if log.generation}
        past = self._past_logs(job, by_path, begun)
        answers = [Holding(by_path.pop(path).handle, skip=True) for path in past]
        # A complete snapshot was noted when the first log of its JOB began.
        new = [path for path, log in by_path.items() if not (log.snapshot and path in held and held[path].complete)]
        holdings, lost = self._mirrors.compare(job, by_path, held)
        # A passed sample did arrive: without its name it would count as a missed one.
        announced = (*past, *new) if self._options.notes_past else new
        names = [NamesAnnounced(announced)] if announced and not self._options.reads else []
        return [*names, *lost], [*answers, *holdings]

    def _past_logs(self, job: str, by_path: Mapping[str, FollowedLog], begun: Collection[str]) -> list[str]:
        past_filter, source = self._options.past_filter, self._place(job)[1]
        if past_filter is None:
            return []
        newest = max((path for path, log in by_path.items() if not log.snapshot), default="")
        return [path for path in by_path if path not in begun and past_filter.leaves_out(job, source, path, newest)]

    async def _know_interval(self, job: str) -> None:
        """Give the mirrors a JOB's interval: the first one stays over restarts, because schedules count steps by it."""
        if self._options.keeping is None or job in self._mirrors.intervals:
            return
        interval = await self.session.first_interval(job)
        self._mirrors.intervals[job] = self._intervals.get(job) if interval is None else interval

    async def take(
        self, events: Sequence[Received], acknowledge: Acknowledge, *, more: bool = False
    ) -> Sequence[Applied]:
        """Take events by the commit rule; return batches that are committed and were not returned before.

        With `more` events at hand, these go to the disk while the next ones are written into the mirrors. Raises
        StoreError and ProtocolError.
        """
        return await self._take(events, (), acknowledge, more=more)

    async def take_read(
        self, read: Sequence[Arrival], others: Sequence[Received], acknowledge: Acknowledge
    ) -> Sequence[Applied]:
        """Take complete inferences that this process has read itself, with their digests, and other events.

        Returns and raises as `take` does.
        """
        return await self._take(others, read, acknowledge, more=False)

    async def _take(
        self, events: Sequence[Received], read: Sequence[Arrival], acknowledge: Acknowledge, *, more: bool
    ) -> Sequence[Applied]:
        try:
            changes, reached = await self._store.run(lambda _: self._write(events, read))
            await self._wait_for_commit()
        except BaseException:
            self._is_torn = True
            raise
        named = self._mirrors.batch.logs
        self._committing = asyncio.create_task(self._commit(changes, partial(acknowledge, reached), named))
        if not more:
            await self._wait_for_commit()
        return self._take_applied()

    # The commit rule: mirror, sync, transaction, acknowledgement, in this order and no other. Rows in the database are
    # durable in the mirror, and what was acknowledged is in the database. A process that ends between two steps leaves
    # bytes in the mirror without rows, which the next stream undoes first: whichever step it died at, a restart finds
    # no record lost and none twice.
    async def _commit(
        self,
        changes: Sequence[JobChanges],
        acknowledge: Callable[[], Awaitable[None]],
        named: Collection[tuple[str, bytes, bool]],
    ) -> None:
        self._reached(Step.MIRRORED)
        await self._workspace.synced.sync()
        self._reached(Step.SYNCED)
        await self._apply(changes)
        self._reached(Step.COMMITTED)
        await acknowledge()
        self._reached(Step.ACKNOWLEDGED)
        if self._ring is not None and time.monotonic() >= self._ring_due_s:
            # The next batch may be in the mirrors already.
            is_next = self._mirrors.batch.logs is not named
            await self._thin(self._ring, is_busy=self._mirrors.batch.names_log if is_next else _is_idle)
            self._ring_due_s = time.monotonic() + RING_STEP_S

    async def _thin(self, ring: Ring, *, is_busy: Callable[[str, str], bool], is_over: bool = False) -> None:
        """Let the flight recorder decide what is due, page by page, and remove the files of what it thinned.

        The transaction comes first: a process that ends behind it removes the files when it begins again.
        """
        has_more = True
        while has_more:
            now_s, wall_s = time.monotonic(), int(time.time())
            step = partial(ring.step, now_s=now_s, wall_s=wall_s, is_busy=is_busy, is_over=is_over)
            files, incidents, has_more = await self._store.run(step)
            for incident in incidents:
                self._options.found(incident)
            self._reached(Step.THINNED)
            if files:
                await self._store.run(partial(self._remove, files))
                self._reached(Step.REMOVED)
            has_more = has_more and bool(files)

    def _remove(self, files: Sequence[tuple[str, str]], _: sqlite3.Connection) -> None:
        self._mirrors.remove(files)

    async def committed(self) -> Sequence[Applied]:
        """Wait until everything taken is committed; return batches since the last return. Raises StoreError.

        An empty sequence means that nothing is left: many inferences that are judged at once are returned in pages.
        """
        await self._wait_for_commit()
        if self._unread:
            self._applied.append(await self._store.run(self._next_page))
        return self._take_applied()

    def _take_applied(self) -> Sequence[Applied]:
        applied, self._applied = self._applied, []
        return applied

    async def _apply(self, changes: Sequence[JobChanges]) -> None:
        applied = await self.session.apply(changes)
        if self._options.with_columns:
            applied = await self._store.run(partial(self._with_columns, applied))
        self._applied += applied

    async def pending(self) -> InferenceColumns:
        """Return inferences whose figures are not known yet."""
        return await self._store.run(lambda connection: self._columns_of(connection).pending())

    def _columns_of(self, connection: sqlite3.Connection) -> ColumnReader:
        self._reader = self._reader or ColumnReader(connection)
        return self._reader

    def _with_columns(self, applied: Sequence[Applied], connection: sqlite3.Connection) -> Sequence[Applied]:
        reader = self._columns_of(connection)
        found: list[Applied] = []
        for each in applied:
            columns, unread = reader.of(each)
            found.append(replace(each, columns=columns))
            if unread:
                self._unread.append((each.batch.job, unread))
        return found

    def _next_page(self, connection: sqlite3.Connection) -> Applied:
        job, unread = self._unread[0]
        page, left = unread[:INFERENCES_PER_LOOK], unread[INFERENCES_PER_LOOK:]
        if left:
            self._unread[0] = job, left
        else:
            self._unread.popleft()
        columns = [self._columns_of(connection).read(page)]
        return Applied(JobChanges(job, self._directory(job), ()), columns=columns)

    async def _wait_for_commit(self) -> None:
        committing, self._committing = self._committing, None
        if committing is None:
            return
        try:
            await finished(committing)
        except BaseException:
            self._is_torn = True
            raise

    async def change_state(self, name: str, state: str, *, caught_up: bool) -> Sequence[Applied]:
        """Write a JOB's state; when an ended JOB has been copied, note the logs that lack their end.

        Nothing more is expected of a removed JOB, even if it is not complete.
        """
        if state == REMOVED:
            await self._note_removal(name, was_followed=caught_up)
        await self._write_state(name, state, caught_up=caught_up or state == REMOVED)
        return self._take_applied()

    async def _write_state(self, name: str, state: str, *, caught_up: bool) -> None:
        """Write the state, and note logs that the board does not have any more and, at the end, logs without one."""
        has_ended = caught_up and state in ENDED_STATES
        changes: list[Change] = []
        if caught_up and state != REMOVED and name not in self.refused:
            # The board has announced everything that it has, so the other logs were removed while nobody followed;
            # noted once.
            gone, self._unoffered[name] = await self._unoffered_of(name), {}
            for path, copied in gone.items():
                changes += (LogRemoved(path), LinkLedger(path, unfollowed_removal(copied)))
        if has_ended:
            # Logs that no `.done` has ended, logs that no judgement has reached, and `.done` files without their data.
            unsettled, orphans = await self.session.unsettled_logs(name), await self.session.orphan_dones(name)
            unsettled = sorted({*unsettled, *await self.session.unjudged_logs(name)})
            changes += await to_the_end(self._mirrors.assess, name, unsettled, orphans)
        batches = [*self._take_waiting(), JobChanges(name, self._directory(name), changes, state, caught_up)]
        await self._apply(batches)

    async def listed(self, names: Collection[str]) -> Sequence[Applied]:
        """Mark held JOBs that the board does not have any more as over, and write what that means into the ledger.

        Returns what became of the JOBs that this session began.
        """
        applied = [*self._take_applied()]
        ours = await self.session.begun_jobs()
        for job in await self.session.standing_jobs():
            if job.name not in names and self._is_looked_for(job.directory):
                await self._gone_unseen(job, is_ours=job.name in ours)
                of_job = self._take_applied()
                applied += of_job if job.name in ours else ()
        return applied

    def _is_looked_for(self, directory: str) -> bool:
        """Return True if the daemon would list a JOB in that directory: its roots may have changed."""
        return not self._roots or any(PurePosixPath(directory).is_relative_to(root) for root in self._roots)

    async def _gone_unseen(self, job: HeldJob, *, is_ours: bool) -> None:
        unsettled = len(await self.session.unsettled_logs(job.name))
        is_known = job.caught_up and job.state in ENDED_STATES and not unsettled
        if is_known and not is_ours:
            # Another session holds it completely: the ledger needs no entry, and this session none of its rows.
            await self.session.forget_standing(job.name)
            return
        self._directories.setdefault(job.name, job.directory)
        if is_ours and not is_known:
            # A daemon that deletes by itself deletes delivered JOBs, and reports a loss for any other.
            is_whole = job.caught_up and (self._deletes or await self.session.has_finished(job.name))
            if unsettled or not is_whole:
                self.note(job.name, unfollowed_job_removal(unsettled))
        await self._write_state(job.name, REMOVED, caught_up=True)

    async def _note_removal(self, name: str, *, was_followed: bool) -> None:
        has_ended = await self.session.state_of(name) in ENDED_STATES
        if was_followed:
            if not has_ended and not await self.session.has_finished(name):
                self.note(name, open_removal())
            return
        unsettled = len(await self.session.unsettled_logs(name))
        if unsettled or not has_ended:
            self.note(name, unfollowed_job_removal(unsettled))

    async def cover(self, coverage: Coverage) -> None:
        """Store new intervals of the coverage; a later call stores them if this one fails. Raises StoreError."""
        intervals = coverage.take(self._options.now_us())
        try:
            await self.session.cover(intervals)
        except BaseException:
            coverage.put_back(intervals)
            raise

    def note_uncovered(self, coverage: Coverage) -> str:
        """Note that the capture ended while the board may have had more; return the reason as a text."""
        text = f"not covered at the end: {_why_uncovered(coverage)}"
        self.note("", ledger.entry(ledger.NOT_COVERED, text))
        return text

    async def end(self) -> None:
        """Mark the session as ended and close the mirrors' files."""
        if self._session is not None:
            await self._session.apply(self._take_waiting())
            if self._ring is not None:
                await self._thin(self._ring, is_busy=_is_idle, is_over=True)
            await self._session.end(self._options.now_us())
            self._mirrors.close()
            if self._ring is not None:
                # While it read a backlog, the database held many more inferences than it kept.
                await self._store.shrink(WORTHWHILE_FREE)

    def _write(
        self, events: Sequence[Received], read: Sequence[Arrival]
    ) -> tuple[list[JobChanges], list[Acknowledgement]]:
        """Write events into the mirrors; return their changes, and acknowledgements to send after the commit."""
        self._mirrors.batch.begin([*events, *(each for arrival in read for each in arrival.received)], self._place)
        (by_job, reached), past_filter = self._mirrors.take(events, read), self._options.past_filter
        for job, changes in by_job.items():
            is_past = past_filter is not None and past_filter.is_in_past(job)
            self._add(job, without_rows(self._place(job)[1], changes) if is_past else changes)
        return self._take_waiting(), reached

    @property
    def is_begun(self) -> bool:
        """True once the board was reached."""
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

    def note(self, job: str, entry: Entry) -> None:
        """Write a ledger entry about a JOB with the next batch."""
        self._add(job, [LinkLedger(None, entry)])

    def _add(self, job: str, changes: Sequence[Change]) -> None:
        self._waiting.setdefault(job, []).extend(changes)

    def _take_waiting(self) -> list[JobChanges]:
        waiting, self._waiting = self._waiting, {}
        return [JobChanges(job, self._directory(job), changes) for job, changes in waiting.items()]

    def _directory(self, job: str) -> str:
        return self._directories.get(job, "")  # empty if it is not known

    def _place(self, job: str) -> tuple[str, str]:
        return self._directory(job), self._mirrors.sources.get(job, JOB_SOURCE)

    async def _unoffered_of(self, job: str) -> dict[str, int]:
        if job not in self._unoffered:
            self._unoffered[job] = await self.session.begun_logs(job)
        return self._unoffered[job]


def _is_idle(_job: str, _path: str) -> bool:
    return False


def _why_uncovered(coverage: Coverage) -> str:
    since = time_text(coverage.board.from_us, "%H:%M:%S UTC")
    match coverage.board.standing:
        case Standing.SILENT:
            return f"the board has not spoken since {since}, nor answered within {ANSWER_S:g} s"
        case Standing.PAUSED:
            return f"paused since {since}: {coverage.board.detail}"
        case Standing.AWAY:
            return f"the link is down since {since}: {coverage.board.detail}"
    return f"the board did not say within {ANSWER_S:g} s that everything had come: more is on its way"
