"""A board's stream into a workspace: what is held, and each batch through the commit rule."""

from __future__ import annotations

import asyncio
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
from profagent.limits import ANSWER_S, INFERENCES_PER_LOOK, MOST_REMARKS
from profagent.link.clock_difference import clock_difference
from profagent.link.coverage import Standing
from profagent.link.messages import ENDED_STATES, JOB_SOURCE, OPEN, REMOVED, Acknowledgement, Holding
from profagent.record.mirroring import BoardMirrors
from profagent.store.inference_columns import ColumnReader
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
    from profagent.record.mirroring import LeftLogs
    from profagent.record.options import RecordingOptions
    from profagent.store.inference_columns import InferenceColumns
    from profagent.store.store import HeldJob, HeldLog, Store, StoredSession
    from profagent.store.workspace import Workspace

    Acknowledge = Callable[[Sequence[Acknowledgement]], Awaitable[None]]


class Step(Enum):
    """What has just been done with a batch, in this order; what is acknowledged is told a little later."""

    MIRRORED = "mirrored"
    SYNCED = "synced"
    COMMITTED = "committed"
    ACKNOWLEDGED = "acknowledged"


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
        self._workspace, self._store = workspace, store
        self._options, self._reached = options, reached or (lambda _: None)
        self._identity = ""
        self._held = ""  # the board that is held, whether or not its session could be begun
        self._opened: BoardMirrors | None = None
        self._session: StoredSession | None = None
        self._directories: dict[str, str] = {}  # where JOBs stand
        self._intervals: dict[str, int | None] = {}  # the intervals that their programs were given
        self._waiting: dict[str, list[Change]] = {}  # by JOB, what is to be written with the next batch
        # Of this stream, by JOB: logs that were begun and not offered yet, and how many bytes are committed.
        self._unoffered: dict[str, dict[str, int]] = {}
        self._begun_jobs: set[str] = set()
        self._applied: list[Applied] = []  # what is committed and was not returned yet
        self._reader: ColumnReader | None = None
        self._unread: deque[tuple[str, list[int]]] = deque()  # by JOB, inferences whose columns were not returned yet
        self._is_torn = False  # a batch was not committed, and may be in the mirrors
        self._committing: asyncio.Task[None] | None = None  # the latest batch
        self._deletes = False
        self._roots: tuple[str, ...] = ()  # where the board looks for JOBs

    async def begin(self, board: Board, address: str) -> None:
        """Begin or go on with the board's session; on a later stream, see that it is the same board."""
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
        # From here to the store's own note of the board nothing is waited for: of two captures of it one is told why.
        self._store.check_board(identity, address)
        if self._held != identity:
            options.hold(identity)
            self._held = identity
        start = options.session_start(board, identity, address, counter_map)
        is_past = None if options.beginnings is None else options.beginnings.is_in_past
        feed = None if options.reads else Feed()
        self._opened = BoardMirrors(
            self._workspace, identity, counter_map, feed, keeping=options.keeping, is_past=is_past
        )
        self._session = await self._store.begin(start)
        # Where the disk is full, a later stream goes on here.
        self._identity, self._is_torn = identity, True
        self._begun_jobs = await self._session.begun_jobs()
        await self._restore()

    async def _restore(self) -> None:
        """Undo what was written to the mirrors and never committed: what is gone meanwhile does not come again."""
        # What was decoded may not have been committed: it is decoded again, from what was. Not before: after a second
        # Ctrl-C the thread may write still, and another file would have the number of one that is closed.
        self._mirrors.close()
        left = await asyncio.to_thread(self._mirrors.batch.left)
        self._mirrors.sources |= {each.job: each.source for each in left}
        await self._tell_left(left, self._mirrors.begun)
        aside = await asyncio.to_thread(self._mirrors.set_aside)
        unfinished = await self.session.unfinished_logs()
        await to_the_end(self._mirrors.restore, [*unfinished, *await self.session.committed_logs(aside)])
        await to_the_end(self._mirrors.expect, unfinished)
        await self._tell_left(left, self._mirrors.arrived)
        self._is_torn = False

    async def _tell_left(
        self, left: Sequence[LeftLogs], meaning: Callable[[LeftLogs, Mapping[str, HeldLog]], Sequence[Change]]
    ) -> None:
        """Write what a batch that was not committed left of its logs; their JOBs go on."""
        for each in left:
            held = await self.session.held(each.job, [*each.data, *each.snapshots])
            if changes := await to_the_end(meaning, each, held):
                await self._apply([JobChanges(each.job, each.directory, changes, OPEN)])

    @property
    def refused(self) -> Mapping[str, UnsupportedBoardError]:
        """JOBs that turned out to be of another SoC."""
        return self._opened.refused if self._opened is not None else {}

    def has_begun(self, job: str) -> bool:
        """Whether the session that goes on holds a part of this JOB already."""
        return job in self._begun_jobs

    async def sample_clock(self, channel: Channel) -> None:
        """Store the clocks' difference, where one can be told."""
        found = await clock_difference(channel, self._options.now_us)
        if found is not None:
            self._options.compared(found.offset_us)
            await self.session.add_clock_sample(found.host_us, found.offset_us, found.round_trip_us)

    async def has_room(self) -> bool:
        """Whether the workspace's disk has room for a batch."""
        return await asyncio.to_thread(self._workspace.has_room)

    def know_job(self, job: JobStatus) -> None:
        """Note where a JOB stands, whose data it has, and what it was to record."""
        self._directories[job.name], self._mirrors.sources[job.name] = job.directory, job.source
        if job.source not in SOURCES:
            self._add(job.name, [no_decoder(job.source)])
        if (profiling := self._options.profiling or job.profiling) is not None:
            interval = self._intervals[job.name] = interval_of(profiling.interval)
            self._add(job.name, [ProfilingKnown(interval, display_text(profiling.path))])

    async def holdings(self, logs: Sequence[FollowedLog]) -> list[Holding]:
        """What is held of each announced log. A batch may go to the disk meanwhile, unless it has something of them."""
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
        compare = partial(self._compare, job, by_path, held)
        # Of logs that are new nothing is read; of others it may be gigabytes.
        is_quick = self._mirrors.is_open(job) and not any(log.generation for log in held.values())
        changes, answers = compare() if is_quick else await to_the_end(compare)
        self._add(job, changes)
        return answers

    def _compare(
        self, job: str, by_path: dict[str, FollowedLog], held: Mapping[str, HeldLog]
    ) -> tuple[list[Change], list[Holding]]:
        # Of a log that was only heard of, nothing is held.
        begun = {path for path, log in held.items() if log.generation}
        past = self._past_logs(job, by_path, begun)
        answers = [Holding(by_path.pop(path).handle, skip=True) for path in past]
        # What is held of a small file was told when its JOB's first log began.
        new = [path for path, log in by_path.items() if not (log.snapshot and path in held and held[path].complete)]
        holdings, lost = self._mirrors.compare(job, by_path, held)
        # A sample that is passed over did come: without its name it would be taken for one that did not.
        told = (*past, *new) if self._options.notes_past else new
        names = [NamesAnnounced(told)] if told and not self._options.reads else []
        return [*names, *lost], [*answers, *holdings]

    def _past_logs(self, job: str, by_path: Mapping[str, FollowedLog], begun: Collection[str]) -> list[str]:
        beginnings, source = self._options.beginnings, self._place(job)[1]
        if beginnings is None:
            return []
        newest = max((path for path, log in by_path.items() if not log.snapshot), default="")
        return [path for path in by_path if path not in begun and beginnings.leaves_out(job, source, path, newest)]

    async def _know_interval(self, job: str) -> None:
        """The interval that was told first stays, also over a restart: steps of a schedule are counted by it."""
        if self._options.keeping is None or job in self._mirrors.intervals:
            return
        interval = await self.session.first_interval(job)
        self._mirrors.intervals[job] = self._intervals.get(job) if interval is None else interval

    async def take(
        self, events: Sequence[Received], acknowledge: Acknowledge, *, more: bool = False
    ) -> Sequence[Applied]:
        """Take events by the commit rule; returns what is committed and was not returned before.

        Raises StoreError and ProtocolError. Where `more` are at hand, these go to the disk while the next are put into
        the mirrors.
        """
        return await self._take(events, (), acknowledge, more=more)

    async def take_read(
        self, read: Sequence[Arrival], others: Sequence[Received], acknowledge: Acknowledge
    ) -> Sequence[Applied]:
        """Take inferences that this process `read` whole itself, with the digests of their bytes, and other events.

        Returns and raises as `take`.
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
        self._committing = asyncio.create_task(self._commit(changes, partial(acknowledge, reached)))
        if not more:
            await self._wait_for_commit()
        return self._take_applied()

    # The rule that makes a capture survive: mirror, sync, transaction, acknowledgement, in this order and no other.
    # What is in the database is in the mirror, durably; what was acknowledged is in the database. A process that ends
    # between two steps leaves bytes in the mirror that no row speaks of: they are undone before the next stream. So a
    # restart finds no record lost and none twice, whichever step it died at.
    async def _commit(self, changes: Sequence[JobChanges], acknowledge: Callable[[], Awaitable[None]]) -> None:
        self._reached(Step.MIRRORED)
        await self._workspace.synced.sync()
        self._reached(Step.SYNCED)
        await self._apply(changes)
        self._reached(Step.COMMITTED)
        await acknowledge()
        self._reached(Step.ACKNOWLEDGED)

    async def committed(self) -> Sequence[Applied]:
        """Wait until all that was taken is committed; returns what is since the last return. Raises StoreError.

        Nothing is left where it returns nothing: of many inferences that are judged at once it returns a page.
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
        """Write a JOB's state; when all of an ended one has come, note what never got complete.

        Of a removed one that has not come nothing is to come any more.
        """
        if state == REMOVED:
            await self._note_removal(name, was_followed=caught_up)
        await self._enter(name, state, caught_up=caught_up or state == REMOVED)
        return self._take_applied()

    async def _enter(self, name: str, state: str, *, caught_up: bool) -> None:
        has_ended = caught_up and state in ENDED_STATES
        changes: list[Change] = []
        if caught_up and state != REMOVED and name not in self.refused:
            # All that the board has was offered: the others were removed while nobody followed, which is told once.
            gone, self._unoffered[name] = await self._unoffered_of(name), {}
            for path, copied in gone.items():
                changes += (LogRemoved(path), LinkLedger(path, unfollowed_removal(copied)))
        if has_ended:
            unsettled, orphans = await self.session.unsettled_logs(name), await self.session.orphan_dones(name)
            unsettled = sorted({*unsettled, *await self.session.unjudged_logs(name)})
            changes += await to_the_end(self._mirrors.assess, name, unsettled, orphans)
        batches = [*self._take_waiting(), JobChanges(name, self._directory(name), changes, state, caught_up)]
        await self._apply(batches)

    async def listed(self, names: Collection[str]) -> Sequence[Applied]:
        """Held JOBs that the board has no longer are over; what that means is in the ledger.

        Returns what became of those that this session began.
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
        """Whether the board would tell of a JOB that stands there: a daemon may have other roots than one before."""
        return not self._roots or any(PurePosixPath(directory).is_relative_to(root) for root in self._roots)

    async def _gone_unseen(self, job: HeldJob, *, is_ours: bool) -> None:
        unsettled = len(await self.session.unsettled_logs(job.name))
        is_known = job.caught_up and job.state in ENDED_STATES and not unsettled
        if is_known and not is_ours:
            # There is nothing to say of it, and it is none of this session's.
            await self.session.forget_standing(job.name)
            return
        self._directories.setdefault(job.name, job.directory)
        if is_ours and not is_known:
            # What the board itself deletes had come.
            is_whole = job.caught_up and (self._deletes or await self.session.has_finished(job.name))
            if unsettled or not is_whole:
                self.note(job.name, unfollowed_job_removal(unsettled))
        await self._enter(job.name, REMOVED, caught_up=True)

    async def _note_removal(self, name: str, *, was_followed: bool) -> None:
        """A JOB was removed: nobody knows what one that had not ended was to hold, while it was followed or before."""
        has_ended = await self.session.state_of(name) in ENDED_STATES
        if was_followed:
            if not has_ended and not await self.session.has_finished(name):
                self.note(name, open_removal())
            return
        unsettled = len(await self.session.unsettled_logs(name))
        if unsettled or not has_ended:
            self.note(name, unfollowed_job_removal(unsettled))

    async def cover(self, coverage: Coverage) -> None:
        """Store what is new of the coverage; where that fails it is stored by a later call. Raises StoreError."""
        intervals = coverage.take(self._options.now_us())
        try:
            await self.session.cover(intervals)
        except BaseException:
            coverage.put_back(intervals)
            raise

    def note_uncovered(self, coverage: Coverage) -> str:
        """Note that the capture ended while the board may have had more; returns why, for people."""
        text = f"not covered at the end: {_why_uncovered(coverage)}"
        self.note("", ledger.entry(ledger.NOT_COVERED, text))
        return text

    async def end(self) -> None:
        """Mark the session as ended and close the mirrors' files."""
        if self._session is not None:
            await self._session.apply(self._take_waiting())
            await self._session.end(self._options.now_us())
            self._mirrors.close()

    def _write(
        self, events: Sequence[Received], read: Sequence[Arrival]
    ) -> tuple[list[JobChanges], list[Acknowledgement]]:
        """Put events into the mirrors: what they mean, and what can be acknowledged once that is durable."""
        self._mirrors.batch.begin([*events, *(each for arrival in read for each in arrival.received)], self._place)
        (by_job, reached), beginnings = self._mirrors.take(events, read), self._options.beginnings
        for job, changes in by_job.items():
            is_past = beginnings is not None and beginnings.is_in_past(job)
            self._add(job, without_rows(self._place(job)[1], changes) if is_past else changes)
        return self._take_waiting(), reached

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

    def note(self, job: str, entry: Entry) -> None:
        """Write an entry about a JOB with what is written next."""
        self._add(job, [LinkLedger(None, entry)])

    def _add(self, job: str, changes: Sequence[Change]) -> None:
        self._waiting.setdefault(job, []).extend(changes)

    def _take_waiting(self) -> list[JobChanges]:
        waiting, self._waiting = self._waiting, {}
        return [JobChanges(job, self._directory(job), changes) for job, changes in waiting.items()]

    def _directory(self, job: str) -> str:
        return self._directories.get(job, "")  # empty where that is not known

    def _place(self, job: str) -> tuple[str, str]:
        return self._directory(job), self._mirrors.sources.get(job, JOB_SOURCE)

    async def _unoffered_of(self, job: str) -> dict[str, int]:
        if job not in self._unoffered:
            self._unoffered[job] = await self.session.begun_logs(job)
        return self._unoffered[job]


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
