"""The views of a unit's records in columns: no cell of a record becomes a Python object.

The figures of a record's segment are read once for each segment; those of its model, and of everything above it up to
the board, once for each model; those of its layer once for each layer. Columns have the names of the view, and nothing
is read that the named ones do not need.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from profagent.formats.names import LogKind
from profagent.formats.records import CYCLES_PER_TICK
from profagent.store.columns import TABLES, TIMES, Segments, chunks
from profagent.tables.arrow import ColumnValues

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from profagent.store.columns import RecordTable
    from profagent.tables.arrow import Batch, Field

    Rows = Mapping[str, Sequence[Any]]

# Name of the column with the key of a record's segment. The view's `segment` is its number in the network.
SEGMENT_KEY = "segment_key"
# Columns of records that no view has.
KEYS = frozenset({"record", SEGMENT_KEY, "ticks_before"})
# CROSS JOIN forbids SQLite to reorder the tables, so the rows come in the order of the numbers.
_OF_SEGMENTS = """
SELECT {} FROM json_each(?) q CROSS JOIN segment g ON g.segment = q.value CROSS JOIN inference i USING (inference)
"""
_OF_MODELS = """
SELECT {} FROM json_each(?) q CROSS JOIN model m ON m.model = q.value CROSS JOIN job j USING (job)
CROSS JOIN board b USING (board)
"""
_OF_LAYERS = "SELECT {} FROM json_each(?) q CROSS JOIN layer l ON l.model = q.value ORDER BY l.model, l.layer_index"
# The database's name of each column of a segment, a model and a layer.
_SEGMENT = {
    "device_id": "i.device_id",
    "stream_id": "i.stream_id",
    "batch_num": "i.batch_num",
    "input_pic_num": "i.input_pic_num",
    "current_pic_count": "i.current_pic_count",
    "segment": "g.net",
    "segment_start_us": "g.start_us",
    "segment_end_us": "g.end_us",
    "figures": "i.figures",
}
_MODEL = {
    "board": "b.identity",
    "job": "j.name",
    "frequency_mhz": "j.frequency_mhz",
    "model": "m.name",
    "model_id": "m.model_id",
    "ori_layer_name": "NULL",
}
_LAYER = {"layer_id": "l.layer_id", "layer_name": "l.name", "layer_type": "l.type"}
# Columns that others are computed from.
_NEEDED: dict[LogKind, dict[str, set[str]]] = {
    LogKind.AICORE: {
        "start_us": {"segment_start_us", "ticks_before", "frequency_mhz"},
        "duration_us": {"ticks", "frequency_mhz"},
    },
    LogKind.AICPU: {"start_us": {"begin_us"}, "duration_us": {*TIMES[LogKind.AICPU]}},
}


def record_batches(
    connection: sqlite3.Connection, kind: LogKind, session: int, fields: Sequence[Field]
) -> Iterator[Batch]:
    """Yield columns of a unit's records that a session fetched, RECORDS_PER_CHUNK records at a time.

    Columns of the unit's table and KEYS may be named beside those of the view.
    """
    stored = {row[1] for row in connection.execute(f"PRAGMA table_info({TABLES[kind]})")} - {"segment"}
    names = {field.name for field in fields}
    needed = names.union(*(_NEEDED[kind].get(name, ()) for name in names))
    if names & _LAYER.keys():
        needed.add("layer_index")
    # A query without any column would not tell how many records there are.
    columns = sorted(stored & needed) or ["sequence"]
    for query in chunks(connection, Segments.of_session(connection, session), kind, columns, session):
        records = query.read(connection)
        if len(records):
            joined = _JoinedRecords.of(connection, records, needed)
            yield [joined.column(field, session) for field in fields]


@dataclass(frozen=True, slots=True)
class _JoinedRecords:
    """Records with a row for each of their segments, models and layers, of the columns that are needed.

    `segment`, `model` and `layer` hold the index of each record's row in `segments`, `models` and `layers`; -1 where
    the layer is unknown.
    """

    records: RecordTable
    segments: Rows
    segment: NDArray[np.intp]
    models: Rows
    model: NDArray[np.intp]
    layers: Rows
    layer: NDArray[np.intp]

    @classmethod
    def of(cls, connection: sqlite3.Connection, records: RecordTable, needed: AbstractSet[str]) -> _JoinedRecords:
        used, segment = _places_of_runs(records.segment)
        segments = _rows_of(
            connection, _OF_SEGMENTS, _SEGMENT, needed, {"of_model": "i.model"}, records.segments.number[used].tolist()
        )
        numbers, of_segment = np.unique(np.array(segments["of_model"], np.int64), return_inverse=True)
        models = _rows_of(connection, _OF_MODELS, _MODEL, needed, {"of_model": "m.model"}, numbers.tolist())
        model = of_segment[segment]
        layers: Rows = {}
        layer = model
        if needed & _LAYER.keys():
            keys_of_layer = {"of_model": "l.model", "at": "l.layer_index"}
            layers = _rows_of(connection, _OF_LAYERS, _LAYER, needed, keys_of_layer, numbers.tolist())
            known = _layer_keys(np.array(layers["of_model"], np.int64), np.array(layers["at"], np.int64))
            keys = _layer_keys(numbers[model], records.layer)
            layer = np.searchsorted(known, keys)
            layer[(np.append(known, -1)[layer] != keys) | (keys < 0)] = -1
        return cls(records, segments, segment, models, model, layers, layer)

    def column(self, field: Field, session: int) -> ColumnValues:
        """Return a column of the view."""
        name = field.name
        for rows, row in ((self.layers, self.layer), (self.models, self.model), (self.segments, self.segment)):
            if name in rows:
                return ColumnValues.of(field.kind, rows[name]).taken(row)
        values = self._numbers(name, session)
        if name == "layer_index":
            return ColumnValues.whole(values)
        return (
            ColumnValues.measured(values)
            if values.dtype.kind == "f"
            else ColumnValues(values.astype(np.int64, copy=False))
        )

    def _numbers(self, name: str, session: int) -> NDArray[Any]:
        if name == "session":
            return np.full(len(self.records), session, np.int64)
        if name == "start_us":
            return self._start_us()
        if name == "duration_us":
            return self._duration_us()
        segments: NDArray[np.int64] = self.records.segments.number
        return segments[self.records.segment] if name == SEGMENT_KEY else self.records.columns[name]

    def _start_us(self) -> NDArray[np.float64]:
        if self.records.kind is LogKind.AICPU:
            return self.records.columns["begin_us"]
        start_us = _floats(self.segments["segment_start_us"])[self.segment]
        return start_us + self._us(self.records.columns["ticks_before"])

    def _duration_us(self) -> NDArray[np.float64]:
        return self.records.duration if self.records.kind is LogKind.AICPU else self._us(self.records.duration)

    def _us(self, ticks: NDArray[np.int64]) -> NDArray[np.float64]:
        return ticks * float(CYCLES_PER_TICK) / _floats(self.models["frequency_mhz"])[self.model]


def _rows_of(
    connection: sqlite3.Connection,
    query: str,
    columns: Mapping[str, str],
    needed: AbstractSet[str],
    keys: Mapping[str, str],
    numbers: list[int],
) -> Rows:
    """Return the keys and the needed columns of the rows with these numbers."""
    shown = {**keys, **{name: each for name, each in columns.items() if name in needed}}
    named = ", ".join(f"{each} AS {name}" for name, each in shown.items())
    rows = connection.execute(query.format(named), (json.dumps(numbers),)).fetchall()
    return {name: [row[place] for row in rows] for place, name in enumerate(shown)}


def _places_of_runs(values: NDArray[np.integer]) -> tuple[NDArray[np.integer], NDArray[np.intp]]:
    """Return the different values, rising, and the place of each value among them. Equal ones mostly stand together."""
    begins = np.append(True, values[1:] != values[:-1]).nonzero()[0]
    used, of_run = np.unique(values[begins], return_inverse=True)
    return used, np.repeat(of_run, np.diff(np.append(begins, len(values))))


def _layer_keys(models: NDArray[np.int64], layers: NDArray[np.integer]) -> NDArray[np.int64]:
    return np.where(layers < 0, -1, models << 32 | layers)


def _floats(values: Sequence[float | None]) -> NDArray[np.float64]:
    # NumPy turns None, which is an unknown value, into NaN.
    return np.array(values, np.float64)
