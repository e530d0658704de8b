"""Rows of network segments, which records belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from profagent.formats.names import LogKind

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from profagent.ingest.changes import SegmentRecords
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
