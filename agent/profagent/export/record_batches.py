"""The views of a unit's records by columns, as Arrow batches: no cell of a record is a Python object on its way.

What a record has of its segment, its inference and so on up to its board is read once for each segment, what it has of
its layer once for each layer. Columns have the names of the view.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from profagent.formats.names import LogKind
from profagent.formats.records import CYCLES_PER_TICK
from profagent.store.columns import TABLES, TIMES, Segments, chunks

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from profagent.store.columns import RecordTable

    # Makes an array of values of the database, by the name of their column.
    Arrays = Callable[[str, Sequence[Any]], pa.Array]
    Rows = Mapping[str, Sequence[Any]]

# The key of a record's segment: the view's `segment` is its number in the network.
SEGMENT_KEY = "segment_key"
# CROSS JOIN keeps the order of the numbers.
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
    connection: sqlite3.Connection, kind: LogKind, session: int, names: Sequence[str], arrays: Arrays
) -> Iterator[pa.RecordBatch]:
    """Give these columns of a unit's records that a session fetched, some RECORDS_PER_CHUNK at a time.

    Beside those of the view there are those of the unit's table, and SEGMENT_KEY.
    """
    stored = {row[1] for row in connection.execute(f"PRAGMA table_info({TABLES[kind]})")}
    asked = sorted((stored & {*names} - {"segment"}) | _TIMES[kind])
    for query in chunks(connection, Segments.of_session(connection, session), kind, asked, session):
        records = query.read(connection)
        if len(records):
            joined = _Joined.of(connection, records)
            yield pa.RecordBatch.from_arrays([joined.column(name, session, arrays) for name in names], names)


@dataclass(frozen=True, slots=True)
class _Joined:
    """Records, and rows for each segment and layer that they are of.

    `segment` and `layer` are the place of each record's row in these, -1 where the layer is not known.
    """

    records: RecordTable
    segments: Rows
    segment: NDArray[np.intp]
    layers: Rows
    layer: NDArray[np.intp]

    @classmethod
    def of(cls, connection: sqlite3.Connection, records: RecordTable) -> _Joined:
        used, segment = np.unique(records.segment, return_inverse=True)
        segments = _rows(connection, _OF_SEGMENTS, records.segments.number[used].tolist())
        models = np.array(segments["of_model"], np.int64)
        layers = _rows(connection, _OF_LAYERS, np.unique(models).tolist())
        known = _keys(np.array(layers["of_model"], np.int64), np.array(layers["at"], np.int64))
        keys = _keys(models[segment], records.layer)
        layer = np.searchsorted(known, keys)
        layer[(np.append(known, -1)[layer] != keys) | (keys < 0)] = -1
        return cls(records, segments, segment, layers, layer)

    def column(self, name: str, session: int, arrays: Arrays) -> pa.Array:
        """Return a column of the view."""
        if name == "session":
            return pa.repeat(pa.scalar(session, pa.int64()), len(self.records))
        if name in self.layers:
            return _few(arrays(name, self.layers[name])).take(_known(self.layer))
        if name in self.segments:
            return _few(arrays(name, self.segments[name])).take(pa.array(self.segment))
        if name == "layer_index":
            return _known(self.records.layer)
        if name in {"start_us", "duration_us"}:
            return pa.array(self._start_us() if name == "start_us" else self._duration_us(), from_pandas=True)
        is_key = name == SEGMENT_KEY
        values = self.records.segments.number[self.records.segment] if is_key else self.records.columns[name]
        return pa.array(values, from_pandas=True)

    def _start_us(self) -> NDArray[np.float64]:
        if self.records.kind is LogKind.AICPU:
            return self.records.columns["begin_us"]
        start_us = _floats(self.segments["segment_start_us"])[self.segment]
        return start_us + self._us(self.records.columns["ticks_before"])

    def _duration_us(self) -> NDArray[np.float64]:
        return self.records.duration if self.records.kind is LogKind.AICPU else self._us(self.records.duration)

    def _us(self, ticks: NDArray[np.int64]) -> NDArray[np.float64]:
        return ticks * float(CYCLES_PER_TICK) / _floats(self.segments["frequency_mhz"])[self.segment]


def _rows(connection: sqlite3.Connection, query: str, numbers: list[int]) -> Rows:
    """The columns of a query over such numbers, by name."""
    cursor = connection.execute(query, (json.dumps(numbers),))
    names = [each[0] for each in cursor.description]
    rows = cursor.fetchall()
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def _keys(models: NDArray[np.int64], layers: NDArray[np.integer]) -> NDArray[np.int64]:
    """A key for each layer of a model, rising with both; -1 where the layer is not known."""
    return np.where(layers < 0, -1, models << 32 | layers)


def _few(values: pa.Array) -> pa.Array:
    """Texts as a dictionary, which is not written out for each record."""
    return values.dictionary_encode() if pa.types.is_string(values.type) else values


def _known(places: NDArray[np.integer]) -> pa.Array:
    return pa.array(places, mask=places < 0)


def _floats(values: Sequence[float | None]) -> NDArray[np.float64]:
    """NaN for what is not known."""
    return np.array(values, np.float64)
