"""Stored session as a stream in the order of time: inferences, calls, ledger entries, rows of sources and marks.

It only reads the database. Memory holds the columns of all calls, some 50 bytes for each, and nothing for each
inference.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.formats.names import DONE_SUFFIX, parse_log_name
from profagent.formats.records import API_DTYPE
from profagent.ingest.changes import ApiRecords, JobChanges, LinkLedger, RecordedLoss, SourceRows
from profagent.ingest.source import sources
from profagent.ledger import Entry
from profagent.limits import INFERENCES_PER_PAGE, RECORDS_PER_PAGE
from profagent.store.calls import CallTable, call_tables
from profagent.store.database import fetched, pages
from profagent.store.figures import Figures, figures_of
from profagent.store.inference_columns import ColumnReader, InferenceColumns
from profagent.store.marks import marks_of
from profagent.store.rows import path_from_sql

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    import aiosqlite

    from profagent.ingest.live_samples import Model
    from profagent.ingest.source import DatedTable
    from profagent.store.database import Row, Running

# Calls and rows within the same interval of this length are one batch.
TOGETHER_US = 250_000
# Columns that the store adds to each table of a source; rows as the source sent them do not have them.
_OF_EACH_TABLE = ("log", "session")

_JOBS = """
SELECT j.job, j.name, j.state, j.interval, j.frequency_mhz, j.family FROM session_job s JOIN job j USING (job)
WHERE s.session = ? ORDER BY j.job
"""
# Inferences that have no time come last.
_INFERENCES = """
SELECT m.job, ifnull(i.end_us, i.start_us) AS at, i.inference FROM inference i JOIN model m USING (model)
WHERE i.session = ? ORDER BY at IS NULL, at, m.job, i.inference
"""
_CALLED = """
SELECT DISTINCT j.name, m.name, m.model_id
FROM session_job s JOIN log l USING (job) JOIN model m USING (model) JOIN job j ON j.job = l.job
WHERE s.session = ? AND l.kind = 'acl_api'
"""
# `has_inference`: whether the log, or that of a `.done`, has records of one in this session.
_LEDGER = """
SELECT e.job, l.path, EXISTS (
         SELECT 1 FROM log o JOIN segment g USING (log) JOIN inference i USING (inference)
         WHERE o.job = e.job AND i.session = e.session
           AND o.path = iif(substr(l.path, -length(?1)) = ?1, substr(l.path, 1, length(l.path) - length(?1)), l.path)
       ) AS has_inference,
       k.id, k.job_name, k.lost_logs, k.lost_bytes, k.from_us, k.to_us,
       e.grade, e.reason, e.detail, e.first, e.last, e.count
FROM ledger_entry e LEFT JOIN log l USING (log) LEFT JOIN kept_loss k ON k.entry = e.entry
WHERE e.session = ?2 ORDER BY e.entry
"""
# Inferences in the first page. A later page aims at RECORDS_PER_PAGE, by the records per inference of the one before.
_FIRST_INFERENCES = 20
_CALL_LOGS = "SELECT log, job, path FROM session_job JOIN log USING (job) WHERE session = ? AND kind = 'acl_api'"


class StoredInferences(NamedTuple):
    """Inferences that ran at one time: columns, the figures that `figures_of` returned, and the places in both."""

    columns: InferenceColumns
    figures: Sequence[Figures | None]
    places: Sequence[int]


class StreamItem(NamedTuple):
    """Content of the stream at one time in board µs, None if not known: inferences, changes, or the text of a mark."""

    time_us: int | None
    what: StoredInferences | JobChanges | str


class StoredJob(NamedTuple):
    """JOB or other collection of the session; `interval` is that of its acl.json."""

    job: int
    name: str
    state: str
    interval: int | None
    frequency_mhz: int | None
    family: str | None


async def jobs_of(connection: aiosqlite.Connection, session: int) -> list[StoredJob]:
    """Return the session's JOBs and other collections."""
    return [StoredJob._make(row) for row in await fetched(connection, _JOBS, (session,))]


async def called_models(connection: aiosqlite.Connection, session: int) -> list[tuple[str, Model]]:
    """Return the models that have a log of their calls, each with the name of its JOB."""
    return [(job, (name, model_id)) for job, name, model_id in await fetched(connection, _CALLED, (session,))]


async def first_start_us(connection: aiosqlite.Connection, session: int) -> int | None:
    """Return the time in µs at which the session's first inference began; None if not known."""
    ((start_us,),) = await fetched(connection, "SELECT min(start_us) FROM inference WHERE session = ?", (session,))
    return int(start_us) if start_us else None


class ReplayedSession:
    """Reader of one session, as a stream of items."""

    def __init__(self, connection: Running, session: int, jobs: Sequence[StoredJob], slowest: int) -> None:
        """Create a reader; `slowest` is the number of slowest layers that each inference names."""
        self._connection, self._session, self._slowest = connection, session, slowest
        self._jobs = {each.job: each for each in jobs}
        # Losses that the board's daemon recorded.
        self._recorded_losses: list[StreamItem] = []
        # Ledger entries without a time, by JOB; None is the board.
        self._untimed: dict[int | None, list[LinkLedger]] = {}

    async def stream(self) -> AsyncIterator[StreamItem]:
        """Yield all items of the session by time, those without a time last, and then the final state of each JOB."""
        await self._read_ledger()
        for item in self._entries_of(None):
            yield item
        marks = await marks_of(self._connection, self._session)
        streams = [_in_order(self._recorded_losses), _in_order(StreamItem(*each) for each in marks)]
        streams += [self._calls(), self._inferences()]
        streams += [self._rows(table) for source in sources() for table in source.dated]
        # A merge that holds one item of each stream, so that memory does not grow with the session.
        heads = [(await anext(stream, None), stream) for stream in streams]
        waiting = [(head, stream) for head, stream in heads if head is not None]
        while waiting:
            place = min(range(len(waiting)), key=lambda at: (waiting[at][0].time_us is None, waiting[at][0].time_us))
            item, stream = waiting[place]
            yield item
            following = await anext(stream, None)
            if following is None:
                del waiting[place]
            else:
                waiting[place] = following, stream
        for job in self._jobs.values():
            for item in self._entries_of(job.job):
                yield item
            yield StreamItem(None, JobChanges(job.name, "", (), job.state, caught_up=True))

    async def _read_ledger(self) -> None:
        """Read the ledger entries that belong to no inference: the others come with their inferences."""
        async for page in pages(self._connection, _LEDGER, (DONE_SUFFIX, self._session)):
            for number, stored, has_inference, loss_number, lost_of, *rest in page:
                figures, entry = rest[:4], Entry(*rest[4:])
                path = None if stored is None else path_from_sql(stored)
                if loss_number is not None:
                    loss = RecordedLoss(int(loss_number, 16), entry, lost_of or "", *figures)
                    batch = JobChanges("", "", (loss,))
                    self._recorded_losses.append(StreamItem(loss.to_us or loss.from_us, batch))
                elif not has_inference or path is None or parse_log_name(path) is None:
                    known = number if number in self._jobs else None
                    self._untimed.setdefault(known, []).append(LinkLedger(path, entry))

    def _entries_of(self, number: int | None, time_us: int | None = None) -> Iterable[StreamItem]:
        """Return the untimed ledger entries of a JOB, or of the board, as one item, at the first call only."""
        entries = self._untimed.pop(number, None)
        if entries is not None:
            yield StreamItem(time_us, JobChanges("" if number is None else self._jobs[number].name, "", entries))

    async def _inferences(self) -> AsyncIterator[StreamItem]:
        reader = await self._connection.run(ColumnReader)
        cursor = await self._connection.execute(_INFERENCES, (self._session,))
        begun: set[int] = set()
        count = _FIRST_INFERENCES
        while rows := [*await cursor.fetchmany(count)]:
            numbers = [number for _, _, number in rows]
            columns, figures = await self._connection.run(partial(self._read, reader, numbers))
            for (job, time_us), places in groupby(range(len(rows)), lambda place: rows[place][:2]):
                if job not in begun:
                    begun.add(job)
                    for item in self._entries_of(job, time_us):
                        yield item
                yield StreamItem(time_us, StoredInferences(columns, figures, list(places)))
            count = max(1, min(RECORDS_PER_PAGE * len(rows) // max(1, columns.records), INFERENCES_PER_PAGE))

    def _read(
        self, reader: ColumnReader, inferences: Sequence[int], _: sqlite3.Connection
    ) -> tuple[InferenceColumns, Sequence[Figures | None]]:
        columns = reader.read(inferences)
        return columns, figures_of(columns, self._slowest)

    async def _calls(self) -> AsyncIterator[StreamItem]:
        rows = await fetched(self._connection, _CALL_LOGS, (self._session,))
        logs = {log: (self._jobs[job].name, path_from_sql(path)) for log, job, path in rows}
        calls = await self._connection.run(partial(_calls_by_end, self._session))
        is_other = np.diff(calls.log) | np.diff(calls.end_us // TOGETHER_US)
        for places in np.split(np.arange(len(calls)), np.flatnonzero(is_other) + 1) if len(calls) else ():
            together = calls.at(places)
            job, path = logs[int(together.log[0])]
            name = parse_log_name(path)
            if name is None:
                continue
            records = np.zeros(len(places), API_DTYPE)
            for column in ("api", "begin_us", "end_us", "pid", "tid"):
                records[column] = getattr(together, column)
            change = ApiRecords(path, name, np.arange(len(places)), records)
            yield StreamItem(int(together.end_us[-1]), JobChanges(job, "", (change,)))

    async def _rows(self, table: DatedTable) -> AsyncIterator[StreamItem]:
        columns = ", ".join(name for name in await self._columns(table.name) if name not in _OF_EACH_TABLE)
        sql = (
            f"SELECT log.job, {table.time_us} AS at, log.path, log, t.* FROM (SELECT log, {columns} FROM {table.name}"  # noqa: S608 - ours
            f" WHERE session = ?) t JOIN log USING (log) ORDER BY at"
        )
        names: dict[int, list[Row]] = {}
        if table.names:
            for log, _, *row in await fetched(self._connection, f"SELECT * FROM {table.names}"):  # noqa: S608 - ours
                names.setdefault(log, []).append(tuple(row))

        together = _grouped(
            self._connection, sql, self._session, lambda row: (row[0], row[1] // TOGETHER_US, *row[2:4])
        )
        async for (number, _, path, log), rows in together:
            changes = [SourceRows(path, table.name, [row[5:] for row in rows])]
            if log in names:
                changes.insert(0, SourceRows(path, table.names, names[log], anew=True))
            yield StreamItem(rows[-1][1], JobChanges(self._jobs[number].name, "", changes))

    async def _columns(self, table: str) -> list[str]:
        return [row[1] for row in await fetched(self._connection, f"PRAGMA table_info({table})")]


def _calls_by_end(session: int, connection: sqlite3.Connection) -> CallTable:
    calls = CallTable.joined(call_tables(connection, session=session))
    return calls.at(np.argsort(calls.end_us, kind="stable"))


async def _in_order(items: Iterable[StreamItem]) -> AsyncIterator[StreamItem]:
    for item in sorted(items, key=lambda each: (each.time_us is None, each.time_us or 0)):
        yield item


async def _grouped(
    connection: aiosqlite.Connection, sql: str, session: int, key: Callable[[Row], Row]
) -> AsyncIterator[tuple[Row, list[Row]]]:
    waiting: list[Row] = []
    async for page in pages(connection, sql, (session,)):
        for row in page:
            if waiting and key(waiting[0]) != key(row):
                yield key(waiting[0]), waiting
                waiting = []
            waiting.append(row)
    if waiting:
        yield key(waiting[0]), waiting
