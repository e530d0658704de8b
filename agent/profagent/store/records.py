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

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from profagent.ingest.changes import ApiRecords, SegmentRecords
    from profagent.store.counter_checks import CounterCheckRows
    from profagent.store.inferences import InferenceRows
    from profagent.store.logs import LogRow


LARGEST_INTEGER = 2**63 - 1
_INSERT = (
    "INSERT INTO segment (segment, log, inference, kind, ordinal, net, start_us, end_us, ticks)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class SegmentRows:
    """The segments of one JOB. Rows wait for `flush`; their numbers are given before, as nobody else writes."""

    def __init__(self, connection: sqlite3.Connection, inferences: InferenceRows) -> None:
        self._connection = connection
        self._inferences = inferences
        self._next: int | None = None
        self._added: list[tuple[Any, ...]] = []
        self._grown: list[tuple[int, int]] = []

    def numbers(self, row: LogRow, sessions: Sequence[int], change: SegmentRecords) -> NDArray[np.int64]:
        """The segment of each record; new ones are added, the one that went on before grows."""
        ordinal = change.ordinal
        before, last = int(ordinal[0]), int(ordinal[-1])
        # They are numbered without gaps.
        starts = ordinal.searchsorted(np.arange(before, last + 1))
        first = self._take_numbers(len(starts))
        numbers: NDArray[np.int64] = ordinal + (first - before)
        rows = self._rows(row, sessions, change, starts, first)
        continued = self._continued(row, change)
        if continued is not None:
            numbers[ordinal == before] = continued
            self._grown.append((rows[0][-1], continued))
            rows = rows[1:]
        self._added += rows
        row.segment = (last, int(numbers[-1]))
        return numbers

    def flush(self) -> None:
        """Write the rows that wait."""
        self._connection.executemany(_INSERT, self._added)
        self._connection.executemany("UPDATE segment SET ticks = ticks + ? WHERE segment = ?", self._grown)
        self._added, self._grown, self._next = [], [], None

    def void(self, row: LogRow, kind: LogKind) -> None:
        """Remove a log's segments, and the inferences that no log speaks of any more."""
        assert not self._added, "a log is voided after a flush"
        found = self._connection.execute("SELECT DISTINCT inference FROM segment WHERE log = ?", (row.log,)).fetchall()
        self._connection.execute("DELETE FROM segment WHERE log = ?", (row.log,))
        self._inferences.let_go([inference for (inference,) in found], has_times=kind is not LogKind.AICORE)
        row.segment = None

    def _rows(
        self, row: LogRow, sessions: Sequence[int], change: SegmentRecords, starts: NDArray[np.intp], first: int
    ) -> list[tuple[Any, ...]]:
        assert row.model is not None, "a data log's name has a model"
        kind = change.name.kind
        stretches, places = change.stretch[starts].tolist(), starts.tolist()
        inferences = [
            self._inferences.number(row.model, change.name, stretch, sessions[start])
            for stretch, start in zip(stretches, places, strict=True)
        ]
        if kind is LogKind.AICORE:
            ticks = np.add.reduceat(change.columns["ticks"], starts).tolist()
        else:
            ticks = [0] * len(starts)
        begins, ends = _times(change, "segment_start_us", starts), _times(change, "segment_end_us", starts)
        ordinals, nets = change.ordinal[starts].tolist(), change.net[starts].tolist()
        numbers = range(first, first + len(starts))
        return [
            (number, row.log, inference, kind.value, ordinal, net, begin, end, sum_)
            for number, inference, ordinal, net, begin, end, sum_ in zip(
                numbers, inferences, ordinals, nets, begins, ends, ticks, strict=True
            )
        ]

    def _continued(self, row: LogRow, change: SegmentRecords) -> int | None:
        """The row of the segment that goes on with the first of these records; None when it begins here."""
        if change.first_record == 0:
            return None
        ordinal = int(change.ordinal[0])
        if row.segment is None:
            found = self._connection.execute(
                "SELECT ordinal, segment FROM segment WHERE log = ? ORDER BY ordinal DESC LIMIT 1", (row.log,)
            ).fetchone()
            row.segment = found and (int(found[0]), int(found[1]))
        return row.segment[1] if row.segment is not None and row.segment[0] == ordinal else None

    def _take_numbers(self, count: int) -> int:
        if self._next is None:
            (last,) = self._connection.execute("SELECT ifnull(max(segment), 0) FROM segment").fetchone()
            self._next = int(last) + 1
        first, self._next = self._next, self._next + count
        return first


def _times(change: SegmentRecords, column: str, starts: NDArray[np.intp]) -> list[int | float | None]:
    """Times of the segments' first records, which only aicpu has; those beyond SQLite's 64 signed bits are floats."""
    if column not in change.columns:
        return [None] * len(starts)
    times = change.columns[column][starts].tolist()
    return [time if time <= LARGEST_INTEGER else float(time) for time in times]


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
