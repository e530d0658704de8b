"""Rows of records: aicore, aicpu and acl_api."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from profagent.formats.countermap import COUNTER_NAMES
from profagent.formats.names import LogKind

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from profagent.ingest.changes import ApiRecords, SegmentRecords
    from profagent.store.inferences import InferenceRows

# A record's key is its part's number times this, plus its own number in the part.
RECORDS_PER_PART = 1 << 24
LARGEST_INTEGER = 2**63 - 1

_INSERT_AICORE = "INSERT INTO aicore (record, segment, sequence, layer_index, ticks, ticks_before) VALUES (?,?,?,?,?,?)"
_INSERT_COUNTED = f"INSERT INTO aicore VALUES (?,?,?,?,?,?{',?' * len(COUNTER_NAMES)})"  # noqa: S608 - constant text


@dataclass(slots=True)
class _Part:
    number: int
    first_record: int


@dataclass(slots=True)
class _OpenSegment:
    ordinal: int
    number: int


def _integers(values: NDArray[Any]) -> list[Any]:
    """Python numbers that SQLite takes: what exceeds its 64 signed bits becomes a float."""
    if values.dtype.kind == "u" and values.dtype.itemsize == 8 and values.size and values.max() > LARGEST_INTEGER:
        return [value if value <= LARGEST_INTEGER else float(value) for value in values.tolist()]
    return list(values.tolist())


def _layer_indices(values: NDArray[np.int32]) -> list[int | None]:
    found = values.tolist()
    return [None if index < 0 else index for index in found] if values.size and values.min() < 0 else found


class RecordRows:
    """The records of one JOB, for one session. Rows wait for `flush`, so that each table gets one insert a batch."""

    def __init__(self, connection: sqlite3.Connection, session: int, inferences: InferenceRows) -> None:
        self._connection = connection
        self._session = session
        self._inferences = inferences
        self._parts: dict[int, _Part] = {}
        self._segments: dict[int, _OpenSegment] = {}
        self._waiting: dict[str, list[Iterable[tuple[Any, ...]]]] = {}

    def add_segments(self, log: int, model: int, change: SegmentRecords) -> None:
        """Rows of an aicore or aicpu log, and the segments they belong to."""
        numbers = np.arange(change.first_record, change.first_record + len(change.sequence))
        segments = self._segment_numbers(log, model, change)
        keys = self._keys(log, numbers)
        shared = (keys, segments.tolist(), change.sequence.tolist(), _layer_indices(change.layer_index))
        if change.name.kind is LogKind.AICPU:
            times = (_integers(change.columns["begin_us"]), _integers(change.columns["end_us"]))
            self._wait("INSERT INTO aicpu VALUES (?,?,?,?,?,?)", zip(*shared, *times, strict=True))
            return
        ticks = (change.columns["ticks"].tolist(), change.columns["ticks_before"].tolist())
        if not change.counters:
            self._wait(_INSERT_AICORE, zip(*shared, *ticks, strict=True))
            return
        counters = [self._counter(change, name) for name in COUNTER_NAMES]
        self._wait(_INSERT_COUNTED, zip(*shared, *ticks, *counters, strict=False))

    def add_calls(self, log: int, change: ApiRecords) -> None:
        """Rows of an acl_api log."""
        records = change.records
        columns = [_integers(records[name]) for name in ("api", "begin_us", "end_us", "pid", "tid")]
        self._wait("INSERT INTO api VALUES (?,?,?,?,?,?)", zip(self._keys(log, change.number), *columns, strict=True))

    def flush(self) -> None:
        """Insert the rows that wait."""
        for statement, chunks in self._waiting.items():
            self._connection.executemany(statement, _chained(chunks))
        self._waiting.clear()

    def forget(self, log: int) -> None:
        """Keep nothing in memory of a log that is complete."""
        self._parts.pop(log, None)
        self._segments.pop(log, None)

    def delete(self, log: int) -> None:
        """Remove all records of a log, and its parts."""
        self.flush()
        parts = self._connection.execute("SELECT part FROM part WHERE log = ?", (log,)).fetchall()
        for (part,) in parts:
            bounds = (part * RECORDS_PER_PART, (part + 1) * RECORDS_PER_PART - 1)
            for table in ("aicore", "aicpu", "api"):
                self._connection.execute(f"DELETE FROM {table} WHERE record BETWEEN ? AND ?", bounds)  # noqa: S608
        self._connection.execute("DELETE FROM part WHERE log = ?", (log,))
        self.forget(log)

    def _wait(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        self._waiting.setdefault(statement, []).append(rows)

    @staticmethod
    def _counter(change: SegmentRecords, name: str) -> Iterable[float | None]:
        values = change.counters.get(name)
        return repeat(None) if values is None else [None if v != v else v for v in values.tolist()]  # noqa: PLR0124

    def _keys(self, log: int, numbers: NDArray[np.int64]) -> list[int]:
        if not numbers.size:
            return []
        part = self._part(log, int(numbers[0]))
        end = part.first_record + RECORDS_PER_PART
        if int(numbers[-1]) < end:
            return list((numbers - part.first_record + part.number * RECORDS_PER_PART).tolist())
        cut = int(np.searchsorted(numbers, end))
        return self._keys(log, numbers[:cut]) + self._keys(log, numbers[cut:])

    def _part(self, log: int, first: int) -> _Part:
        part = self._parts.get(log)
        if part is None:
            found = self._connection.execute(
                "SELECT part, first_record FROM part WHERE log = ? AND session = ? ORDER BY part DESC LIMIT 1",
                (log, self._session),
            ).fetchone()
            part = self._new_part(log, first) if found is None else _Part(*found)
        if first >= part.first_record + RECORDS_PER_PART:
            part = self._new_part(log, first)
        self._parts[log] = part
        return part

    def _new_part(self, log: int, first: int) -> _Part:
        cursor = self._connection.execute(
            "INSERT INTO part (log, session, first_record) VALUES (?, ?, ?)", (log, self._session, first)
        )
        return _Part(int(cursor.lastrowid or 0), first)

    def _segment_numbers(self, log: int, model: int, change: SegmentRecords) -> NDArray[np.int64]:
        """The segment row of each record; rows are made or extended."""
        starts = np.flatnonzero(np.diff(change.ordinal, prepend=-1))
        lengths = np.diff(np.append(starts, len(change.ordinal)))
        numbers = [
            self._segment(log, model, change, int(start), int(start + length))
            for start, length in zip(starts, lengths, strict=True)
        ]
        return np.repeat(np.array(numbers, np.int64), lengths)

    def _segment(self, log: int, model: int, change: SegmentRecords, start: int, end: int) -> int:
        ordinal, net = int(change.ordinal[start]), int(change.net[start])
        aicore = change.name.kind is LogKind.AICORE
        ticks = int(change.columns["ticks"][start:end].sum(dtype=np.int64)) if aicore else 0
        inference = self._inferences.number(model, change.name, int(change.stretch[start]))
        number = self._continued(log, inference, change.name.kind.value, ordinal)
        if number is not None:
            self._connection.execute("UPDATE segment SET ticks = ticks + ? WHERE segment = ?", (ticks, number))
        else:
            times = (None, None) if aicore else _segment_times(change, start)
            cursor = self._connection.execute(
                "INSERT INTO segment (inference, kind, ordinal, net, start_us, end_us, ticks) VALUES (?,?,?,?,?,?,?)",
                (inference, change.name.kind.value, ordinal, net, *times, ticks),
            )
            number = int(cursor.lastrowid or 0)
        self._segments[log] = _OpenSegment(ordinal, number)
        return number

    def _continued(self, log: int, inference: int, kind: str, ordinal: int) -> int | None:
        """The row of a segment whose earlier records came in another batch."""
        last = self._segments.get(log)
        if last is not None:
            return last.number if last.ordinal == ordinal else None
        row = self._connection.execute(
            "SELECT segment FROM segment WHERE inference = ? AND kind = ? AND ordinal = ?", (inference, kind, ordinal)
        ).fetchone()
        return None if row is None else int(row[0])


def _segment_times(change: SegmentRecords, start: int) -> tuple[Any, ...]:
    return tuple(_integers(change.columns[name][start : start + 1])[0] for name in ("segment_start_us", "segment_end_us"))


def _chained(chunks: Iterable[Iterable[tuple[Any, ...]]]) -> Iterator[tuple[Any, ...]]:
    for chunk in chunks:
        yield from chunk
