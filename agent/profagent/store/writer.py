"""Reduction of changes to rows: each batch in one transaction of few statements."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from profagent import ledger
from profagent.formats.figure_states import (
    JOB_ENDED,
    Figure,
    FigurePart,
    FigureState,
    UnitLog,
    clock_part,
    log_part,
    state_of,
)
from profagent.formats.names import DEVICE_INFO, is_job_name, joined_unit, parse_log_name, split_unit
from profagent.ingest.changes import (
    ApiRecords,
    ContentLedger,
    FrequencyKnown,
    InferenceTimed,
    LayersKnown,
    LinkLedger,
    LogAdvanced,
    LogJudged,
    LogRemoved,
    LogReset,
    NamesAnnounced,
    PassedOver,
    PlainLogs,
    ProfilingKnown,
    RecordedLoss,
    Redecoded,
    SegmentRecords,
    SimulatedKnown,
    SourceRows,
    files_of,
)
from profagent.ingest.source import reckoners
from profagent.limits import JUDGED_TOGETHER, REMEMBERED_STATES
from profagent.link.messages import ENDED_STATES
from profagent.store.database import fetched_of, join_job
from profagent.store.records import RecordRows, file_key, inferences_of
from profagent.store.rows import UNITS, LedgerRows, LogRows, Numbers, path_from_sql, path_to_sql, replace_layers

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from profagent.formats.figure_states import Has
    from profagent.formats.names import LogKind, LogName
    from profagent.ingest.changes import Change, JobChanges
    from profagent.store.inference_columns import InferenceColumns
    from profagent.store.records import State
    from profagent.store.rows import LogRow

COMPLETE = 1
REMOVED = 2
DONE_SUFFIX = ".done"
# Judgement on the log of a unit whose inference came complete in one batch.
WHOLE = UnitLog(1, is_complete=True)

# Logs of inferences whose figures have a certain state: touching these has the figures judged anew.
_LOGS_BY_STATE = (
    "SELECT DISTINCT l.path FROM inference i JOIN model m USING (model) JOIN segment g USING (inference)"
    " JOIN log l USING (log) WHERE m.job = ? AND i.figures {}"
)
_PENDING = _LOGS_BY_STATE.format("= 'pending'")
_NOT_FINAL = _LOGS_BY_STATE.format("<> 'final'")
_FINAL_OF_MODEL = _LOGS_BY_STATE.format("= 'final' AND i.model = ?")
# SQLite orders texts behind numbers, so a count from 2^63 on is the maximum where there is one.
_LATEST = "SELECT max(current_pic_count) FROM inference WHERE model = ?"
# The NPU's clock, and whether info.json is complete: without it the clock may still come.
_CLOCK = (
    "SELECT frequency_mhz, EXISTS (SELECT 1 FROM log WHERE job = ?1 AND path = ?2 AND complete = 1)"
    " FROM job WHERE job = ?1"
)
# A stream that begins anew announces an ended JOB before the daemon has looked at it again. What had come stays caught
# up.
_ENTER = (
    "UPDATE job SET state = ?2, caught_up = max(?3, caught_up AND state = ?2 AND"
    " NOT EXISTS (SELECT 1 FROM log WHERE job = ?1 AND complete = 0)) WHERE job = ?1"
)


class PlainRows(Struct, frozen=True):
    """Rows of inferences that came complete in one batch.

    Attributes:
        plain: Files and records of the inferences.
        inferences: Number of each group's inference.
        models: Number of each group's model.
        states: State of the figures of each.
        frequency_mhz: NPU clock that was known at the time, else None.
    """

    plain: PlainLogs
    inferences: Sequence[int]
    models: Sequence[int]
    states: Sequence[State]
    frequency_mhz: int | None


class Applied(Struct, frozen=True):
    """Outcome of a batch that is committed.

    Attributes:
        batch: The changes that were written.
        job: Number of the JOB's row; None where the batch is about the board itself.
        plain: Rows of inferences that came complete, judged by what they have.
        judged: Numbers of other inferences whose figures changed their state.
        columns: Inferences of `plain` and `judged` with their records, where somebody shows them.
    """

    batch: JobChanges
    job: int | None = None
    plain: Sequence[PlainRows] = ()
    judged: frozenset[int] = frozenset()
    columns: Sequence[InferenceColumns] = ()


class JobRows:
    """Writer of the rows of one JOB in one batch of one session.

    To *judge* an inference is to decide the state of its figures; to *touch* a log marks its inference for that. To
    *settle* judges all that is pending for the last time. To *use* a log notes that a model has logs of its unit. To
    *void* a log drops what its earlier bytes said. *Plain* inferences came complete in one batch.
    """

    def __init__(
        self, connection: sqlite3.Connection, session: int, job: int, numbers: Numbers, *, keeps_records: bool = True
    ) -> None:
        self._connection = connection
        self._session = session
        self._job = job
        # False for a database in memory: records of final inferences are not stored.
        self._keeps_records = keeps_records
        # Rows of logs and models, changed in memory and written once at the end of the batch.
        self._logs = LogRows(connection, job, numbers)
        self._ledger = LedgerRows(connection, session, job)
        self._records = RecordRows(connection, session, job, numbers)
        # Inferences to judge at the end of the batch, by the part of the path that their logs share.
        self._touched: dict[str, LogName] = {}
        # Highest picture count of each model's inferences; a batch asks for it once for each model.
        self._latest: dict[int, int | str | None] = {}
        # Outcome, for Applied.
        self.plain: list[PlainRows] = []
        self.judged: set[int] = set()

    def apply(self, changes: Sequence[Change]) -> None:
        """Write the changes in their order, then judge the inferences that they touched."""
        paths = {path for change in changes if (path := getattr(change, "path", None)) is not None}
        self._logs.load(paths.union(*(change.paths for change in changes if isinstance(change, NamesAnnounced))))
        names = [change.name for change in changes if isinstance(change, SegmentRecords | InferenceTimed)]
        names += [change.records.name for change in changes if isinstance(change, Redecoded) and change.records]
        self._records.load({file_key(self._logs.model(name.model, name.model_id), name) for name in names})
        for change in changes:
            self._RULES[type(change)](self, change)
        # Records before logs: a log that is voided and filled again may be in one batch.
        self._records.write()
        self._logs.write(self._session)
        self._judge("")

    def add_plain(self, plain: PlainLogs) -> None:
        """Write inferences that came complete. They are judged by their own parts, without reading anything back."""
        self._logs.load({file.path for group in plain.groups for file in group.files})
        keys = [file_key(self._logs.model(group.name.model, group.name.model_id), group.name) for group in plain.groups]
        is_new = all(self._logs.is_new(file.path) for group in plain.groups for file in group.files)
        if not is_new or inferences_of(self._connection, keys):
            # Some of these inferences have rows already, whatever the sender held: the general way knows every case.
            self.apply([*plain.as_changes()])
            return
        rows = {kind: self._rows_of(plain, kind) for kind in plain.units}
        frequency_mhz, clock = self._clock("")
        models = [model for model, *_ in keys]
        states = self._plain_states(plain, models, clock)
        self._records.keeps = self._keeps_records or any(state[1] != FigureState.FINAL for state in states)
        inferences: dict[int, int] = {}
        for kind, unit in plain.units.items():
            places = plain.places[kind].tolist()
            groups = [plain.groups[place] for place in places]
            numbers = self._records.add_plain(unit, rows[kind], groups, [states[place] for place in places])
            inferences.update(zip(places, numbers, strict=True))
        of_groups = [inferences[place] for place in range(len(plain.groups))]
        self.plain.append(PlainRows(plain, of_groups, models, states, frequency_mhz))
        self._records.place_new(frequency_mhz)
        self._records.write()
        self._logs.write(self._session)
        self._judge("")

    def _rows_of(self, plain: PlainLogs, kind: LogKind) -> list[LogRow]:
        found: list[LogRow] = []
        for log, place in enumerate(plain.places[kind].tolist()):
            data, done = files_of(plain.groups[place], kind)
            for file in (data, done):
                row = self._logs.row(file.path)
                row.generation, row.offset, row.digest = file.generation, len(file.data), file.digest
                row.complete = COMPLETE
            row = self._logs.row(data.path)
            row.whole = 1
            assert row.name is not None, "the log of a unit has a name"
            assert row.model is not None, "the log of a unit has a model"
            self._use(row.path, row.name, row.model)
            if (entries := plain.entries[kind].get(log)) is not None:
                self._ledger.replace(row, entries)
            found.append(row)
        return found

    def _plain_states(self, plain: PlainLogs, models: Sequence[int], clock: Has) -> list[State]:
        states: list[State] = []
        for group, model in zip(plain.groups, models, strict=True):
            parts = (
                log_part(part, log, 0, is_used=self._logs.is_used(model, part.value))
                for part, log in (
                    (FigurePart.AICORE, WHOLE),
                    (FigurePart.AICPU, None if group.aicpu is None else WHOLE),
                )
            )
            states.append(_state(*parts, clock))
        return states

    def settle(self, ended: str) -> None:
        """Judge all pending figures for the last time: nothing more comes, and `ended` is the reason."""
        self._logs.load(())
        # Only pending figures can change now; a final one stays final.
        self._touch_found(_PENDING)
        self._judge(ended)

    # One method for each kind of change; _RULES below has the table

    def _advance(self, change: LogAdvanced) -> None:
        row = self._logs.row(change.path)
        row.generation, row.offset, row.digest = change.generation, change.offset, change.digest
        row.complete = COMPLETE if change.complete else 0

    def _announce(self, change: NamesAnnounced) -> None:
        for path, name, model in self._logs.announce(change.paths):
            rest = self._use(path, name, model)
            if self._may_have_begun(model, name):
                self._touched[rest] = name

    def _may_have_begun(self, model: int, name: LogName) -> bool:
        if model not in self._latest:
            self._latest[model] = self._connection.execute(_LATEST, (model,)).fetchone()[0]
        latest, count = self._latest[model], name.current_pic_count
        # Counts from 2^63 on are texts in the database.
        return latest is not None and (isinstance(latest, str) or count is None or count <= latest)

    def _judge_log(self, change: LogJudged) -> None:
        row = self._logs.row(change.path)
        row.whole, row.fault = change.whole, change.fault or None
        self._touch(row)

    def _remove(self, change: LogRemoved) -> None:
        row = self._logs.row(change.path)
        row.complete = REMOVED
        self._touch(row)

    def _reset(self, change: LogReset) -> None:
        row = self._logs.row(change.path)
        # A log without bytes has no rows to remove, and its entries in the ledger stay with the session that wrote
        # them.
        if row.offset:
            row.whole, row.fault = 0, None
            self._touch(row)
            self._void(row)

    def _redecode(self, change: Redecoded) -> None:
        row = self._logs.row(change.path)
        if not row.offset or not row.kept:
            # Either a process that died left these bytes in the mirror, and they come again; or the log was passed
            # over.
            return
        self._records.void(row, keeps_parts=True)
        if row.model is not None:
            self._logs.changed.add(row.model)
        self._touch(row)
        if change.records is not None:
            self._records.add(change.records.unit, [row], fetched=len(change.records.unit))

    def _add_segments(self, change: SegmentRecords) -> None:
        row = self._logs.row(change.path)
        if not row.kept:
            return  # a log that went for want of room in memory
        self._records.add(change.unit, [row])
        self._touch(row)
        if row.model is not None and change.unit.after.loads[0] > 1:
            self._logs.changed.add(row.model)

    def _add_calls(self, change: ApiRecords) -> None:
        if self._keeps_records:
            self._records.add_calls(self._logs.row(change.path), change)

    def _add_rows(self, change: SourceRows) -> None:
        """Write rows of a source's own table. Table names are constants of the sources, never text of a board."""
        if not self._keeps_records:
            return
        log = self._logs.row(change.path)
        if change.anew:
            self._connection.execute(f"DELETE FROM {change.table} WHERE log = ?", (log.number,))  # noqa: S608
        if change.rows:
            places = ", ?" * len(change.rows[0])
            rows = [(log.number, self._session, *row) for row in change.rows]
            self._connection.executemany(f"INSERT OR REPLACE INTO {change.table} VALUES (?, ?{places})", rows)  # noqa: S608
            self._records.note_fetched(log)

    def _set_times(self, change: InferenceTimed) -> None:
        self._records.set_times(self._logs.model(change.name.model, change.name.model_id), change)

    def _replace_entries(self, change: ContentLedger) -> None:
        if change.path is None:
            self._ledger.replace_all("content", change.entries)
        else:
            # Dropped marks are counted over all segments together, in `settle_numbers`: one segment alone shows less.
            entries = [entry for entry in change.entries if entry.reason != ledger.DROPPED_MARKS]
            self._ledger.replace(self._logs.row(change.path), entries)

    def _add_entry(self, change: LinkLedger) -> None:
        if change.path is None and change.entry.reason == ledger.REMOVED_UNREAD and self._has_come():
            # A stream that has just begun announces a removal before the daemon has looked at the JOB again.
            return
        self._ledger.add(None if change.path is None else self._logs.row(change.path), change.entry)

    def _has_come(self) -> bool:
        """Return True if the JOB had ended, and everything that it held then had come."""
        query = "SELECT state, caught_up FROM job WHERE job = ?"
        ((state, caught_up),) = self._connection.execute(query, (self._job,)).fetchall()
        return bool(caught_up) and state in ENDED_STATES

    def _set_frequency(self, change: FrequencyKnown) -> None:
        cursor = self._connection.execute(
            "UPDATE job SET frequency_mhz = ?1 WHERE job = ?2 AND frequency_mhz IS NOT ?1", (change.mhz, self._job)
        )
        if cursor.rowcount:
            query = "SELECT inference FROM inference JOIN model USING (model) WHERE job = ?"
            self._records.touch(number for (number,) in self._connection.execute(query, (self._job,)).fetchall())
            self._touch_found(_NOT_FINAL)

    def _set_profiling(self, change: ProfilingKnown) -> None:
        """Store the interval once: the file on the board may have been replaced since."""
        self._connection.execute(
            "UPDATE job SET interval = ?, acl_json = ? WHERE job = ? AND acl_json IS NULL",
            (change.interval, change.acl_json, self._job),
        )

    def _pass_over(self, change: PassedOver) -> None:
        row = self._logs.row(change.path)
        # A log that was passed over before may have records again: a session with another choice may have continued it.
        if row.parts or row.content:
            self._void(row)
        if row.kept:
            self._logs.pass_over(row)
            self._touch(row)

    def _mark_simulated(self, change: SimulatedKnown) -> None:
        self._connection.execute(
            "UPDATE session SET simulated = 1, counter_map = ifnull(counter_map, ?2),"
            " counter_map_digest = iif(counter_map IS NULL, ?1, counter_map_digest) WHERE session = ?3",
            (change.digest, change.counter_map, self._session),
        )

    def _replace_layers(self, change: LayersKnown) -> None:
        model = self._logs.model(change.model, change.model_id)
        layers = ((run.index, run.segment, run.layer_id, run.name, run.type) for run in change.table.runs)
        replace_layers(self._connection, model, layers)

    def _void(self, row: LogRow) -> None:
        if row.name is not None and row.name.is_data:
            self._records.void(row, keeps_parts=False)
        self._ledger.void(row)

    # Figures: an inference is judged again at the end of each batch that changed one of its logs

    def _touch(self, row: LogRow) -> None:
        name = row.name
        if name is None or name.kind not in UNITS:
            return
        assert row.model is not None, "the log of a unit has a model"
        self._touched[self._use(row.path, name, row.model)] = name

    def _use(self, path: str, name: LogName, model: int) -> str:
        """Note that a model has a log of this unit. Return the part of the path that the inference's logs share."""
        data, unit = path.removesuffix(DONE_SUFFIX), name.kind.value
        if path == data and not self._logs.is_used(model, unit):
            self._logs.use(model, unit)
            # A unit that appears for the first time makes final figures of the model pending: its records may still
            # come.
            self._touch_found(_FINAL_OF_MODEL, model)
        spelling, rest = split_unit(data)
        self._logs.spell(model, spelling)
        return rest

    def _touch_found(self, sql: str, *model: int) -> None:
        for (stored,) in self._connection.execute(sql, (self._job, *model)).fetchall():
            path = path_from_sql(stored)
            name = parse_log_name(path)
            if name is not None and name.kind in UNITS:
                self._touched[split_unit(path)[1]] = name

    def _judge(self, ended: str) -> None:
        frequency_mhz, clock = self._clock(ended)
        touched = list(self._touched.items())
        for start in range(0, len(touched), JUDGED_TOGETHER):
            self._judge_some(dict(touched[start : start + JUDGED_TOGETHER]), clock, ended)
        self._touched.clear()
        self._records.place(frequency_mhz)

    def _clock(self, ended: str) -> tuple[int | None, Has]:
        ((frequency_mhz, has_come),) = self._connection.execute(_CLOCK, (self._job, DEVICE_INFO)).fetchall()
        return frequency_mhz, clock_part(frequency_mhz, has_come=bool(has_come), ended=ended)

    def _judge_some(self, touched: Mapping[str, LogName], clock: Has, ended: str) -> None:
        keys = {rest: file_key(self._logs.model(name.model, name.model_id), name) for rest, name in touched.items()}
        of_keys = inferences_of(self._connection, keys.values())
        # Most logs that are only announced have no inference yet.
        inferences = {rest: of_keys[key] for rest, key in keys.items() if key in of_keys}
        logs = self._unit_logs({rest: keys[rest][0] for rest in inferences})
        found: list[tuple[Any, ...]] = []
        for rest, rows in inferences.items():
            of_units = {part: logs.get((part.value, rest)) for part in (FigurePart.AICORE, FigurePart.AICPU)}
            model = keys[rest][0]
            for inference, number, *before in rows:
                aicore, aicpu = (
                    log_part(part, log, number, ended, is_used=self._logs.is_used(model, part.value))
                    for part, log in of_units.items()
                )
                state = _state(aicore, aicpu, clock)
                if [*state] != before:
                    found.append((*state, inference))
        self._connection.executemany("UPDATE inference SET whole = ?, figures = ?, why = ? WHERE inference = ?", found)
        changed = {inference for *_, inference in found}
        self.judged |= changed
        self._records.touch(changed)

    def _unit_logs(self, models: Mapping[str, int]) -> dict[tuple[str, str], UnitLog]:
        """Return what is known of the logs of inferences, by unit and by the shared part of their paths.

        `models` is keyed by the shared part as well. A `.done` alone proves that there was data.
        """
        data = [joined_unit(each, rest) for rest, model in models.items() for each in self._logs.spellings(model)]
        paths = [path_to_sql(path) for each in data for path in (each, each + DONE_SUFFIX)]
        query = "SELECT path, whole, complete, fault FROM log WHERE job = ? AND path IN ({})"
        found: dict[tuple[str, str], UnitLog] = {}
        for stored, whole, complete, fault in fetched_of(self._connection, query, (self._job,), paths):
            path = path_from_sql(stored)
            name = parse_log_name(path)
            assert name is not None, "only logs of units were asked for"
            key = (name.kind.value, split_unit(path.removesuffix(DONE_SUFFIX))[1])
            if name.is_done:
                found.setdefault(key, UnitLog())
            else:
                found[key] = UnitLog(whole, complete == COMPLETE, fault or "", complete == REMOVED)
        return found

    _RULES: ClassVar[dict[type[Change], Callable[[JobRows, Any], None]]] = {
        LogAdvanced: _advance,
        NamesAnnounced: _announce,
        LogJudged: _judge_log,
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
        SourceRows: _add_rows,
        InferenceTimed: _set_times,
        ContentLedger: _replace_entries,
        LinkLedger: _add_entry,
    }


@lru_cache(REMEMBERED_STATES)
def _state(aicore: Has, aicpu: Has, clock: Has) -> State:
    parts = {FigurePart.AICORE: aicore, FigurePart.AICPU: aicpu}
    time = state_of(Figure.TIME, {**parts, FigurePart.CLOCK: clock})
    return int(state_of(Figure.RECORDS, parts).state is FigureState.FINAL), time.state.value, time.why


def write_batches(
    connection: sqlite3.Connection,
    session: int,
    board: int,
    batches: Sequence[JobChanges],
    *,
    keeps_records: bool = True,
) -> list[Applied]:
    """Write the batches of a session of a board in the open transaction, and return what became of each.

    Without `keeps_records`, only records of inferences whose figures are not final are written: these may be needed
    again.
    """
    # Row numbers are handed out here, not by SQLite: a batch refers to its own new rows before they are inserted. The
    # open transaction keeps other writers away.
    numbers = Numbers.of(connection)
    applied = [_write_batch(connection, session, board, numbers, batch, keeps_records) for batch in batches]
    # JOBs have nothing that follows from several logs; only collections of other sources have.
    if others := {batch.job for batch in batches if not is_job_name(batch.job)}:
        settle_numbers(connection, board, others)
    return applied


def settle_numbers(
    connection: sqlite3.Connection, board: int, collections: Iterable[str] | None = None, *, is_over: bool = False
) -> None:
    """Bring the ledger up to date with what follows from several logs.

    It covers these collections, or all of the board's; `is_over` says that nothing more comes.
    """
    for reckon in reckoners(collections):
        for log, entries in reckon(connection, board, is_over):
            connection.execute("DELETE FROM ledger_entry WHERE log = ? AND origin = 'numbers'", (log,))
            for session, job, entry in entries:
                LedgerRows(connection, session, job).insert(log, "numbers", entry)


def _write_batch(
    connection: sqlite3.Connection,
    session: int,
    board: int,
    numbers: Numbers,
    batch: JobChanges,
    keeps_records: bool,
) -> Applied:
    if not batch.job:
        _write_board(LedgerRows(connection, session, None), board, batch.changes)
        return Applied(batch)
    job = join_job(connection, session, board, batch.job, batch.directory)
    parts: list[JobRows] = []

    def begun() -> JobRows:
        parts.append(JobRows(connection, session, job, numbers, keeps_records=keeps_records))
        return parts[-1]

    plain = [change for change in batch.changes if isinstance(change, PlainLogs)]
    if len(plain) < len(batch.changes):
        begun().apply([change for change in batch.changes if not isinstance(change, PlainLogs)])
    for each in plain:
        begun().add_plain(each)
    if batch.state is not None:
        connection.execute(_ENTER, (job, batch.state, int(batch.caught_up)))
        if batch.caught_up and batch.state in ENDED_STATES:
            begun().settle(JOB_ENDED)
    rows = [each for part in parts for each in part.plain]
    return Applied(batch, job, rows, frozenset().union(*(part.judged for part in parts)))


def settle_figures(connection: sqlite3.Connection, session: int, job: int, ended: str) -> None:
    """Settle a JOB's figures in the open transaction: nothing more comes of it, for this reason."""
    JobRows(connection, session, job, Numbers.of(connection)).settle(ended)


def _write_board(ledger: LedgerRows, board: int, changes: Iterable[Change]) -> None:
    for change in changes:
        if isinstance(change, RecordedLoss):
            ledger.keep(board, change)
        else:
            assert isinstance(change, LinkLedger), "nothing else is about the board itself"
            ledger.add(None, change.entry)
