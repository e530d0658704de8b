"""Letting go of what sessions hold in bulk: records and what tells files apart. What was learnt of them stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from profagent.errors import UsageError
from profagent.store.parts import RECORDS_PER_PART

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

__all__ = [
    "HeldSession",
    "JobMirrored",
    "clear_sessions",
    "cleared_jobs",
    "held_sessions",
    "is_cleared",
    "require_records",
]

_RECORDS = {"aicore": "aicore", "aicpu": "aicpu", "api": "acl_api"}
_AS_NEW = "generation = 0, offset = 0, complete = 2, digest = NULL, kept = 1"
# Rows of a JOB, those first that others are found by. Logs that the ledger speaks of stay, as if nothing of them had
# come yet, and which samples came. What was said stays as it is, whatever comes of the JOB later.
_ROWS = (
    "DELETE FROM segment WHERE log IN (SELECT log FROM log WHERE job = ?)",
    "DELETE FROM part WHERE log IN (SELECT log FROM log WHERE job = ?)",
    "DELETE FROM inference WHERE model IN (SELECT model FROM model WHERE job = ?)",
    "DELETE FROM log WHERE job = ? AND log NOT IN (SELECT log FROM ledger_entry WHERE log IS NOT NULL)",
    f"UPDATE log SET {_AS_NEW} WHERE job = ?",  # noqa: S608 - a constant
    "DELETE FROM counter_check WHERE job = ?",
    "UPDATE ledger_entry SET origin = 'cleared' WHERE job = ? AND origin <> 'board'",
)
# A JOB that came again is the next session's, though it may have no whole record.
_FETCHED = (
    "SELECT session, job FROM fetched_jobs UNION SELECT min(session), job FROM session_job"
    " WHERE session NOT IN (SELECT session FROM cleared_session) GROUP BY job"
)


class HeldSession(NamedTuple):
    """A session that still has its records; `jobs` are those that it fetched, `bytes` their mirrored files'."""

    session: int
    board: str
    started_us: int
    is_over: bool
    jobs: frozenset[int]
    bytes: int


class JobMirrored(NamedTuple):
    """A JOB by what its folder in the mirror is called."""

    board: str
    name: str


def held_sessions(connection: sqlite3.Connection) -> list[HeldSession]:
    """The sessions that have not been cleared, oldest first."""
    sizes = dict(connection.execute("SELECT job, sum(offset) FROM log GROUP BY job").fetchall())
    jobs: dict[int, set[int]] = {}
    for session, job in connection.execute(_FETCHED):
        jobs.setdefault(session, set()).add(job)
    rows = connection.execute(
        "SELECT session, identity, started_us, ended_us IS NOT NULL FROM session JOIN board USING (board)"
        " WHERE session NOT IN (SELECT session FROM cleared_session) ORDER BY started_us, session"
    )
    return [
        HeldSession(session, board, started_us, bool(is_over), frozenset(held), sum(sizes.get(job, 0) for job in held))
        for session, board, started_us, is_over in rows
        for held in [jobs.get(session, set())]
    ]


def clear_sessions(connection: sqlite3.Connection, sessions: Sequence[HeldSession], cleared_us: int) -> None:
    """Delete the records of sessions that share their JOBs with no other; the caller has a transaction open."""
    for held in sessions:
        (inferences,) = connection.execute(
            "SELECT count(*) FROM inference WHERE session = ?", (held.session,)
        ).fetchone()
        connection.execute(
            "INSERT INTO cleared_session VALUES (?, ?, ?, ?)", (held.session, cleared_us, inferences, held.bytes)
        )
    for job in sorted({job for held in sessions for job in held.jobs}):
        _clear_job(connection, job)


def cleared_jobs(connection: sqlite3.Connection) -> list[JobMirrored]:
    """The JOBs that were cleared and of which nothing has come since: nothing of them is wanted in the mirror."""
    rows = connection.execute(
        "SELECT b.identity, j.name FROM job j JOIN board b USING (board)"
        " WHERE EXISTS (SELECT 1 FROM session_job JOIN cleared_session USING (session) WHERE session_job.job = j.job)"
        " AND NOT EXISTS (SELECT 1 FROM log WHERE log.job = j.job AND generation > 0)"
    )
    return list(map(JobMirrored._make, rows))


def is_cleared(connection: sqlite3.Connection, session: int) -> bool:
    """Whether the session's records were deleted."""
    row = connection.execute("SELECT 1 FROM cleared_session WHERE session = ?", (session,)).fetchone()
    return row is not None


def require_records(connection: sqlite3.Connection, session: int) -> None:
    """Raise UsageError when the session's records were deleted."""
    if is_cleared(connection, session):
        raise UsageError(
            f"session {session} has its figures only: `profagent gc` deleted its records",
            hint=f"`profagent stats {session}` tells them; name another session for everything else",
        )


def _clear_job(connection: sqlite3.Connection, job: int) -> None:
    for table, kind in _RECORDS.items():
        parts = connection.execute(
            "SELECT part FROM part JOIN log USING (log) WHERE job = ? AND kind = ?", (job, kind)
        ).fetchall()
        connection.executemany(
            f"DELETE FROM {table} WHERE record BETWEEN ?1 * {RECORDS_PER_PART}"  # noqa: S608 - constants
            f" AND ?1 * {RECORDS_PER_PART} + {RECORDS_PER_PART - 1}",
            parts,
        )
    for statement in _ROWS:
        connection.execute(statement, (job,))
