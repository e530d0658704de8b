"""Rows of records: aicore, aicpu and acl_api."""

from __future__ import annotations

from array import array
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from profagent.formats.names import LogKind
from profagent.formats.plausible import CounterRows
from profagent.store.counter_checks import first_place
from profagent.store.parts import PartRows
from profagent.store.segments import LARGEST_INTEGER, SegmentRows

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from profagent.ingest.changes import ApiRecords, SegmentRecords
    from profagent.store.counter_checks import CounterCheckRows
    from profagent.store.inferences import InferenceRows
    from profagent.store.logs import LogRow


_SHARED = ("record", "segment", "sequence", "layer_index")
_AICORE = (*_SHARED, "ticks", "ticks_before")
_AICPU = (*_SHARED, "begin_us", "end_us")
_API = ("api", "begin_us", "end_us", "pid", "tid")
_TABLES = {LogKind.AICORE: "aicore", LogKind.AICPU: "aicpu", LogKind.ACL_API: "api"}


class RecordRows:
    """The records of one JOB, for one session. Rows wait for `flush`, so that each table gets one insert a batch."""

    def __init__(
        self, connection: sqlite3.Connection, session: int, inferences: InferenceRows, checks: CounterCheckRows
    ) -> None:
        self._connection = connection
        self._checks = checks
        self._parts = PartRows(connection, session)
        self._segments = SegmentRows(connection, inferences)
        # By table and columns: arrays of the columns' values, of many logs.
        self._waiting: dict[tuple[str, tuple[str, ...]], list[Sequence[NDArray[Any]]]] = {}

    def add_segments(self, row: LogRow, change: SegmentRecords, *, fetched: int = 0) -> None:
        """Rows of an aicore or aicpu log, and the segments they belong to; `fetched` of them were there before."""
        numbers = np.arange(change.first_record, change.first_record + len(change.sequence))
        keys, sessions = self._parts.keys(row, numbers, fetched=fetched)
        segments = self._segments.numbers(row, sessions, change)
        shared = (keys, segments, change.sequence, change.layer_index)
        if change.name.kind is LogKind.AICPU:
            self._wait("aicpu", _AICPU, (*shared, change.columns["begin_us"], change.columns["end_us"]))
            return
        ticks = (change.columns["ticks"], change.columns["ticks_before"])
        self._wait("aicore", (*_AICORE, *change.counters), (*shared, *ticks, *change.counters.values()))
        if change.counters:
            first = first_place(change.path, change.first_record)
            self._checks.add(sessions, CounterRows(first, change.columns["ticks"], change.counters))

    def add_calls(self, row: LogRow, change: ApiRecords) -> None:
        """Rows of an acl_api log."""
        keys, _ = self._parts.keys(row, change.number)
        self._wait("api", ("record", *_API), (keys, *(change.records[name] for name in _API)))

    def flush(self) -> None:
        """Insert the rows that wait."""
        self._segments.flush()
        for (table, names), logs in self._waiting.items():
            # Together: for the records of one small file, each call of numpy costs more than its work.
            columns = [
                _values(name, np.concatenate(parts)) for name, parts in zip(names, zip(*logs, strict=True), strict=True)
            ]
            self._connection.executemany(_insert(table, names), zip(*columns, strict=True))
        self._waiting.clear()

    def void(self, row: LogRow, path: str, kind: LogKind, *, keeps_parts: bool) -> None:
        """Remove all records of a log; its parts stay where the same records are to come again."""
        self.flush()
        if kind is LogKind.AICORE:
            self._checks.take_back(path, self._parts.of(row), comes_again=keeps_parts)
        self._connection.executemany(
            f"DELETE FROM {_TABLES[kind]} WHERE record BETWEEN ? AND ?",  # noqa: S608 - a table's name of this module
            self._parts.bounds(row),
        )
        self._segments.void(row, kind)
        if not keeps_parts:
            self._parts.void(row)

    def _wait(self, table: str, names: tuple[str, ...], columns: Sequence[NDArray[Any]]) -> None:
        if len(columns[0]):
            self._waiting.setdefault((table, names), []).append(columns)


@lru_cache
def _insert(table: str, names: tuple[str, ...]) -> str:
    places = ",".join("?" * len(names))
    return f"INSERT INTO {table} ({','.join(names)}) VALUES ({places})"  # noqa: S608 - names of this module and of counters


def _values(name: str, column: NDArray[Any]) -> Iterable[Any]:
    """A column's values as SQLite takes them: None for no layer, a float for more than its 64 signed bits.

    A counter that is not known is NaN, which SQLite stores as NULL.
    """
    if name == "layer_index" and column.min() < 0:
        return [None if index < 0 else index for index in column.tolist()]
    if column.dtype == np.uint64 and column.max() > LARGEST_INTEGER:
        return [value if value <= LARGEST_INTEGER else float(value) for value in column.tolist()]
    # Each value is made when its row is: a list of all of them takes longer.
    return array(column.dtype.char, column.tobytes())
