"""Keys of records: which part of a log a record is in, and so which session fetched it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from profagent.store.logs import Part

if TYPE_CHECKING:
    import sqlite3

    from numpy.typing import NDArray

    from profagent.store.logs import LogRow

# A record's key is its part's number times this, plus its own number in the part.
RECORDS_PER_PART = 1 << 24


class PartRows:
    """The parts of one JOB's logs, for one session."""

    def __init__(self, connection: sqlite3.Connection, session: int) -> None:
        self._connection = connection
        self._session = session

    def keys(self, row: LogRow, numbers: NDArray[np.int64], *, fetched: int = 0) -> tuple[NDArray[np.int64], list[int]]:
        """Keys of a log's records by their ascending numbers in the file, and the session that each belongs to.

        Records below `fetched` were in the database before and keep their part; any other is this session's.
        """
        parts = self.of(row)
        # A log that was passed over before has none.
        fetched = fetched if parts else 0
        fresh = numbers[numbers.searchsorted(fetched) :] if fetched else numbers
        if len(fresh):
            self._extend(row.log, parts, int(fresh[0]), int(fresh[-1]))
        if len(parts) == 1:
            part = parts[0]
            return numbers + (part.number * RECORDS_PER_PART - part.first_record), [part.session] * len(numbers)
        firsts = np.array([part.first_record for part in parts], np.int64)
        bases = np.array([part.number * RECORDS_PER_PART for part in parts], np.int64) - firsts
        index = np.searchsorted(firsts, numbers, side="right") - 1
        assert not len(index) or index[0] >= 0, "a log's first part begins with its first record"
        return numbers + bases[index], [parts[i].session for i in index.tolist()]

    def void(self, row: LogRow) -> None:
        """Remove the parts of a log whose records are gone."""
        self._connection.execute("DELETE FROM part WHERE log = ?", (row.log,))
        row.parts = []

    def bounds(self, row: LogRow) -> list[tuple[int, int]]:
        """The first and the last key that each part of a log can have."""
        starts = [part.number * RECORDS_PER_PART for part in self.of(row)]
        return [(start, start + RECORDS_PER_PART - 1) for start in starts]

    def of(self, row: LogRow) -> list[Part]:
        """The parts of a log, in the order of their records."""
        if row.parts is None:
            rows = self._connection.execute(
                "SELECT part, first_record, session FROM part WHERE log = ? ORDER BY first_record", (row.log,)
            )
            row.parts = [Part(*found) for found in rows]
        return row.parts

    def _extend(self, log: int, parts: list[Part], first: int, last: int) -> None:
        """See to it that parts of this session hold the records from `first` to `last`."""
        if not parts or parts[-1].session != self._session:
            parts.append(self._add(log, first))
        while last >= parts[-1].first_record + RECORDS_PER_PART:
            parts.append(self._add(log, parts[-1].first_record + RECORDS_PER_PART))

    def _add(self, log: int, first_record: int) -> Part:
        cursor = self._connection.execute(
            "INSERT INTO part (log, session, first_record) VALUES (?, ?, ?)", (log, self._session, first_record)
        )
        return Part(int(cursor.lastrowid or 0), first_record, self._session)
