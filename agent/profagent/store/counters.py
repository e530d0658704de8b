"""The counter columns of a session's records, exchanged for those of another map: all of them, or none.

Memory is bounded by a batch, however many records there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from profagent.formats.countermap import COUNTER_NAMES
from profagent.formats.plausible import PEAK_MEMORY_RATE, CounterRows
from profagent.formats.records import AICORE_DTYPE
from profagent.store.counter_checks import CounterCheckRows, first_place
from profagent.store.logs import path_from_sql
from profagent.store.parts import RECORDS_PER_PART
from profagent.store.sessions import MapUsed
from profagent.store.transaction import transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from profagent.formats.countermap import CounterMap
    from profagent.formats.plausible import Place

__all__ = ["Filled", "JobBytes", "exchange_counters"]

ROWS_PER_BATCH = 20_000
RECORD = AICORE_DTYPE.itemsize

_PARTS = (
    "SELECT j.job, b.identity, j.name, g.path, p.part, p.first_record FROM part p JOIN log g USING (log)"
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
    """A log's consecutive records, and their bytes as far as they are there; shapes (rows,), (rows,), (rows, 256)."""

    job: int
    first: Place
    keys: NDArray[np.int64]
    are_there: NDArray[np.bool_]
    bytes: NDArray[np.uint8]


def exchange_counters(
    connection: sqlite3.Connection,
    session: int,
    counter_map: CounterMap,
    bytes_of: JobBytes,
    progress: Callable[[int], None] = lambda _: None,
    *,
    peak_bytes_per_s: float = PEAK_MEMORY_RATE,
) -> Filled:
    """Fill the columns from the records' bytes, in one transaction; on an error nothing is changed.

    Records whose bytes are not there have no counters then: what another map read would not go with the rest.
    `progress` is given how many rows were looked at, a batch at a time. What is implausible is counted anew.
    """
    filled = seen = 0
    with transaction(connection):
        checks = _Checks(connection, session, peak_bytes_per_s)
        for batch in _batches(_pieces(connection, session, bytes_of)):
            filled += _fill(connection, batch, counter_map, checks)
            seen += sum(len(rows.keys) for rows in batch)
            progress(seen)
        checks.flush()
        connection.execute(
            "UPDATE session SET counter_map = ?, counter_map_digest = ?, counter_map_likely = ? WHERE session = ?",
            (*MapUsed.of(counter_map), session),
        )
    return Filled(filled, seen - filled)


class _Checks:
    """What cannot be of the session's counters, by JOB."""

    def __init__(self, connection: sqlite3.Connection, session: int, peak_bytes_per_s: float) -> None:
        self._session = session
        jobs = connection.execute(
            "SELECT job, frequency_mhz FROM session_job JOIN job USING (job) WHERE session = ?", (session,)
        ).fetchall()
        self._frequencies: dict[int, int | None] = dict(jobs)
        self._of = {job: CounterCheckRows(connection, job, peak_bytes_per_s) for job, _ in jobs}
        for rows in self._of.values():
            rows.drop(session)

    def add(self, job: int, rows: CounterRows) -> None:
        """Records that have their counters now."""
        self._of[job].add([self._session], rows)

    def flush(self) -> None:
        """Count what was added."""
        for job, rows in self._of.items():
            rows.flush(self._frequencies[job])


def _fill(connection: sqlite3.Connection, batch: Sequence[_Rows], counter_map: CounterMap, checks: _Checks) -> int:
    """Set the columns of rows; returns how many of them have their bytes."""
    are_there = np.concatenate([rows.are_there for rows in batch])
    records = np.concatenate([rows.bytes for rows in batch]).view(AICORE_DTYPE)[:, 0]
    known = {name: np.where(are_there, values, np.nan) for name, values in counter_map.apply(records).items()}
    # NaN is NULL in the database.
    unknown = np.full(len(records), np.nan)
    columns = [known.get(name, unknown).tolist() for name in COUNTER_NAMES]
    keys = np.concatenate([rows.keys for rows in batch]).tolist()
    connection.executemany(_UPDATE, zip(*columns, keys, strict=True))
    ticks, end = records["ticks"].astype(np.int64), 0
    for rows in batch:
        start, end = end, end + len(rows.keys)
        counters = {name: values[start:end] for name, values in known.items()}
        checks.add(rows.job, CounterRows(rows.first, ticks[start:end], counters))
    checks.flush()
    return int(are_there.sum())


def _batches(pieces: Iterator[_Rows]) -> Iterator[list[_Rows]]:
    """Rows of many small logs together: for the records of one, each call of numpy costs more than its work."""
    waiting: list[_Rows] = []
    rows = 0
    for piece in pieces:
        waiting.append(piece)
        rows += len(piece.keys)
        if rows >= ROWS_PER_BATCH:
            yield waiting
            waiting, rows = [], 0
    if waiting:
        yield waiting


def _pieces(connection: sqlite3.Connection, session: int, bytes_of: JobBytes) -> Iterator[_Rows]:
    """The session's rows of records, a page of a part at a time."""
    for number, board, job, stored_path, part, first_record in connection.execute(_PARTS, (session,)):
        last, end = part * RECORDS_PER_PART - 1, (part + 1) * RECORDS_PER_PART
        to_number = first_record - part * RECORDS_PER_PART
        while page := connection.execute(_ROWS, (last, end, ROWS_PER_BATCH)).fetchall():
            table, path = np.array(page, np.int64), path_from_sql(stored_path)
            numbers = table[:, 0] + to_number
            start, count = int(numbers[0]), int(numbers[-1] - numbers[0]) + 1
            data = bytes_of(board, job, path, start * RECORD, count * RECORD)
            yield _Rows(number, first_place(path, start), table[:, 0], *_found(table, numbers - start, data, count))
            last = page[-1][0]


def _found(
    table: NDArray[np.int64], places: NDArray[np.int64], data: bytes, count: int
) -> tuple[NDArray[np.bool_], NDArray[np.uint8]]:
    """The records at these places of the bytes, and whether each is there; one that is another by now is not."""
    whole = data[: len(data) // RECORD * RECORD].ljust(count * RECORD, b"\0")
    found = np.frombuffer(whole, np.uint8).reshape(-1, RECORD)[places]
    records = found.view(AICORE_DTYPE)[:, 0]
    is_same = (records["sequence"] == table[:, 1]) & (records["ticks"] == table[:, 2])
    return (places < len(data) // RECORD) & is_same, found
