"""Changes become rows. Everything here runs on the writer's own thread, inside one transaction a batch."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.formats.names import display_text, parse_log_name
from profagent.ingest.changes import (
    ApiRecords,
    ContentLedger,
    Entry,
    FrequencyKnown,
    InferenceTimed,
    LayersKnown,
    LinkLedger,
    LogAdvanced,
    LogRemoved,
    LogReset,
    SegmentRecords,
    SimulatedKnown,
)
from profagent.store.inferences import InferenceRows
from profagent.store.records import RecordRows

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from profagent.ingest.changes import Change, JobChanges

# Logs whose row numbers are remembered; any other is looked up again.
REMEMBERED_LOGS = 4096
COMPLETE = 1
REMOVED = 2


@dataclass(slots=True)
class LogRow:
    """A log's number and the model its file name speaks of; `is_new` until anything is written about it."""

    log: int
    model: int | None
    is_new: bool = False


def path_to_sql(path: str) -> str | bytes:
    """A log's path as the database holds it: TEXT, or BLOB where it is not UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return path.encode("utf-8", "surrogateescape")
    return path


def path_from_sql(path: str | bytes) -> str:
    """The path that `path_to_sql` stored."""
    return path if isinstance(path, str) else path.decode("utf-8", "surrogateescape")


class JobRows:
    """The rows of one JOB, for one session."""

    def __init__(self, connection: sqlite3.Connection, session: int, job: int) -> None:
        self.job = job
        self._connection = connection
        self._session = session
        self._logs: OrderedDict[str, LogRow] = OrderedDict()
        self._models: dict[tuple[str, int], int] = {}
        self._inferences = InferenceRows(connection, session)
        self._records = RecordRows(connection, session, self._inferences)

    def apply(self, changes: Sequence[Change]) -> None:
        """Write the changes in their order."""
        for change in changes:
            self._apply(change)
        self._records.flush()
        self._inferences.place(self._frequency())

    def _apply(self, change: Change) -> None:
        match change:
            case LogAdvanced():
                self._advance(change)
            case SegmentRecords():
                log = self._log(change.path)
                self._records.add_segments(log.log, self._model_of(log), change)
            case ApiRecords():
                self._records.add_calls(self._log(change.path).log, change)
            case InferenceTimed():
                self._inferences.set_times(self._model(change.name.model, change.name.model_id), change)
            case ContentLedger():
                self._replace_entries(change)
            case LogReset():
                self._reset(change.path)
            case LogRemoved():
                self._connection.execute("UPDATE log SET complete = ? WHERE log = ?", (REMOVED, self._log(change.path).log))
            case FrequencyKnown():
                self._connection.execute("UPDATE job SET frequency_mhz = ? WHERE job = ?", (change.mhz, self.job))
                self._inferences.touch_all(self.job)
            case SimulatedKnown():
                self._connection.execute(
                    "UPDATE session SET simulated = 1, counter_map = ifnull(counter_map, ?) WHERE session = ?",
                    (change.counter_map, self._session),
                )
            case LayersKnown():
                self._replace_layers(change)
            case LinkLedger():
                log_number = None if change.path is None else self._log(change.path).log
                self._add_link_entry(log_number, change.entry)

    def _frequency(self) -> int | None:
        row = self._connection.execute("SELECT frequency_mhz FROM job WHERE job = ?", (self.job,)).fetchone()
        return None if row is None else row[0]

    def _advance(self, change: LogAdvanced) -> None:
        log = self._log(change.path)
        log.is_new = False
        if change.complete:
            self._records.forget(log.log)
        self._connection.execute(
            "UPDATE log SET generation = ?, offset = ?, complete = ?, digest = ? WHERE log = ?",
            (
                change.generation,
                change.offset,
                COMPLETE if change.complete else 0,
                change.digest,
                log.log,
            ),
        )

    def _reset(self, path: str) -> None:
        log = self._log(path)
        if log.is_new:
            return
        name = parse_log_name(path)
        self._records.delete(log.log)
        if log.model is not None and name is not None and name.inference is not None:
            self._inferences.delete(log.model, name)
        self._connection.execute("DELETE FROM ledger_entry WHERE log = ? AND origin = 'content'", (log.log,))

    def _replace_layers(self, change: LayersKnown) -> None:
        model = self._model(change.model, change.model_id)
        self._connection.execute("DELETE FROM layer WHERE model = ?", (model,))
        self._connection.executemany(
            "INSERT INTO layer VALUES (?, ?, ?, ?, ?, ?)",
            [(model, run.index, run.segment, run.layer_id, run.name, run.type) for run in change.table.runs],
        )

    def _replace_entries(self, change: ContentLedger) -> None:
        log = self._log(change.path).log
        self._connection.execute("DELETE FROM ledger_entry WHERE log = ? AND origin = 'content'", (log,))
        self._add_entries(log, "content", change.entries)

    def _add_link_entry(self, log: int | None, entry: Entry) -> None:
        """Add what happened on the way; a board that tells it again after a reconnection adds nothing."""
        told = self._connection.execute(
            "SELECT 1 FROM ledger_entry WHERE job = ? AND log IS ? AND origin = 'link' AND reason = ? AND detail = ?",
            (self.job, log, entry.reason, display_text(entry.detail)),
        ).fetchone()
        if told is None:
            self._add_entries(log, "link", (entry,))

    def _add_entries(self, log: int | None, origin: str, entries: Sequence[Entry]) -> None:
        self._connection.executemany(
            "INSERT INTO ledger_entry (session, job, log, origin, grade, reason, detail, first, last, count)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (self._session, self.job, log, origin, e.grade, e.reason, display_text(e.detail), e.first, e.last, e.count)
                for e in entries
            ],
        )

    def _log(self, path: str) -> LogRow:
        row = self._logs.get(path)
        if row is None:
            row = self._find_or_add_log(path)
            self._logs[path] = row
            if len(self._logs) > REMEMBERED_LOGS:
                self._logs.popitem(last=False)
        self._logs.move_to_end(path)
        return row

    def _find_or_add_log(self, path: str) -> LogRow:
        stored = path_to_sql(path)
        found = self._connection.execute(
            "SELECT log, model FROM log WHERE job = ? AND path = ?", (self.job, stored)
        ).fetchone()
        if found is not None:
            return LogRow(*found)
        name = parse_log_name(path)
        kind = "foreign" if name is None else "done" if name.is_done else name.kind.value
        model = None if name is None or name.model is None else self._model(name.model, name.model_id)
        cursor = self._connection.execute(
            "INSERT INTO log (job, path, kind, model, generation, offset, complete) VALUES (?, ?, ?, ?, 0, 0, 0)",
            (self.job, stored, kind, model),
        )
        return LogRow(int(cursor.lastrowid or 0), model, is_new=True)

    def _model_of(self, log: LogRow) -> int:
        assert log.model is not None, "a data log's name has a model"
        return log.model

    def _model(self, name: str | None, model_id: int | None) -> int:
        key = (display_text(name or ""), -1 if model_id is None else model_id)
        model = self._models.get(key)
        if model is None:
            self._connection.execute(
                "INSERT OR IGNORE INTO model (job, name, model_id) VALUES (?, ?, ?)", (self.job, *key)
            )
            (model,) = self._connection.execute(
                "SELECT model FROM model WHERE job = ? AND name = ? AND model_id = ?", (self.job, *key)
            ).fetchone()
            self._models[key] = model
        return int(model)


class Writer:
    """All rows of one session."""

    def __init__(self, connection: sqlite3.Connection, session: int, board: int) -> None:
        self._connection = connection
        self._session = session
        self._board = board
        self._jobs: dict[str, JobRows] = {}

    def apply(self, batches: Sequence[JobChanges]) -> None:
        """Write everything in one transaction; on an error nothing of it."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for batch in batches:
                rows = self._job(batch.job, batch.directory)
                rows.apply(batch.changes)
                if batch.state is not None:
                    self._connection.execute("UPDATE job SET state = ? WHERE job = ?", (batch.state, rows.job))
            self._connection.execute("COMMIT")
        except BaseException:
            self._connection.execute("ROLLBACK")
            # Numbers that were handed out in the transaction are void.
            self._jobs.clear()
            raise

    def _job(self, name: str, directory: str) -> JobRows:
        rows = self._jobs.get(name)
        if rows is None:
            self._connection.execute(
                "INSERT OR IGNORE INTO job (board, name, directory, state) VALUES (?, ?, ?, 'open')",
                (self._board, name, directory),
            )
            (job,) = self._connection.execute(
                "SELECT job FROM job WHERE board = ? AND name = ?", (self._board, name)
            ).fetchone()
            self._connection.execute("INSERT OR IGNORE INTO session_job VALUES (?, ?)", (self._session, job))
            rows = self._jobs[name] = JobRows(self._connection, self._session, job)
        return rows
