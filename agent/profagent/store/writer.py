"""Changes become rows. Everything here runs on the writer's own thread, inside one transaction a batch."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, ClassVar

from profagent.formats.figure_states import CAPTURE_ENDED, JOB_ENDED
from profagent.formats.names import parse_log_name
from profagent.formats.plausible import PEAK_MEMORY_RATE
from profagent.ingest.changes import (
    ApiRecords,
    ContentLedger,
    FrequencyKnown,
    InferenceTimed,
    KeptLoss,
    LayersKnown,
    LinkLedger,
    LogAdvanced,
    LogAnnounced,
    LogJudged,
    LogRemoved,
    LogReset,
    PassedOver,
    ProfilingKnown,
    Redecoded,
    SegmentRecords,
    SimulatedKnown,
)
from profagent.link.messages import ENDED_STATES
from profagent.store.counter_checks import CounterCheckRows
from profagent.store.figure_states import UNITS, FigureRows
from profagent.store.inferences import InferenceRows
from profagent.store.kept_losses import KeptLossRows
from profagent.store.ledger import LedgerRows
from profagent.store.logs import LogRows
from profagent.store.records import RecordRows
from profagent.store.samples import SampleRows
from profagent.store.sessions import end_session, join_job
from profagent.store.transaction import transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from profagent.ingest.changes import Change, JobChanges
    from profagent.store.logs import LogRow


COMPLETE = 1
REMOVED = 2


class JobRows:
    """The rows of one JOB, for one session."""

    def __init__(self, connection: sqlite3.Connection, session: int, job: int, peak_bytes_per_s: float) -> None:
        self.job = job
        self._connection = connection
        self._session = session
        self._samples = SampleRows(connection, job)
        self._logs = LogRows(connection, job, self._samples)
        self._ledger = LedgerRows(connection, session, job)
        self._inferences = InferenceRows(connection)
        self._checks = CounterCheckRows(connection, job, peak_bytes_per_s)
        self._records = RecordRows(connection, session, self._inferences, self._checks)
        self._figures = FigureRows(connection, job, self._inferences, self._logs)
        self._advanced: dict[int, tuple[int, int, int, bytes | None, int]] = {}

    def apply(self, changes: Sequence[Change]) -> None:
        """Write the changes in their order."""
        for change in changes:
            self._RULES[type(change)](self, change)
        self._flush_advanced()
        self._records.flush()
        self._figures.flush()
        self._inferences.place(self._frequency())
        self._checks.flush(self._frequency())
        self._samples.flush()

    def settle(self, ended: str) -> None:
        """Nothing more comes, for this reason: figures of which something is missing stay unknown."""
        self._figures.settle(ended)
        self._inferences.place(self._frequency())

    def _frequency(self) -> int | None:
        found = self._connection.execute("SELECT frequency_mhz FROM job WHERE job = ?", (self.job,)).fetchone()
        return None if found[0] is None else int(found[0])

    def _advance(self, change: LogAdvanced) -> None:
        row = self._logs.row(change.path)
        row.is_new = False
        complete = COMPLETE if change.complete else 0
        values = (change.generation, change.offset, complete, change.digest)
        self._advanced[row.log] = (*values, row.log)

    def _flush_advanced(self) -> None:
        """Write how far logs have come; of what one batch tells of a log, the last counts."""
        self._connection.executemany(
            "UPDATE log SET generation = ?, offset = ?, complete = ?, digest = ? WHERE log = ?",
            self._advanced.values(),
        )
        self._advanced.clear()

    def _announce(self, change: LogAnnounced) -> None:
        name = parse_log_name(change.path)
        if name is not None and name.kind in UNITS:
            self._logs.row(change.path)
            self._figures.touch(change.path)

    def _judge(self, change: LogJudged) -> None:
        values = (change.whole, change.fault or None, self._logs.row(change.path).log)
        self._connection.execute("UPDATE log SET whole = ?, fault = ? WHERE log = ?", values)
        self._figures.touch(change.path)

    def _remove(self, change: LogRemoved) -> None:
        self._flush_advanced()
        self._figures.touch(change.path)
        self._connection.execute(
            "UPDATE log SET complete = ? WHERE log = ?", (REMOVED, self._logs.row(change.path).log)
        )

    def _reset(self, change: LogReset) -> None:
        row = self._logs.row(change.path)
        # Of a log without bytes nothing is void: what was said of it stays with the session that said it.
        if not row.is_new and self._has_bytes(row):
            self._connection.execute("UPDATE log SET whole = 0, fault = NULL WHERE log = ?", (row.log,))
            self._figures.touch(change.path)
            self._void_records(row, change.path, keeps_parts=False)
            self._ledger.void(row)

    def _has_bytes(self, row: LogRow) -> bool:
        self._flush_advanced()
        (offset,) = self._connection.execute("SELECT offset FROM log WHERE log = ?", (row.log,)).fetchone()
        return bool(offset)

    def _redecode(self, change: Redecoded) -> None:
        row = self._logs.row(change.path)
        if row.is_new or not row.kept:
            # Bytes that a process which died left in the mirror, which come again, or what was passed over before.
            return
        self._void_records(row, change.path, keeps_parts=True)
        if row.model is not None:
            self._samples.touch(row.model)
        self._figures.touch(change.path)
        if change.records is not None:
            self._records.add_segments(row, change.records, fetched=len(change.records.sequence))

    def _void_records(self, row: LogRow, path: str, *, keeps_parts: bool) -> None:
        name = parse_log_name(path)
        if name is not None and name.is_data:
            self._records.void(row, path, name.kind, keeps_parts=keeps_parts)

    def _add_segments(self, change: SegmentRecords) -> None:
        row = self._logs.row(change.path)
        row.is_new = False
        self._records.add_segments(row, change)
        self._figures.touch(change.path)
        if row.model is not None and change.stretch[-1]:
            self._samples.touch(row.model)

    def _add_calls(self, change: ApiRecords) -> None:
        self._records.add_calls(self._logs.row(change.path), change)

    def _set_times(self, change: InferenceTimed) -> None:
        self._inferences.set_times(self._logs.model(change.name.model, change.name.model_id), change)

    def _replace_entries(self, change: ContentLedger) -> None:
        if change.path is None:
            self._ledger.replace_job(change.entries)
        else:
            self._ledger.replace(self._logs.row(change.path), change.entries)

    def _add_entry(self, change: LinkLedger) -> None:
        self._ledger.add(None if change.path is None else self._logs.row(change.path), change.entry)

    def _set_frequency(self, change: FrequencyKnown) -> None:
        if self._frequency() != change.mhz:
            self._connection.execute("UPDATE job SET frequency_mhz = ? WHERE job = ?", (change.mhz, self.job))
            self._inferences.touch_all(self.job)
            self._figures.touch_unknown()

    def _set_profiling(self, change: ProfilingKnown) -> None:
        """What was told first stays: the file may be another one by now."""
        self._connection.execute(
            "UPDATE job SET interval = ?, acl_json = ? WHERE job = ? AND acl_json IS NULL",
            (change.interval, change.acl_json, self.job),
        )

    def _pass_over(self, change: PassedOver) -> None:
        row = self._logs.row(change.path)
        if not row.is_new:
            # Also of one that was passed over before: a session that chose otherwise may have gone on with it.
            self._void_records(row, change.path, keeps_parts=False)
            self._ledger.void(row)
        if not row.kept:
            return
        row.kept = False
        self._figures.touch(change.path)
        self._connection.execute("UPDATE log SET kept = 0 WHERE log = ?", (row.log,))
        name = parse_log_name(change.path)
        if row.model is not None and name is not None and name.inference is not None:
            self._samples.pass_over(row.model, name)

    def _mark_simulated(self, change: SimulatedKnown) -> None:
        self._connection.execute(
            "UPDATE session SET simulated = 1, counter_map = ifnull(counter_map, ?2),"
            " counter_map_digest = iif(counter_map IS NULL, ?1, counter_map_digest) WHERE session = ?3",
            (change.digest, change.counter_map, self._session),
        )

    def _replace_layers(self, change: LayersKnown) -> None:
        model = self._logs.model(change.model, change.model_id)
        self._connection.execute("DELETE FROM layer WHERE model = ?", (model,))
        self._connection.executemany(
            "INSERT INTO layer VALUES (?, ?, ?, ?, ?, ?)",
            [(model, run.index, run.segment, run.layer_id, run.name, run.type) for run in change.table.runs],
        )

    # Of the class, not of each JOB: an object that held its own methods would be freed only when cycles are looked for.
    _RULES: ClassVar[dict[type[Change], Callable[[JobRows, Any], None]]] = {
        LogAdvanced: _advance,
        LogAnnounced: _announce,
        LogJudged: _judge,
        LogReset: _reset,
        LogRemoved: _remove,
        FrequencyKnown: _set_frequency,
        ProfilingKnown: _set_profiling,
        PassedOver: _pass_over,
        SimulatedKnown: _mark_simulated,
        LayersKnown: _replace_layers,
        SegmentRecords: _add_segments,
        Redecoded: _redecode,
        ApiRecords: _add_calls,
        InferenceTimed: _set_times,
        ContentLedger: _replace_entries,
        LinkLedger: _add_entry,
    }


# JOBs whose row numbers are remembered; any other is looked up again.
REMEMBERED_JOBS = 8
_JOBS = "SELECT job FROM session_job WHERE session = ?"


class Writer:
    """All rows of one session."""

    def __init__(
        self, connection: sqlite3.Connection, session: int, board: int, peak_bytes_per_s: float = PEAK_MEMORY_RATE
    ) -> None:
        self._connection = connection
        self.session = session
        self.board = board
        self._peak = peak_bytes_per_s
        self._jobs: OrderedDict[str, JobRows] = OrderedDict()
        self._ledger = LedgerRows(connection, session, None)

    def apply(self, batches: Sequence[JobChanges]) -> None:
        """Write everything in one transaction; on an error nothing of it."""
        write_together(self._connection, [(self, batches)])

    def write(self, batches: Sequence[JobChanges]) -> None:
        """Write everything in the transaction that is open."""
        for batch in batches:
            self._apply(batch)

    def end(self, ended_us: int) -> None:
        """The capture has ended: what is pending stays unknown, unless a later one goes on with its JOB."""
        with transaction(self._connection):
            for (job,) in self._connection.execute(_JOBS, (self.session,)).fetchall():
                JobRows(self._connection, self.session, job, self._peak).settle(CAPTURE_ENDED)
            end_session(self._connection, self.session, ended_us)
        self.forget()

    def forget(self) -> None:
        """Numbers that were handed out in the transaction are void."""
        self._jobs.clear()
        self._ledger = LedgerRows(self._connection, self.session, None)

    def _apply(self, batch: JobChanges) -> None:
        if not batch.job:
            self._apply_to_board(batch.changes)
            return
        rows = self._job(batch.job, batch.directory)
        rows.apply(batch.changes)
        if batch.state is not None:
            state = (batch.state, int(batch.caught_up), rows.job)
            self._connection.execute("UPDATE job SET state = ?, caught_up = ? WHERE job = ?", state)
            if batch.caught_up and batch.state in ENDED_STATES:
                rows.settle(JOB_ENDED)
                # Most likely nothing more comes of it.
                del self._jobs[batch.job]

    def _apply_to_board(self, changes: Sequence[Change]) -> None:
        kept = KeptLossRows(self._connection, self.session, self.board, self._ledger)
        for change in changes:
            if isinstance(change, KeptLoss):
                kept.write(change)
            else:
                assert isinstance(change, LinkLedger), "nothing else is about the board itself"
                self._ledger.add(None, change.entry)

    def _job(self, name: str, directory: str) -> JobRows:
        rows = self._jobs.get(name)
        if rows is None:
            job = self._find_or_add(name, directory)
            rows = self._jobs[name] = JobRows(self._connection, self.session, job, self._peak)
            if len(self._jobs) > REMEMBERED_JOBS:
                self._jobs.popitem(last=False)
        self._jobs.move_to_end(name)
        return rows

    def _find_or_add(self, name: str, directory: str) -> int:
        self._connection.execute(
            "INSERT OR IGNORE INTO job (board, name, directory, state) VALUES (?, ?, ?, 'open')",
            (self.board, name, directory),
        )
        (job,) = self._connection.execute(
            "SELECT job FROM job WHERE board = ? AND name = ?", (self.board, name)
        ).fetchone()
        join_job(self._connection, self.session, job)
        return int(job)


def write_together(connection: sqlite3.Connection, writes: Sequence[tuple[Writer, Sequence[JobChanges]]]) -> None:
    """Write what several sessions have in one transaction; on an error nothing of it."""
    try:
        with transaction(connection):
            for writer, batches in writes:
                writer.write(batches)
    except BaseException:
        for writer, _ in writes:
            writer.forget()
        raise
