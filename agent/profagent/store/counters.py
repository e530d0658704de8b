"""The counter columns of a session's records, exchanged for those of another map: all of them, or none.

Memory is bounded by a batch, however many records there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from profagent.formats.countermap import COUNTER_NAMES
from profagent.formats.records import AICORE_DTYPE
from profagent.store.logs import path_from_sql
from profagent.store.parts import RECORDS_PER_PART
from profagent.store.sessions import MapUsed

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from profagent.formats.countermap import CounterMap

__all__ = ["Filled", "JobBytes", "exchange_counters"]

ROWS_PER_BATCH = 20_000
RECORD = AICORE_DTYPE.itemsize

_PARTS = (
    "SELECT b.identity, j.name, g.path, p.part, p.first_record FROM part p JOIN log g USING (log)"
    " JOIN job j USING (job) JOIN board b USING (board) WHERE p.session = ? AND g.kind = 'aicore' ORDER BY p.part"
)
_ROWS = "SELECT record, sequence, ticks FROM aicore WHERE record > ? AND record < ? ORDER BY record LIMIT ?"
_UPDATE = f"UPDATE aicore SET {', '.join(f'{name} = ?' for name in COUNTER_NAMES)} WHERE record = ?"  # noqa: S608 - names of counters


class JobBytes(Protocol):
    """The logs' bytes, wherever they are kept."""

    def __call__(self, board: str, job: str, path: str, start: int, size: int) -> bytes:
        """At most `size` bytes of a log of a board's JOB from `start` on; fewer where they are not there."""


class Filled(NamedTuple):
    """How many records have values of the new map, and how many have none, as their bytes are not kept any more."""

    rows: int
    without_bytes: int


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of records, and their bytes as far as they are there: shapes (rows,), (rows,) and (rows, 256)."""

    keys: NDArray[np.int64]
    are_there: NDArray[np.bool_]
    bytes: NDArray[np.uint8]


def exchange_counters(
    connection: sqlite3.Connection,
    session: int,
    counter_map: CounterMap,
    bytes_of: JobBytes,
    progress: Callable[[int], None] = lambda _: None,
) -> Filled:
    """Fill the columns from the records' bytes, in one transaction; on an error nothing is changed.

    Records whose bytes are not there have no counters then: what another map read would not go with the rest.
    `progress` is given how many rows were looked at, a batch at a time.
    """
    filled = seen = 0
    connection.execute("BEGIN IMMEDIATE")
    try:
        for rows in _batches(_pieces(connection, session, bytes_of)):
            filled += _fill(connection, rows, counter_map)
            seen += len(rows.keys)
            progress(seen)
        connection.execute(
            "UPDATE session SET counter_map = ?, counter_map_digest = ?, counter_map_likely = ? WHERE session = ?",
            (*MapUsed.of(counter_map), session),
        )
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return Filled(filled, seen - filled)


def _fill(connection: sqlite3.Connection, rows: _Rows, counter_map: CounterMap) -> int:
    """Set the columns of rows; returns how many of them have their bytes."""
    known = counter_map.apply(rows.bytes.view(AICORE_DTYPE)[:, 0])
    # NaN is NULL in the database.
    unknown = np.full(len(rows.keys), np.nan)
    columns = [np.where(rows.are_there, known.get(name, unknown), np.nan).tolist() for name in COUNTER_NAMES]
    connection.executemany(_UPDATE, zip(*columns, rows.keys.tolist(), strict=True))
    return int(rows.are_there.sum())


def _batches(pieces: Iterator[_Rows]) -> Iterator[_Rows]:
    """Rows of many small logs together: for the records of one, each call of numpy costs more than its work."""
    waiting: list[_Rows] = []
    for piece in pieces:
        waiting.append(piece)
        if sum(len(each.keys) for each in waiting) >= ROWS_PER_BATCH:
            yield _together(waiting)
            waiting = []
    if waiting:
        yield _together(waiting)


def _together(pieces: Sequence[_Rows]) -> _Rows:
    return _Rows(
        np.concatenate([each.keys for each in pieces]),
        np.concatenate([each.are_there for each in pieces]),
        np.concatenate([each.bytes for each in pieces]),
    )


def _pieces(connection: sqlite3.Connection, session: int, bytes_of: JobBytes) -> Iterator[_Rows]:
    """The session's rows of records, a page of a part at a time."""
    for board, job, stored_path, part, first_record in connection.execute(_PARTS, (session,)):
        last, end = part * RECORDS_PER_PART - 1, (part + 1) * RECORDS_PER_PART
        to_number = first_record - part * RECORDS_PER_PART
        while page := connection.execute(_ROWS, (last, end, ROWS_PER_BATCH)).fetchall():
            table = np.array(page, np.int64)
            numbers = table[:, 0] + to_number
            start, count = int(numbers[0]), int(numbers[-1] - numbers[0]) + 1
            data = bytes_of(board, job, path_from_sql(stored_path), start * RECORD, count * RECORD)
            yield _found(table, numbers - start, data, count)
            last = page[-1][0]


def _found(table: NDArray[np.int64], places: NDArray[np.int64], data: bytes, count: int) -> _Rows:
    """Rows with the records at these places of the bytes; one that is another by now is not there."""
    whole = data[: len(data) // RECORD * RECORD].ljust(count * RECORD, b"\0")
    found = np.frombuffer(whole, np.uint8).reshape(-1, RECORD)[places]
    records = found.view(AICORE_DTYPE)[:, 0]
    is_read = places < len(data) // RECORD
    is_same = (records["sequence"] == table[:, 1]) & (records["ticks"] == table[:, 2])
    return _Rows(table[:, 0], is_read & is_same, found)
