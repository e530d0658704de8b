"""Inferences with all of their records as columns, from which events are composed.

They are read from the rows of a session, or made from a batch's own columns without a query. Records have no index on
their inference: they are found by its logs, as most logs have one inference; in a log that has several, by the range
from the first to the last record of each segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from cachetools import LRUCache

from profagent.formats.countermap import COUNTER_NAMES
from profagent.formats.inference_layers import RecordColumns
from profagent.formats.inference_times import UNUSED, Spans, whole_spans
from profagent.formats.model_info import LayerTable, Run
from profagent.formats.names import DONE_SUFFIX, LogKind, display_text, parse_log_name
from profagent.ingest.changes import LayersKnown, Redecoded
from profagent.ledger import Entry
from profagent.limits import INFERENCES_PER_LOOK, REMEMBERED_PLACED_LOGS, REMEMBERED_TABLES, WAITING_PER_LOOK
from profagent.store.columns import RecordQuery, Segments, places_in, ranges_of
from profagent.store.database import fetched_of
from profagent.store.rows import path_from_sql, path_to_sql

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from profagent.formats.records import Unit
    from profagent.ingest.feed import Group
    from profagent.store.columns import Places
    from profagent.store.database import Row
    from profagent.store.records import State
    from profagent.store.writer import Applied, PlainRows

    Floats = NDArray[np.float64]

_INFERENCES = """
SELECT i.inference, j.name, j.job, j.frequency_mhz, j.family, i.model, m.name, m.model_id, i.device_id, i.stream_id,
       i.batch_num, i.input_pic_num, i.current_pic_count, i.load, i.start_us, i.end_us, i.complete, i.figures, i.why,
       i.session, s.counter_map IS NOT NULL
FROM inference i JOIN model m USING (model) JOIN job j USING (job) JOIN session s ON s.session = i.session
WHERE i.inference IN ({})
"""
_PENDING = "SELECT inference FROM inference WHERE figures = 'pending' ORDER BY inference LIMIT ?"
_OF_LOGS = "SELECT DISTINCT inference FROM log JOIN segment USING (log) WHERE job = ? AND path IN ({})"
_TIMES = {LogKind.AICORE: ("ticks",), LogKind.AICPU: ("begin_us", "end_us")}
_LAST_OF_LOGS = "SELECT log, max(inference) FROM segment WHERE log IN ({}) GROUP BY log"
_LAYERS = "SELECT layer_index, segment, layer_id, name, type FROM layer WHERE model = ? ORDER BY layer_index"
_PATHS = "SELECT log, job, path FROM log WHERE log IN ({})"
_DONES = "SELECT log, path FROM log WHERE job = ? AND path IN ({})"
_ENTRIES = (
    "SELECT log, session, grade, reason, detail, first, last, count FROM ledger_entry WHERE log IN ({}) ORDER BY entry"
)


class InferenceFacts(NamedTuple):
    """Columns of an inference beside its records; None is unknown.

    `inference` and `model` are numbers of the database. `complete` is True if the `.done` of its aicore log is here,
    which has `start_us` and `end_us`. `family` is the JOB's. `figures` and `why` are the state of its time.
    """

    inference: int
    job: str
    frequency_mhz: int | None
    family: str | None
    model: int
    model_name: str
    model_id: int
    device_id: int
    stream_id: int | None
    batch_num: int
    input_pic_num: int
    current_pic_count: int
    load: int
    start_us: int | None
    end_us: int | None
    complete: bool
    figures: str
    why: str | None


class UnitColumns(NamedTuple):
    """Records of one unit. `inference` is the place of each record's inference, rising.

    Records of an inference are in the order of its log.
    """

    records: RecordColumns
    inference: NDArray[np.int64]

    def counts(self, inferences: int) -> NDArray[np.int64]:
        """Return the number of records of each of `inferences` inferences."""
        return np.bincount(self.inference, minlength=inferences)

    def of(self, place: int) -> RecordColumns:
        """Return the records of the inference at a place."""
        begin, end = np.searchsorted(self.inference, (place, place + 1)).tolist()
        return self.records.cut(begin, end)


@dataclass(frozen=True, slots=True)
class InferenceColumns:
    """Inferences and their records as columns; `whole` is the time of each from its first begin to its last end.

    `entries` has by place in `rows` the ledger's entries about the inference's logs; `tables` by model the table of
    layers.
    """

    rows: Sequence[InferenceFacts]
    aicore: UnitColumns
    aicpu: UnitColumns
    whole: Spans
    entries: Mapping[int, Sequence[Entry]]
    tables: Mapping[int, LayerTable]

    @property
    def units(self) -> tuple[UnitColumns, UnitColumns]:
        """Records of both units."""
        return self.aicore, self.aicpu

    @property
    def records(self) -> int:
        """Number of records of both units."""
        return len(self.aicore.inference) + len(self.aicpu.inference)


class ColumnReader:
    """Reader of inferences by one connection, with caches that hold for one state of the database.

    A batch that is passed to `of` renews them.
    """

    def __init__(self, connection: sqlite3.Connection, *, only_times: bool = False) -> None:
        """With `only_times`, counters and entries of the ledger are left out."""
        self._connection, self._only_times = connection, only_times
        # Tables of layers by model. A table stays one object while it is equal: a screen sees by that that the layers
        # are the same.
        self._tables: LRUCache[int, LayerTable | None] = LRUCache(REMEMBERED_TABLES)
        # Models whose tables were read since the last batch that brought tables.
        self._renewed: set[int] = set()
        # Segments' ranges in logs with several inferences; a new batch invalidates them.
        self._places: LRUCache[int, Places] = LRUCache(REMEMBERED_PLACED_LOGS)
        # Counters that records really have; None until some record was read.
        self._counters: tuple[str, ...] | None = None

    def of(self, applied: Applied) -> tuple[list[InferenceColumns], list[int]]:
        """Return the inferences that a committed batch changed, and the numbers of those beyond one look.

        Read the latter a page at a time.
        """
        self._places.clear()
        if any(isinstance(change, LayersKnown) for change in applied.batch.changes):
            self._renewed.clear()
        found = [
            _of_plain(applied.batch.job, plain, {model: self._table(model) for model in {*plain.models}})
            for plain in applied.plain
        ]
        judged = sorted({*applied.judged, *self._decoded_again(applied)})
        if judged:
            found.append(self.read(judged[:INFERENCES_PER_LOOK]))
        return found, judged[INFERENCES_PER_LOOK:]

    def _decoded_again(self, applied: Applied) -> list[int]:
        """Return inferences whose records were decoded anew, though their figures may be as they were."""
        paths = [path_to_sql(each.path) for each in applied.batch.changes if isinstance(each, Redecoded)]
        return [number for (number,) in fetched_of(self._connection, _OF_LOGS, (applied.job,), paths)]

    def pending(self) -> InferenceColumns:
        """Return the oldest inferences whose figures are pending."""
        self._places.clear()
        return self.read([number for (number,) in self._connection.execute(_PENDING, (WAITING_PER_LOOK,))])

    def read(self, inferences: Iterable[int]) -> InferenceColumns:
        """Return the inferences with these numbers, in this order, with all records of all sessions.

        Numbers without a row are left out.
        """
        found = {row[0]: row for row in fetched_of(self._connection, _INFERENCES, (), [*inferences])}
        inferences = [number for number in inferences if number in found]
        stored = [found[number] for number in inferences]
        rows = [_inference(row) for row in stored]
        segments = Segments.of(self._connection, inferences)
        has_map = any(row[-1] for row in stored) and not self._only_times
        aicore, aicpu = (
            self._records(kind, segments.of_unit(kind), has_map=has_map) for kind in (LogKind.AICORE, LogKind.AICPU)
        )
        tables = _known({model: self._table(model) for model in {row.model for row in rows}})
        entries = {} if self._only_times else self._entries(segments, [(row[0], row[-2]) for row in stored])
        return InferenceColumns(rows, aicore, aicpu, _whole(rows, segments), entries, tables)

    def _records(self, kind: LogKind, segments: Segments, *, has_map: bool) -> UnitColumns:
        counters: tuple[str, ...] = ()
        if kind is LogKind.AICORE and has_map:
            counters = COUNTER_NAMES if self._counters is None else self._counters
        places = ranges_of(self._connection, kind, segments, partial(self._places_in, kind))
        names = ("sequence", "layer_index", *_TIMES[kind], *counters)
        ranges = places.within(0, len(segments) and int(segments.inference.max()) + 1)
        table = RecordQuery(kind, names, ranges, segments).read(self._connection)
        columns = table.columns
        values = {name: columns[name] for name in counters}
        # A map has few of the eleven counters; columns without a value are not read again.
        if counters and self._counters is None and len(table):
            values = {name: column for name, column in values.items() if not np.isnan(column).all()}
            self._counters = tuple(values)
        durations = columns["ticks"] if kind is LogKind.AICORE else columns["end_us"] - columns["begin_us"]
        layer = columns["layer_index"].astype(np.int32)
        found = RecordColumns(kind, table.net, columns["sequence"], layer, durations.astype(np.float64), values)
        return UnitColumns(found, table.inference)

    def _places_in(self, kind: LogKind, log: int) -> Places:
        if log not in self._places:
            self._places[log] = places_in(self._connection, kind, log)
        return self._places[log]

    def _table(self, model: int) -> LayerTable | None:
        if model not in self._renewed or model not in self._tables:
            runs = [
                Run(index, (), layer_id, name, type_, segment, is_batch=False)
                for index, segment, layer_id, name, type_ in self._connection.execute(_LAYERS, (model,))
            ]
            table = LayerTable((), tuple(runs)) if runs else None
            # An equal table keeps its old object.
            if model not in self._tables or table != self._tables[model]:
                self._tables[model] = table
            self._renewed.add(model)
        return self._tables[model]

    def _entries(self, segments: Segments, inferences: Sequence[tuple[int, int]]) -> dict[int, list[Entry]]:
        """Return the ledger's entries about logs and their `.done` by place of the last inference of each log.

        `inferences` are pairs of number and session; an entry of another session is left out.
        """
        place_of = {number: place for place, (number, _) in enumerate(inferences)}
        sessions = dict(inferences)
        # A file of another tool belongs to no inference: its entries are shown alone.
        of_log: dict[int, int] = dict(fetched_of(self._connection, _LAST_OF_LOGS, (), np.unique(segments.log).tolist()))
        by_job: dict[int, dict[str, int]] = {}
        for log, job, stored in fetched_of(self._connection, _PATHS, (), list(of_log)):
            path = path_from_sql(stored)
            if parse_log_name(path) is None:
                del of_log[log]
            else:
                by_job.setdefault(job, {})[path + DONE_SUFFIX] = of_log[log]
        for job, dones in by_job.items():
            for log, stored in fetched_of(self._connection, _DONES, (job,), list(map(path_to_sql, dones))):
                of_log[log] = dones[path_from_sql(stored)]
        found: dict[int, list[Entry]] = {}
        for log, session, *entry in fetched_of(self._connection, _ENTRIES, (), list(of_log)):
            inference = of_log[log]
            if sessions.get(inference) == session:
                found.setdefault(place_of[inference], []).append(Entry(*entry))
        return found


def _of_plain(job: str, plain: PlainRows, tables: Mapping[int, LayerTable | None]) -> InferenceColumns:
    groups, units = plain.plain.groups, plain.plain.units
    rows = [
        _of_group(job, plain.frequency_mhz, *each)
        for each in zip(groups, plain.inferences, plain.models, plain.states, strict=True)
    ]
    aicore, aicpu = (
        _of_unit(kind, units.get(kind), plain.plain.places.get(kind)) for kind in (LogKind.AICORE, LogKind.AICPU)
    )
    done = np.array([(row.start_us or np.nan, row.end_us or np.nan) for row in rows], np.float64).reshape(-1, 2)
    on_npu, on_cpu = Spans(done[:, 0], done[:, 1]), Spans(*(np.full(len(rows), each) for each in UNUSED))
    if (unit := units.get(LogKind.AICPU)) is not None:
        places = plain.plain.places[LogKind.AICPU]
        begins, ends = (unit.columns[f"segment_{name}_us"] for name in ("start", "end"))
        on_cpu.begin_us[places] = np.minimum.reduceat(np.where(begins > 0, begins, np.nan), unit.first)
        on_cpu.end_us[places] = np.maximum.reduceat(ends, unit.first)
    entries: dict[int, list[Entry]] = {}
    for kind, of_logs in plain.plain.entries.items():
        for log, of_log in of_logs.items():
            entries.setdefault(int(plain.plain.places[kind][log]), []).extend(of_log)
    return InferenceColumns(rows, aicore, aicpu, _known_spans(on_npu, on_cpu), entries, _known(tables))


def _of_group(
    job: str, frequency_mhz: int | None, group: Group, inference: int, model: int, state: State
) -> InferenceFacts:
    name, done = group.name, group.aicore_done.done
    assert done is not None, "the .done of a group was read"
    return InferenceFacts(
        inference,
        job,
        frequency_mhz,
        None,
        model,
        display_text(name.model or ""),
        name.model_id or 0,
        name.device or 0,
        name.stream,
        name.batch_num or 0,
        name.input_pic_num or 0,
        name.current_pic_count or 0,
        0,
        done.start_us or None,
        done.end_us or None,
        True,
        state[1],
        state[2],
    )


def _of_unit(kind: LogKind, unit: Unit | None, places: NDArray[np.intp] | None) -> UnitColumns:
    if unit is None or places is None:
        none = np.empty(0, np.int64)
        return UnitColumns(RecordColumns(kind, none, none, none.astype(np.int32), none.astype(np.float64), {}), none)
    columns = unit.columns
    if kind is LogKind.AICORE:
        durations = columns["ticks"].astype(np.float64)
    else:
        durations = columns["end_us"].astype(np.float64) - columns["begin_us"].astype(np.float64)
    records = RecordColumns(kind, columns["net"], columns["sequence"], columns["layer_index"], durations, unit.counters)
    return UnitColumns(records, places[unit.seg_log[unit.segment]])


def _known(tables: Mapping[int, LayerTable | None]) -> dict[int, LayerTable]:
    return {model: table for model, table in tables.items() if table is not None}


def _inference(row: Row) -> InferenceFacts:
    number, job, _, mhz, *fields = row[:-2]
    made = InferenceFacts(number, job, mhz, *fields)
    # A count from 2^63 on is a text in the database.
    return made._replace(current_pic_count=int(made.current_pic_count), complete=bool(made.complete))


def _whole(rows: Sequence[InferenceFacts], segments: Segments) -> Spans:
    on_npu = Spans(*(np.full(len(rows), each) for each in UNUSED))
    has_segment = np.zeros(len(rows), np.bool_)
    has_segment[segments.of_unit(LogKind.AICORE).inference] = True
    for place, row in enumerate(rows):
        if row.complete or has_segment[place]:
            on_npu.begin_us[place] = row.start_us or np.nan
            on_npu.end_us[place] = row.end_us or np.nan
    return _known_spans(on_npu, segments.on_cpu(len(rows)))


def _known_spans(*units: Spans) -> Spans:
    whole = whole_spans(units)
    return whole.where(~np.isnan(whole.begin_us + whole.end_us))
