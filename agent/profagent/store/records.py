"""Rows of records: aicore, aicpu and acl_api."""

from __future__ import annotations

from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from profagent.formats.countermap import COUNTER_NAMES
from profagent.formats.names import LogKind
from profagent.store.parts import PartRows
from profagent.store.segments import LARGEST_INTEGER, SegmentRows

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from profagent.ingest.changes import ApiRecords, SegmentRecords
    from profagent.store.inferences import InferenceRows
    from profagent.store.logs import LogRow


_INSERT_AICORE = "INSERT INTO aicore (record, segment, sequence, layer_index, ticks, ticks_before) VALUES (?,?,?,?,?,?)"
_INSERT_COUNTED = f"INSERT INTO aicore VALUES (?,?,?,?,?,?{',?' * len(COUNTER_NAMES)})"  # noqa: S608 - constant text
_INSERT_AICPU = "INSERT INTO aicpu VALUES (?,?,?,?,?,?)"
_INSERT_API = "INSERT INTO api VALUES (?,?,?,?,?,?)"
_TABLES = {LogKind.AICORE: "aicore", LogKind.AICPU: "aicpu", LogKind.ACL_API: "api"}


class RecordRows:
    """The records of one JOB, for one session. Rows wait for `flush`, so that each table gets one insert a batch."""

    def __init__(self, connection: sqlite3.Connection, session: int, inferences: InferenceRows) -> None:
        self._connection = connection
        self._parts = PartRows(connection, session)
        self._segments = SegmentRows(connection, inferences)
        self._waiting: dict[str, list[Iterable[tuple[Any, ...]]]] = {}

    def add_segments(self, row: LogRow, change: SegmentRecords, *, fetched: int = 0) -> None:
        """Rows of an aicore or aicpu log, and the segments they belong to; `fetched` of them were there before."""
        numbers = np.arange(change.first_record, change.first_record + len(change.sequence))
        keys, sessions = self._parts.keys(row, numbers, fetched=fetched)
        segments = self._segments.numbers(row, sessions, change)
        layers = _layer_indices(change.layer_index)
        shared = (keys.tolist(), segments.tolist(), change.sequence.tolist(), layers)
        if change.name.kind is LogKind.AICPU:
            times = (_integers(change.columns["begin_us"]), _integers(change.columns["end_us"]))
            self._wait(_INSERT_AICPU, zip(*shared, *times, strict=True))
            return
        ticks = (change.columns["ticks"].tolist(), change.columns["ticks_before"].tolist())
        if not change.counters:
            self._wait(_INSERT_AICORE, zip(*shared, *ticks, strict=True))
            return
        self._wait(_INSERT_COUNTED, zip(*shared, *ticks, *_counters(change.counters), strict=False))

    def add_calls(self, row: LogRow, change: ApiRecords) -> None:
        """Rows of an acl_api log."""
        keys, _ = self._parts.keys(row, change.number)
        columns = [_integers(change.records[name]) for name in ("api", "begin_us", "end_us", "pid", "tid")]
        self._wait(_INSERT_API, zip(keys.tolist(), *columns, strict=True))

    def flush(self) -> None:
        """Insert the rows that wait."""
        self._segments.flush()
        for statement, chunks in self._waiting.items():
            self._connection.executemany(statement, chain.from_iterable(chunks))
        self._waiting.clear()

    def void(self, row: LogRow, kind: LogKind, *, keeps_parts: bool) -> None:
        """Remove all records of a log; its parts stay where the same records are to come again."""
        self.flush()
        self._connection.executemany(
            f"DELETE FROM {_TABLES[kind]} WHERE record BETWEEN ? AND ?",  # noqa: S608 - a table's name of this module
            self._parts.bounds(row),
        )
        self._segments.void(row, kind)
        if not keeps_parts:
            self._parts.void(row)

    def _wait(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        self._waiting.setdefault(statement, []).append(rows)


def _integers(values: NDArray[Any]) -> list[Any]:
    """Python numbers that SQLite takes: what exceeds its 64 signed bits becomes a float."""
    if values.dtype.kind == "u" and values.dtype.itemsize == 8 and values.size and values.max() > LARGEST_INTEGER:
        return [value if value <= LARGEST_INTEGER else float(value) for value in values.tolist()]
    return list(values.tolist())


def _layer_indices(values: NDArray[np.int32]) -> list[int | None]:
    found: list[int | None] = list(values.tolist())
    return [None if index < 0 else index for index in values.tolist()] if (values < 0).any() else found


def _counters(counters: Mapping[str, NDArray[np.float64]]) -> list[Iterable[float | None]]:
    """The values of all counters, in the order of their columns; NULL where one is not known."""
    values: NDArray[Any] = np.array(list(counters.values()))
    unknown = np.isnan(values)
    if unknown.any():
        values = values.astype(object)
        values[unknown] = None
    known: dict[str, list[float | None]] = dict(zip(counters, values.tolist(), strict=True))
    return [known.get(name, repeat(None)) for name in COUNTER_NAMES]
