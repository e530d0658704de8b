"""The store: one database and the one connection that writes it, for any number of sessions at a time.

A batch is one transaction of few statements. Batches that wait at the same time share a transaction, and so one wait
for the disk.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from profagent import ledger
from profagent.errors import SameBoardError, StoreError
from profagent.files import finished
from profagent.formats.figure_states import CAPTURE_ENDED
from profagent.formats.names import display_text, parse_log_name
from profagent.ingest.source import schemas
from profagent.limits import LARGEST_INTEGER
from profagent.link.messages import ENDED_STATES
from profagent.store import counters, marks, thinning
from profagent.store.coverage import write_coverage
from profagent.store.database import fetched_of, in_memory, reading, refused, shrink, transaction, writing
from profagent.store.room import make_room
from profagent.store.rows import LedgerRows, path_from_sql, path_to_sql
from profagent.store.sampling import full_rings, sampling_of, samplings_of
from profagent.store.sessions import begin_session
from profagent.store.summary import has_recorded, session_summary
from profagent.store.writer import settle_figures, settle_numbers, write_batches

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from profagent.ingest.changes import JobChanges
    from profagent.ledger import Entry
    from profagent.link.coverage import Interval
    from profagent.store.database import Running
    from profagent.store.sampling import ModelSampling
    from profagent.store.sessions import SessionStart
    from profagent.store.writer import Applied

T = TypeVar("T")

# Logs that may still change. One that was removed from the board keeps the digest that the board vouched for, and is
# settled.
_UNSETTLED = (
    "SELECT path FROM log JOIN job USING (job) WHERE board = ? AND job.name = ? AND complete <> 1 AND digest IS NULL"
    " AND generation > 0 AND kind IN ('aicore', 'aicpu', 'acl_api')"
)
# Logs of inferences whose figures are pending: their completeness has to be decided from the mirror once more.
_UNJUDGED = (
    "SELECT DISTINCT l.path FROM job JOIN model m USING (job) JOIN inference i USING (model) JOIN segment g"
    " USING (inference) JOIN log l USING (log) WHERE board = ? AND job.name = ? AND i.figures = 'pending'"
)
# `.done` files whose data log has no bytes here; the 5 is the length of the suffix.
_ORPHANS = (
    "SELECT d.path FROM log d JOIN job USING (job) WHERE board = ? AND job.name = ? AND d.kind = 'done'"
    " AND d.generation > 0 AND NOT EXISTS (SELECT 1 FROM log x"
    " WHERE x.job = d.job AND x.path = substr(d.path, 1, length(d.path) - 5) AND x.generation > 0)"
)
# Data logs that were still growing when they were last committed.
_BEGUN = (
    "SELECT path, offset FROM log JOIN job USING (job) WHERE board = ? AND job.name = ? AND complete = 0 AND kept"
    " AND kind IN ('aicore', 'aicpu', 'acl_api')"
)
# Only JOBs with models have anything to settle at the end: a board may have any number of JOBs without one.
_WITH_MODELS = (
    "SELECT job, caught_up, state FROM session_job JOIN job USING (job) WHERE session = ?"
    " AND EXISTS (SELECT 1 FROM model WHERE model.job = session_job.job)"
)
_COMMITTED = (
    "SELECT j.name, l.path, l.generation, l.offset FROM log l JOIN job j USING (job)"
    " WHERE j.board = ? AND l.kind IN ('aicore', 'aicpu', 'acl_api')"
)
_AT_PATH = f"{_COMMITTED} AND j.name = ? AND l.path = ?"
# A removed log may have been created anew for a while, and need not come again.
_UNFINISHED = f"{_COMMITTED} AND (l.complete = 0 OR l.complete = 2 AND l.digest IS NULL)"
# The daemon's own rule (the-format.md 1): complete calls prove that the model was unloaded; empty logs do not count.
_FINISHED = (
    "WITH l AS (SELECT kind, model, offset, complete = 1 AS is_complete FROM log JOIN job USING (job)"
    " WHERE board = ? AND job.name = ? AND generation > 0 AND kind IN ('aicore', 'aicpu', 'acl_api', 'net_info'))"
    " SELECT EXISTS (SELECT 1 FROM l WHERE kind = 'acl_api' AND is_complete)"
    " AND NOT EXISTS (SELECT 1 FROM l WHERE kind <> 'net_info' AND NOT is_complete AND (offset > 0 OR"
    " kind = 'acl_api' AND model IN (SELECT model FROM l WHERE kind = 'net_info')))"
)
# The resume position and the digest of each log that a page of the board's announcement names.
_HELD = (
    "SELECT path, generation, offset, complete = 1, digest, kept FROM log"
    " WHERE job = (SELECT job FROM job WHERE board = ? AND name = ?) AND path IN ({})"
)
_STANDING = "SELECT name, directory, state, caught_up FROM job WHERE board = ? AND state <> 'removed'"
_FINAL = (
    "SELECT count(*) FROM inference JOIN model USING (model) JOIN job USING (job)"
    " WHERE board = ?1 AND job.name = ?2 AND whole"
)
# Thinned inferences have one row for each device and minute.
_THINNED = (
    "SELECT ifnull(sum(f.inferences), 0) FROM minute_figure f JOIN model USING (model) JOIN job USING (job)"
    " WHERE board = ?1 AND job.name = ?2 AND subject = 'layers'"
)


class HeldLog(NamedTuple):
    """State of a log in the database. Its bytes up to `offset` are in the mirror; a complete log has a digest."""

    generation: int
    offset: int
    complete: bool
    digest: bytes | None = None
    kept: bool = True


class HeldJob(NamedTuple):
    """Stored state of a JOB that was on its board at the last contact."""

    name: str
    directory: str
    state: str
    caught_up: bool


class CommittedLog(NamedTuple):
    """Committed position of a data log: its generation and its offset in bytes."""

    job: str
    path: str
    generation: int
    offset: int


@dataclass(slots=True, eq=False)
class _Waiting:
    """Changes of a session that wait for the writer. `error` is the reason why they could not be written."""

    # Number of the session and of its board.
    session: int
    board: int
    # The batches, emptied once they are written: the writing thread would keep them in memory.
    changes: Sequence[JobChanges]
    # True as soon as a transaction has decided about these changes, committed or not.
    is_done: bool = False
    applied: Sequence[Applied] = ()
    error: Exception | None = None


class Store:
    """Writing side of a database, an asynchronous context manager that owns its connection."""

    def __init__(self, file: Path | None, *, durable: bool = True) -> None:
        """Set the file; `durable` False is for a database that is thrown away when its writing is interrupted.

        Without a file the database is in memory, and bounded: it has everything that decides about figures, but records
        only of inferences whose figures are not final. The oldest inferences are deleted where there are too many.
        """
        self.file, self._durable = file, durable
        # Owns the connection between __aenter__ and __aexit__.
        self._opened = AsyncExitStack()
        # The one connection that writes, None outside of the context.
        self._connection: Running | None = None
        # Held by the task that writes. Tasks that wait for it have their changes in `_waiting`, and the next holder
        # writes all of these.
        self._turn = asyncio.Lock()
        # Changes that no transaction has taken yet, in the order of their calls.
        self._waiting: list[_Waiting] = []
        # Addresses of the boards that have a session here, by the board's identity. A board has one writer.
        self._addresses: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        """Open the database. Raises StoreError."""
        scripts = (*schemas(), counters.SCHEMA, marks.SCHEMA, thinning.SCHEMA)
        opening = (
            in_memory(scripts) if self.file is None else writing(self.file, durable=self._durable, scripts=scripts)
        )
        self._connection = await self._opened.enter_async_context(opening)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection."""
        # A second cancellation must not leave the connection's thread behind, so the closing runs to its end.
        await finished(asyncio.create_task(self._opened.aclose()))
        self._connection = None

    async def begin(self, start: SessionStart) -> StoredSession:
        """Begin a session, or continue the board's unfinished one, and return it.

        Raises SameBoardError if this store has begun a session of the same board before: its rows have one writer.
        """
        self.check_board(start.identity, start.address)
        self._addresses[start.identity] = start.address
        try:
            session, board = await self.run(lambda connection: begin_session(connection, start))
        # A begin that failed or was cancelled leaves the board free for another attempt.
        except BaseException:
            del self._addresses[start.identity]
            raise
        return StoredSession(self, session, board, start.peak_bytes_per_s)

    def check_board(self, identity: str, address: str) -> None:
        """Raise SameBoardError if this store has begun a session of the board."""
        if identity in self._addresses:
            raise SameBoardError(address, self._addresses[identity], identity)

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Call a function with the connection on its thread, wait for its end, and return its result.

        Raises StoreError for what SQLite refuses. The same thread writes batches into mirrors: two busy threads would
        change places at each system call.
        """
        assert self._connection is not None, "used outside of its context"
        try:
            return await self._connection.run(function)
        except sqlite3.Error as error:
            raise self._refused(error) from error

    def _refused(self, error: sqlite3.Error) -> StoreError:
        return refused(self.file or Path(":memory:"), error)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Running]:
        """Yield a connection that reads what is committed. Raises StoreError."""
        if self.file is None:
            assert self._connection is not None, "used outside of its context"
            yield self._connection
        else:
            async with reading(self.file) as connection:
                yield connection

    async def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query on the writing connection, or run one statement in a transaction of its own."""
        return await self.run(lambda connection: connection.execute(sql, parameters).fetchall())

    async def write(self, session: int, board: int, changes: Sequence[JobChanges]) -> Sequence[Applied]:
        """Write changes in one durable transaction, which other waiting tasks may share; return what the writer judged.

        If the shared transaction fails, each task's changes get a transaction of their own, and succeed or fail alone.
        """
        own = _Waiting(session, board, changes)
        self._waiting.append(own)
        async with self._turn:
            if not own.is_done:
                # Taken before the first await, so that no task's changes are written twice.
                together, self._waiting = self._waiting, []
                await self.run(partial(_write_together, together=together, keeps_records=self.file is not None))
        if isinstance(own.error, sqlite3.Error):
            raise self._refused(own.error) from own.error
        if own.error is not None:
            raise own.error
        # The thread's last job refers to this object, and would keep the result in memory as it would the changes.
        applied, own.applied = own.applied, ()
        return applied

    async def shrink(self, worthwhile: float) -> None:
        """Rewrite the database if this share of it is free, unless another process writes it."""
        assert self._connection is not None, "used outside of its context"
        if self.file is not None:
            with suppress(sqlite3.OperationalError):
                await shrink(self._connection, self.file.parent, lambda _: None, worthwhile)

    async def note_counters(self, session: int, peak_bytes_per_s: float) -> None:
        """Replace the ledger's entries about implausible counters of a session's JOBs by those that hold now."""
        for (job,) in await self.query("SELECT job FROM session_job WHERE session = ?", (session,)):
            async with self.reading() as reader:
                odd = await counters.implausible_counters(reader, job, peak_bytes_per_s)
            await self.run(partial(_write_findings, session=session, job=job, found=Findings({}, odd, None)))


def _write_together(connection: sqlite3.Connection, together: Sequence[_Waiting], *, keeps_records: bool) -> None:
    if not _is_written(connection, together, keeps_records=keeps_records):
        for each in together:
            _is_written(connection, [each], keeps_records=keeps_records)


def _is_written(connection: sqlite3.Connection, together: Sequence[_Waiting], *, keeps_records: bool) -> bool:
    try:
        with transaction(connection):
            for each in together:
                each.applied = write_batches(
                    connection, each.session, each.board, each.changes, keeps_records=keeps_records
                )
            if not keeps_records:
                make_room(connection)
    except Exception as error:  # noqa: BLE001 - it is raised to whoever asked for these changes
        if len(together) > 1:
            return False
        together[0].error = error
    for each in together:
        # The connection's thread keeps its last job, and with it would keep a whole batch in memory.
        each.is_done, each.changes = True, ()
    return True


class StoredSession:
    """Session of a store. `number` is the session's number, `board` that of its board."""

    def __init__(self, store: Store, number: int, board: int, peak_bytes_per_s: float) -> None:
        self.number, self.board, self._store = number, board, store
        self._peak = peak_bytes_per_s

    async def apply(self, changes: Sequence[JobChanges]) -> Sequence[Applied]:
        """Write changes in one durable transaction; return each batch's Applied.

        JOBs that have ended with these changes get their findings afterwards: sampling, counters and full rings.
        """
        # The findings have transactions of their own behind this one: they need all rows of a JOB, and nobody waits for
        # them to acknowledge the bytes.
        applied = await self._store.write(self.number, self.board, changes)
        ended = [each.job for each in changes if each.caught_up and each.state in ENDED_STATES]
        await self._note_findings([await self._of_job("job", name) for name in ended], has_ended=True)
        return applied

    async def end(self, ended_us: int) -> None:
        """Mark the session as ended: pending figures become partial, unless a later session continues their JOB."""
        jobs = await self._store.query(_WITH_MODELS, (self.number,))

        def end(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                for job, _, _ in jobs:
                    settle_figures(connection, self.number, job, CAPTURE_ENDED)
                settle_numbers(connection, self.board, is_over=True)
                connection.execute("UPDATE session SET ended_us = ? WHERE session = ?", (ended_us, self.number))

        await self._store.run(end)
        # JOBs that had ended before got their findings then, and those stay.
        left = [job for job, caught_up, state in jobs if not (caught_up and state in ENDED_STATES)]
        await self._note_findings(left, has_ended=False)

    async def held(self, job: str, paths: Sequence[str]) -> dict[str, HeldLog]:
        """Return what is stored of these logs, by path; unknown logs are left out."""
        stored = [path_to_sql(path) for path in paths]
        rows = await self._store.run(lambda connection: fetched_of(connection, _HELD, (self.board, job), stored))
        return {
            path_from_sql(path): HeldLog(generation, offset, bool(complete), digest, bool(kept))
            for path, generation, offset, complete, digest, kept in rows
        }

    async def thinned(self, job: str, paths: Iterable[str]) -> set[str]:
        """Return the paths of logs whose inferences a flight recorder has thinned, of these that have no row."""
        names = {path: name for path in paths if (name := parse_log_name(path)) and name.inference is not None}
        if not names or not (await self._store.query("SELECT EXISTS (SELECT 1 FROM flight_recorder)"))[0][0]:
            return set()
        counts = [count for name in names.values() if (count := name.current_pic_count or 0) <= LARGEST_INTEGER]
        found = await self._store.run(
            lambda connection: thinning.thinned_inferences(connection, self.board, job, counts)
        )
        return {
            path
            for path, name in names.items()
            if (display_text(name.model or ""), name.model_id or 0, name.current_pic_count or 0) in found
        }

    async def files_to_remove(self) -> list[tuple[str, str]]:
        """Return JOB and path of thinned logs whose files may still be in the mirror."""
        return await self._store.run(lambda connection: thinning.files_to_remove(connection, self.board))

    async def unsettled_logs(self, job: str) -> list[str]:
        """Return the paths of a JOB's data logs that the board never vouched for."""
        return await self._paths(_UNSETTLED, job)

    async def unjudged_logs(self, job: str) -> list[str]:
        """Return the paths of the logs of a JOB's inferences whose figures are pending."""
        return await self._paths(_UNJUDGED, job)

    async def orphan_dones(self, job: str) -> list[str]:
        """Return the paths of a JOB's `.done` files that have no data log beside them."""
        return await self._paths(_ORPHANS, job)

    async def begun_logs(self, job: str) -> dict[str, int]:
        """Return the committed bytes of a JOB's incomplete data logs, by path."""
        rows = await self._store.query(_BEGUN, (self.board, job))
        return {path_from_sql(path): offset for path, offset in rows}

    async def has_finished(self, job: str) -> bool:
        """Return True if everything that the JOB is expected to hold is complete."""
        return bool((await self._store.query(_FINISHED, (self.board, job)))[0][0])

    async def unfinished_logs(self) -> list[CommittedLog]:
        """Return the board's data logs that it never vouched for, of all JOBs."""
        rows = await self._store.query(_UNFINISHED, (self.board,))
        return [CommittedLog(job, path_from_sql(path), *committed) for job, path, *committed in rows]

    async def committed_logs(self, logs: Iterable[tuple[str, str]]) -> list[CommittedLog]:
        """Return the committed positions of data logs, given by JOB and path; unknown logs are left out."""
        found: list[CommittedLog] = []
        for job, path in logs:
            rows = await self._store.query(_AT_PATH, (self.board, job, path_to_sql(path)))
            found += [CommittedLog(job, path, *committed) for _, _, *committed in rows]
        return found

    async def final_inferences(self, job: str) -> int:
        """Return the number of a JOB's inferences whose records are all here, whichever session fetched them."""
        ((final,),), ((thinned,),) = [await self._store.query(each, (self.board, job)) for each in (_FINAL, _THINNED)]
        return int(final + thinned)

    async def copied_bytes(self, job: str) -> int:
        """Return the number of committed bytes of a JOB's logs."""
        sql = "SELECT ifnull(sum(offset), 0) FROM log JOIN job USING (job) WHERE board = ? AND job.name = ?"
        return int((await self._store.query(sql, (self.board, job)))[0][0])

    async def begun_jobs(self) -> set[str]:
        """Return the names of the JOBs of which this session holds a part."""
        sql = "SELECT name FROM job JOIN session_job USING (job) WHERE session = ?"
        return {name for (name,) in await self._store.query(sql, (self.number,))}

    async def standing_jobs(self) -> list[HeldJob]:
        """Return the board's JOBs that are not known to be removed from it."""
        rows = await self._store.query(_STANDING, (self.board,))
        return [HeldJob(name, directory, state, bool(caught_up)) for name, directory, state, caught_up in rows]

    async def forget_standing(self, job: str) -> None:
        """Mark a JOB as removed from the board; the JOB does not become one of this session's by that."""
        await self._store.query("UPDATE job SET state = 'removed' WHERE board = ? AND name = ?", (self.board, job))

    async def state_of(self, job: str) -> str | None:
        """Return the JOB's last known state; None for an unknown JOB."""
        state: str | None = await self._of_job("state", job)
        return state

    async def first_interval(self, job: str) -> int | None:
        """Return the interval that the JOB's acl.json had when it was first read; None where it is unknown."""
        interval: int | None = await self._of_job("interval", job)
        return interval

    async def cover(self, intervals: Sequence[Interval]) -> None:
        """Store intervals of the capture's coverage."""

        def write(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                write_coverage(connection, self.number, intervals)

        await self._store.run(write)

    async def add_clock_sample(self, host_us: int, offset_us: int, round_trip_us: int) -> None:
        """Store one comparison of the board's clock with the host's."""
        row = (self.number, host_us, offset_us, round_trip_us)
        await self._store.query("INSERT INTO clock_sample VALUES (?, ?, ?, ?)", row)

    async def sampling(self) -> dict[str, Any]:
        """Return how well the session's JOBs were sampled so far."""
        async with self._store.reading() as connection:
            return await sampling_of(connection, self.number)

    async def has_recorded(self) -> bool:
        """Return True if the session has any record of a program."""
        async with self._store.reading() as connection:
            return await has_recorded(connection, self.number)

    async def summary(self) -> dict[str, Any]:
        """Return the session's figures so far."""
        async with self._store.reading() as connection:
            return await session_summary(connection, self.number)

    async def _of_job(self, column: str, job: str) -> Any:
        sql = f"SELECT {column} FROM job WHERE board = ? AND name = ?"  # noqa: S608 - a column's name
        rows = await self._store.query(sql, (self.board, job))
        return rows[0][0] if rows else None

    async def _paths(self, sql: str, job: str) -> list[str]:
        return [path_from_sql(path) for (path,) in await self._store.query(sql, (self.board, job))]

    async def _note_findings(self, jobs: Sequence[int], *, has_ended: bool) -> None:
        if not jobs:
            return
        # A reading connection of its own: these queries take long, and other sessions write meanwhile.
        async with self._store.reading() as connection:
            found = {job: await _findings(connection, job, self._peak, has_ended=has_ended) for job in jobs}
        for job, each in found.items():
            await self._store.run(partial(_write_findings, session=self.number, job=job, found=each))


class Findings(NamedTuple):
    """Results of a look at all rows of a JOB: sampling by model and session, and entries of the ledger.

    `counters` has by session the checks that failed; `rings` by log the full rings of calls, None where nobody looked
    for them.
    """

    samplings: dict[tuple[int, int], ModelSampling]
    counters: dict[int, list[str]]
    rings: dict[int, Entry] | None


async def _findings(connection: Running, job: int, peak_bytes_per_s: float, *, has_ended: bool) -> Findings:
    """Look at all rows of a JOB; for full rings only at its end: earlier, some calls are still on their way."""
    return Findings(
        await samplings_of(connection, job),
        await counters.implausible_counters(connection, job, peak_bytes_per_s),
        await full_rings(connection, job) if has_ended else None,
    )


def _write_findings(connection: sqlite3.Connection, session: int, job: int, found: Findings) -> None:
    with transaction(connection):
        _write_samplings(connection, session, job, found.samplings)
        for of, details in found.counters.items():
            entries = [ledger.entry(ledger.IMPLAUSIBLE_COUNTER, detail) for detail in details]
            LedgerRows(connection, of, job).replace_all("counters", entries, of_session=True)
        if found.rings is not None:
            LedgerRows(connection, session, job).replace_rings(found.rings)


def _write_samplings(
    connection: sqlite3.Connection, session: int, job: int, found: Mapping[tuple[int, int], ModelSampling]
) -> None:
    """Write how a session sampled a JOB. Earlier sessions' rows change only where they were unknown."""
    known = connection.execute(
        "SELECT model, session FROM sampling JOIN model USING (model) WHERE job = ? AND due IS NOT NULL", (job,)
    ).fetchall()
    new = {key: each for key, each in found.items() if key[1] == session or key not in known}
    connection.executemany(
        "INSERT OR REPLACE INTO sampling (model, session, input_pic_num, interval, interval_from, sampled, due, late,"
        " never_came, why, passed_over) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(*key, each.pictures, *each.figures, each.passed_over) for key, each in new.items()],
    )
    for of in {of for _, of in new}:
        notes = [note for (_, owner), each in found.items() if owner == of for note in each.notes]
        LedgerRows(connection, of, job).replace_all("sampling", notes, of_session=True)
