"""What a session has, in the order in which it happened: changes as a board's stream would have given them.

Logs are decoded from the mirror, as they were when they came; everything else, and all that another tool told, comes
from the database. Nothing is written, and nothing is kept in memory for each inference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.errors import UsageError
from profagent.files import content
from profagent.formats.board_files import Done
from profagent.formats.countermap import RATIOS
from profagent.formats.inference_layers import RecordColumns
from profagent.formats.model_info import Layer, LayerTable, Run
from profagent.formats.names import DONE_SUFFIX, SIMULATED_MARKER, LogKind, LogName, parse_log_name
from profagent.formats.records import API_DTYPE, NANOSECOND_CLOCK_MHZ
from profagent.ingest.changes import (
    ApiRecords,
    ContentLedger,
    Entry,
    JobChanges,
    KeptLoss,
    LinkLedger,
    LogAnnounced,
    SourceRows,
)
from profagent.ingest.decode import JobDecoder
from profagent.ingest.live_inference import ToldInference
from profagent.ingest.mirror import digest_of
from profagent.store.counter_maps import simulated_map
from profagent.store.database import fetched, fetched_one, pages
from profagent.store.marks import marks_of
from profagent.store.rows import path_from_sql

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence
    from pathlib import Path

    import aiosqlite
    from numpy.typing import NDArray

    from profagent.formats.countermap import CounterMap
    from profagent.ingest.changes import Change
    from profagent.store.database import Row
    from profagent.store.workspace import Workspace

REMEMBERED_LOGS = 64
# What came within this is one batch.
TOGETHER_US = 250_000

_JOBS = """
SELECT j.job, j.name, j.state, j.interval, b.identity, j.frequency_mhz FROM session_job s JOIN job j USING (job)
JOIN board b ON b.board = j.board WHERE s.session = ? ORDER BY j.job
"""
# Those whose inference has no time come last.
_LOGS = """
SELECT l.job, max(ifnull(i.end_us, i.start_us)) AS at, l.path
FROM inference i JOIN segment g USING (inference) JOIN log l USING (log)
WHERE i.session = ? GROUP BY l.log ORDER BY at IS NULL, at, l.job, l.path
"""
_SMALL = "SELECT path FROM log WHERE job = ? AND (kind IN ('info_json', 'net_info', 'layer_info') OR path = ?)"
_CALL_LOGS = "SELECT path FROM log WHERE job = ? AND kind = 'acl_api'"
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
# CROSS JOIN keeps SQLite from scanning all calls for each part.
_CALLS = """
SELECT l.job, r.end_us, l.path, r.api, r.begin_us, r.pid, r.tid
FROM part p CROSS JOIN log l USING (log) CROSS JOIN api r
  ON r.record BETWEEN p.part << 24 AND (p.part << 24) + 0xFFFFFF
WHERE p.session = ? AND l.kind = 'acl_api' ORDER BY r.end_us
"""
# CROSS JOIN keeps the order of the loops: parts first, then their records.
_KERNELS = """
SELECT g.inference, g.net, r.sequence, ifnull(r.layer_index, -1), r.ticks{ratios}
FROM part p CROSS JOIN aicore r ON r.record BETWEEN p.part << 24 AND (p.part << 24) + 0xFFFFFF
CROSS JOIN segment g ON g.segment = r.segment CROSS JOIN inference i ON i.inference = g.inference
WHERE p.session = ? ORDER BY i.end_us IS NULL, i.end_us, i.inference, r.record
"""
_INFERENCE = """
SELECT i.model, m.name, m.model_id, i.device_id, i.current_pic_count, i.start_us, i.end_us
FROM inference i JOIN model m USING (model) WHERE i.inference = ?
"""
_TOLD_LAYERS = "SELECT layer_index, layer_id, name, type FROM layer WHERE model = ? ORDER BY layer_index"
# By table: when a row came, in µs, and its columns behind `log` and `session`.
_SOURCES = {
    "metric": ("time_us", "number, name, time_us, value"),
    "range": ("end_ns / 1000", "number, kind, text, attributes, pid, tid, begin_ns, end_ns, mark, lane"),
    "op_event": ("end_us", "number, model_id, op_type, op_name, start_us, end_us, duration_us, sequence"),
}


class Moment(NamedTuple):
    """What came at a time of the board's clock, None where that is not known.

    Changes, an inference that another tool told, or the text of a mark.
    """

    time_us: int | None
    what: JobChanges | ToldInference | str


class StoredJob(NamedTuple):
    """A JOB of the session; `interval` is that of its acl.json."""

    job: int
    name: str
    state: str
    interval: int | None
    identity: str
    frequency_mhz: int | None

    @property
    def is_told(self) -> bool:
        """Whether it has results of another tool: the database's rows are all that there is of it."""
        return self.frequency_mhz == NANOSECOND_CLOCK_MHZ


async def jobs_of(connection: aiosqlite.Connection, session: int) -> list[StoredJob]:
    """The session's JOBs and other collections."""
    return [StoredJob._make(row) for row in await fetched(connection, _JOBS, (session,))]


async def first_start_us(connection: aiosqlite.Connection, session: int) -> int | None:
    """When its first inference began; None where that is not known."""
    ((start_us,),) = await fetched(connection, "SELECT min(start_us) FROM inference WHERE session = ?", (session,))
    return int(start_us) if start_us else None


class _Mirrored:
    """The files of a JOB in the mirror, decoded in the order in which they are asked for."""

    def __init__(self, directory: Path, name: str, counter_map: CounterMap | None) -> None:
        self._directory, self._name = directory, name
        self._to_come = ""
        self._decoder = JobDecoder(
            self, counter_map=counter_map, marked_map=simulated_map(), remembered_logs=REMEMBERED_LOGS
        )
        self.entries: dict[str, list[Entry]] = {}

    def read(self, path: str, size: int | None = None, *, start: int = 0) -> bytes | None:
        """As of JobFiles."""
        return None if path == self._to_come else content(f"{self._directory}/{path}", size, start)

    def names(self) -> list[str]:
        """Nothing: tables are read before any data."""
        return []

    def begin(self, paths: Iterable[str], calls: Iterable[str]) -> JobChanges:
        """Small files that name and time what comes; of logs of `calls` that there are any."""
        changes: list[Change] = [LogAnnounced(path) for path in calls]
        for path in sorted(paths, key=lambda path: (path != SIMULATED_MARKER, path)):
            data = self.read(path)
            if data is not None:
                changes += self._decoder.snapshot(path, 1, data, digest_of(data))
        return self._batch(changes)

    def logs(self, paths: Sequence[str]) -> JobChanges:
        """Data logs of one moment, with their `.done` files and what the ledger says of them."""
        changes: list[Change] = [LogAnnounced(path) for path in paths]
        for path in paths:
            changes += self._log(path)
        changes += [LinkLedger(path, entry) for path in paths for entry in self.entries.pop(path, ())]
        return self._batch(changes)

    def _log(self, path: str) -> Iterable[Change]:
        data, done = self.read(path) or b"", self.read(path + DONE_SUFFIX)
        self._to_come = path + DONE_SUFFIX
        yield from self._decoder.begin(path, 1, 0)
        yield from self._decoder.append(path, 1, 0, data)
        self._to_come = ""
        if done is not None:
            yield from self._decoder.snapshot(path + DONE_SUFFIX, 1, done, digest_of(done))
            yield from self._decoder.complete(path, 1, len(data), digest_of(data))

    def _batch(self, changes: Iterable[Change]) -> JobChanges:
        """What bytes tell of themselves is in the session's ledger already."""
        return JobChanges(self._name, "", [each for each in changes if not isinstance(each, ContentLedger)])


class StoredSession:
    """One session, as moments."""

    def __init__(
        self,
        connection: aiosqlite.Connection,
        workspace: Workspace,
        session: int,
        jobs: Sequence[StoredJob],
        counter_map: CounterMap | None,
        *,
        has_ratios: bool,
    ) -> None:
        """`has_ratios`: what another tool told has shares of pipes."""
        self._connection, self._workspace, self._session = connection, workspace, session
        self._counter_map, self._ratios = counter_map, RATIOS if has_ratios else ()
        self._jobs = {each.job: each for each in jobs}
        self._mirrored: dict[int, _Mirrored] = {}
        # A model's table is one object: who watches knows by it that layers are the same.
        self._tables: dict[int, LayerTable] = {}
        self._kept_losses: list[Moment] = []
        # What the ledger says of no certain moment, by JOB; None is the board.
        self._untimed: dict[int | None, list[LinkLedger]] = {}

    async def moments(self) -> AsyncIterator[Moment]:
        """All that there is, by time. Raises UsageError where the mirror is not there."""
        await self._read_ledger()
        for moment in self._entries_of(None):
            yield moment
        marks = await marks_of(self._connection, self._session)
        streams = [_in_order(self._kept_losses), _in_order(Moment(*each) for each in marks)]
        told = [job for job in self._jobs.values() if job.is_told]
        if told:
            # An import of another tool's results is one JOB.
            streams.append(self._kernels(told[0]))
        else:
            streams += [self._calls(), self._logs()]
        streams += [self._rows(table, *columns) for table, columns in _SOURCES.items()]
        heads = [(await anext(stream, None), stream) for stream in streams]
        waiting = [(head, stream) for head, stream in heads if head is not None]
        while waiting:
            place = min(range(len(waiting)), key=lambda at: (waiting[at][0].time_us is None, waiting[at][0].time_us))
            moment, stream = waiting[place]
            yield moment
            following = await anext(stream, None)
            if following is None:
                del waiting[place]
            else:
                waiting[place] = following, stream
        for job in self._jobs.values():
            for moment in self._entries_of(job.job):
                yield moment
            yield Moment(None, JobChanges(job.name, "", (), job.state, caught_up=True))

    async def _read_ledger(self) -> None:
        for row in await fetched(self._connection, _LEDGER, (DONE_SUFFIX, self._session)):
            (number, stored, has_inference, *kept), entry = row[:9], Entry(*row[9:])
            job = self._jobs.get(number)
            path = None if stored is None else path_from_sql(stored)
            loss_number, lost_of, *figures = kept
            if loss_number is not None:
                loss = KeptLoss(int(loss_number, 16), entry, lost_of or "", *figures)
                batch = JobChanges("", "", (loss,))
                self._kept_losses.append(Moment(loss.to_us or loss.from_us, batch))
            elif path is not None and job is not None and has_inference and not job.is_told:
                mirrored = await self._of(job)
                mirrored.entries.setdefault(path.removesuffix(DONE_SUFFIX), []).append(entry)
            else:
                self._untimed.setdefault(None if job is None else number, []).append(LinkLedger(path, entry))

    def _entries_of(self, number: int | None, time_us: int | None = None) -> Iterable[Moment]:
        """What the ledger says of a JOB, or of the board, and of no certain moment: once."""
        entries = self._untimed.pop(number, None)
        if entries is not None:
            yield Moment(time_us, JobChanges("" if number is None else self._jobs[number].name, "", entries))

    async def _of(self, job: StoredJob) -> _Mirrored:
        if job.job not in self._mirrored:
            directory = self._workspace.board_mirror(job.identity) / job.name
            if not directory.is_dir():
                raise UsageError(
                    f"the mirror of {job.name} is not in {self._workspace.root}",
                    hint="a replay needs the whole workspace, its folder `mirror` as well as its database",
                )
            self._mirrored[job.job] = _Mirrored(directory, job.name, self._counter_map)
        return self._mirrored[job.job]

    async def _logs(self) -> AsyncIterator[Moment]:
        begun: set[int] = set()
        async for (number, time_us), rows in _grouped(self._connection, _LOGS, self._session, lambda row: row[:2]):
            mirrored = await self._of(self._jobs[number])
            if number not in begun:
                begun.add(number)
                small = await fetched(self._connection, _SMALL, (number, SIMULATED_MARKER))
                calls = await fetched(self._connection, _CALL_LOGS, (number,))
                paths = ([path_from_sql(path) for (path,) in rows] for rows in (small, calls))
                yield Moment(time_us, mirrored.begin(*paths))
                for moment in self._entries_of(number, time_us):
                    yield moment
            yield Moment(time_us, mirrored.logs([path_from_sql(row[2]) for row in rows]))

    async def _kernels(self, job: StoredJob) -> AsyncIterator[Moment]:
        async for inference in self._told_inferences(job.name):
            for moment in self._entries_of(job.job, inference.done.end_us or None):
                yield moment
            yield Moment(inference.done.end_us or None, inference)

    async def _told_inferences(self, job: str) -> AsyncIterator[ToldInference]:
        """What another tool told, an inference after the other; those without a time come last."""
        sql = _KERNELS.format(ratios="".join(f", r.{name}" for name in self._ratios))
        held: list[NDArray[np.float64]] = []
        async for page in pages(self._connection, sql, (self._session,)):
            rows = np.array(page, np.float64)
            for piece in np.split(rows, np.flatnonzero(np.diff(rows[:, 0])) + 1):
                if held and held[0][0, 0] != piece[0, 0]:
                    yield await self._told(job, np.concatenate(held))
                    held = []
                held.append(piece)
        if held:
            yield await self._told(job, np.concatenate(held))

    async def _told(self, job: str, rows: NDArray[np.float64]) -> ToldInference:
        model, name, model_id, device, step, start_us, end_us = await fetched_one(
            self._connection, _INFERENCE, (int(rows[0, 0]),)
        )
        if model not in self._tables:
            self._tables[model] = await self._table(model)
        net, sequence, layer = (rows[:, column].astype(np.int64) for column in (1, 2, 3))
        counters = {ratio: rows[:, 5 + place] for place, ratio in enumerate(self._ratios)}
        return ToldInference(
            job,
            LogName(
                LogKind.AICORE,
                device=device,
                model=name,
                model_id=model_id,
                batch_num=0,
                input_pic_num=0,
                current_pic_count=int(step),
                is_data=True,
            ),
            RecordColumns(LogKind.AICORE, net, sequence, layer.astype(np.int32), rows[:, 4], counters),
            self._tables[model],
            Done(0, start_us or 0, end_us or 0),
        )

    async def _table(self, model: int) -> LayerTable:
        layers = [
            Layer(layer_id, name, type_, index, 0, 0, is_batch=False)
            for index, layer_id, name, type_ in await fetched(self._connection, _TOLD_LAYERS, (model,))
        ]
        runs = (
            Run(each.prof_layer_id, (each,), each.layer_id, each.name, each.type, each.segment, is_batch=False)
            for each in layers
        )
        return LayerTable(tuple(layers), tuple(runs))

    async def _calls(self) -> AsyncIterator[Moment]:
        calls = _grouped(self._connection, _CALLS, self._session, lambda row: (row[0], row[1] // TOGETHER_US, row[2]))
        async for (number, _, stored), rows in calls:
            path = path_from_sql(stored)
            name = parse_log_name(path)
            if name is None:
                continue
            records = np.zeros(len(rows), API_DTYPE)
            for column, place in (("end_us", 1), ("api", 3), ("begin_us", 4), ("pid", 5), ("tid", 6)):
                records[column] = [row[place] for row in rows]
            change = ApiRecords(path, name, np.arange(len(rows)), records)
            yield Moment(rows[-1][1], JobChanges(self._jobs[number].name, "", (change,)))

    async def _rows(self, table: str, time: str, columns: str) -> AsyncIterator[Moment]:
        """Rows of a source's table; of metrics each batch has its names."""
        sql = (
            f"SELECT log.job, {time} AS at, log.path, log, t.* FROM (SELECT log, {columns} FROM {table}"  # noqa: S608 - ours
            f" WHERE session = ?) t JOIN log USING (log) ORDER BY at"
        )
        names: dict[int, list[Row]] = {}
        if table == "metric":
            for log, *row in await fetched(self._connection, "SELECT log, number, name, unit FROM metric_name"):
                names.setdefault(log, []).append(tuple(row))

        together = _grouped(
            self._connection, sql, self._session, lambda row: (row[0], row[1] // TOGETHER_US, *row[2:4])
        )
        async for (number, _, path, log), rows in together:
            changes = [SourceRows(path, table, [row[5:] for row in rows])]
            if log in names:
                changes.insert(0, SourceRows(path, "metric_name", names[log], anew=True))
            yield Moment(rows[-1][1], JobChanges(self._jobs[number].name, "", changes))


async def _in_order(moments: Iterable[Moment]) -> AsyncIterator[Moment]:
    """Those without a time come last."""
    for moment in sorted(moments, key=lambda each: (each.time_us is None, each.time_us or 0)):
        yield moment


async def _grouped(
    connection: aiosqlite.Connection, sql: str, session: int, key: Callable[[Row], Row]
) -> AsyncIterator[tuple[Row, list[Row]]]:
    """Neighbouring rows that belong together."""
    waiting: list[Row] = []
    async for page in pages(connection, sql, (session,)):
        for row in page:
            if waiting and key(waiting[0]) != key(row):
                yield key(waiting[0]), waiting
                waiting = []
            waiting.append(row)
    if waiting:
        yield key(waiting[0]), waiting
