"""Where the runtime's ring of calls may have overflowed between two flushes (format page 3.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from profagent.ingest.assess import RING_CALLS, ring_entry
from profagent.store.parts import RECORDS_PER_PART
from profagent.store.transaction import transaction

if TYPE_CHECKING:
    import sqlite3

    from numpy.typing import NDArray


def most_calls_between(call_ends: NDArray[np.float64], flushes: NDArray[np.float64]) -> int:
    """The most calls between two neighbouring flushes; both are sorted times in microseconds.

    The runtime flushes at each sampled inference and at the unload; a call belongs to the first flush after it.
    """
    if not len(call_ends):
        return 0
    return int(np.bincount(np.searchsorted(flushes, call_ends)).max())


def note_full_rings(connection: sqlite3.Connection, session: int, board: int, job: str) -> None:
    """Write a note for each acl_api log that has as many calls between known flushes as the ring holds."""
    logs = connection.execute(
        "SELECT log, model, job.job FROM log JOIN job USING (job)"
        " WHERE board = ? AND job.name = ? AND kind = 'acl_api'",
        (board, job),
    ).fetchall()
    for log, model, job_number in logs:
        flushes = _flushes(connection, model)
        calls = 0 if flushes is None else most_calls_between(_call_ends(connection, log), flushes)
        told = connection.execute("SELECT count FROM ledger_entry WHERE log = ? AND origin = 'ring'", (log,)).fetchone()
        if told is not None and told[0] == calls:
            continue
        with transaction(connection):
            connection.execute("DELETE FROM ledger_entry WHERE log = ? AND origin = 'ring'", (log,))
            if calls >= RING_CALLS:
                entry = ring_entry(calls)
                connection.execute(
                    "INSERT INTO ledger_entry (session, job, log, origin, grade, reason, detail, count)"
                    " VALUES (?, ?, ?, 'ring', ?, ?, ?, ?)",
                    (session, job_number, log, entry.grade, entry.reason, entry.detail, entry.count),
                )


def _call_ends(connection: sqlite3.Connection, log: int) -> NDArray[np.float64]:
    rows = connection.execute(
        f"SELECT end_us FROM part CROSS JOIN api ON record BETWEEN part * {RECORDS_PER_PART}"  # noqa: S608 - a constant
        f" AND part * {RECORDS_PER_PART} + {RECORDS_PER_PART - 1} WHERE log = ?",
        (log,),
    )
    return np.sort(np.fromiter((row[0] for row in rows), np.float64))


def _flushes(connection: sqlite3.Connection, model: int) -> NDArray[np.float64] | None:
    """When the runtime flushed; None where some samples were passed over, whose times nobody knows."""
    passed = connection.execute("SELECT 1 FROM sample WHERE model = ? AND NOT kept LIMIT 1", (model,)).fetchone()
    if passed is not None:
        return None
    rows = connection.execute("SELECT end_us FROM inference WHERE model = ? AND end_us IS NOT NULL", (model,))
    return np.sort(np.fromiter((row[0] for row in rows), np.float64))
