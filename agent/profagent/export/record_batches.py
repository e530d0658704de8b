"""The views of a unit's records in columns: no cell of a record becomes a Python object.

The figures of a record's segment, and of everything above it up to the board, are read once for each segment; those of
its layer once for each layer. Columns have the names of the view.
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
SELECT m.model AS of_model, j.frequency_mhz, b.identity AS board, j.name AS job, i.device_id, m.name AS model,
       m.model_id, i.stream_id, i.batch_num, i.input_pic_num, i.current_pic_count, g.net AS segment,
       NULL AS ori_layer_name, g.start_us AS segment_start_us, g.end_us AS segment_end_us, i.figures
FROM json_each(?) q CROSS JOIN segment g ON g.segment = q.value CROSS JOIN inference i USING (inference)
CROSS JOIN model m USING (model) CROSS JOIN job j USING (job) CROSS JOIN board b USING (board)
"""
_OF_LAYERS = """
SELECT l.model AS of_model, l.layer_index AS at, l.layer_id, l.name AS layer_name, l.type AS layer_type
FROM json_each(?) q CROSS JOIN layer l ON l.model = q.value ORDER BY l.model, l.layer_index
"""
_TIMES = {LogKind.AICORE: {*TIMES[LogKind.AICORE], "ticks_before"}, LogKind.AICPU: {*TIMES[LogKind.AICPU]}}


def record_batches(
    connection: sqlite3.Connection, kind: LogKind, session: int, fields: Sequence[Field]
) -> Iterator[Batch]:
    """Yield columns of a unit's records that a session fetched, RECORDS_PER_CHUNK records at a time.

    Columns of the unit's table and KEYS may be named beside those of the view.
    """
    stored = {row[1] for row in connection.execute(f"PRAGMA table_info({TABLES[kind]})")}
    names = {field.name for field in fields}
    columns = sorted((stored & names - {"segment"}) | _TIMES[kind] | {"layer_index"})
    for query in chunks(connection, Segments.of_session(connection, session), kind, columns, session):
        records = query.read(connection)
        if len(records):
            joined = _JoinedRecords.of(connection, records)
            yield [joined.column(field, session) for field in fields]


@dataclass(frozen=True, slots=True)
class _JoinedRecords:
    """Records with a row for each of their segments and layers.

    `segment` and `layer` hold the index of each record's row in `segments` and `layers`; -1 where the layer is
    unknown.
    """

    records: RecordTable
    segments: Rows
    segment: NDArray[np.intp]
    layers: Rows
    layer: NDArray[np.intp]

    @classmethod
    def of(cls, connection: sqlite3.Connection, records: RecordTable) -> _JoinedRecords:
        used, segment = np.unique(records.segment, return_inverse=True)
        segments = _columns_by_name(connection, _OF_SEGMENTS, records.segments.number[used].tolist())
        models = np.array(segments["of_model"], np.int64)
        layers = _columns_by_name(connection, _OF_LAYERS, np.unique(models).tolist())
        known = _layer_keys(np.array(layers["of_model"], np.int64), np.array(layers["at"], np.int64))
        keys = _layer_keys(models[segment], records.layer)
        layer = np.searchsorted(known, keys)
        layer[(np.append(known, -1)[layer] != keys) | (keys < 0)] = -1
        return cls(records, segments, segment, layers, layer)

    def column(self, field: Field, session: int) -> ColumnValues:
        """Return a column of the view."""
        name = field.name
        if name in self.layers:
            return ColumnValues.of(field.kind, self.layers[name]).taken(self.layer)
        if name in self.segments:
            return ColumnValues.of(field.kind, self.segments[name]).taken(self.segment)
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
        return ticks * float(CYCLES_PER_TICK) / _floats(self.segments["frequency_mhz"])[self.segment]


def _columns_by_name(connection: sqlite3.Connection, query: str, numbers: list[int]) -> Rows:
    cursor = connection.execute(query, (json.dumps(numbers),))
    names = [each[0] for each in cursor.description]
    rows = cursor.fetchall()
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def _layer_keys(models: NDArray[np.int64], layers: NDArray[np.integer]) -> NDArray[np.int64]:
    return np.where(layers < 0, -1, models << 32 | layers)


def _floats(values: Sequence[float | None]) -> NDArray[np.float64]:
    # NumPy turns None, which is an unknown value, into NaN.
    return np.array(values, np.float64)
