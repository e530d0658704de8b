"""Letting go of what sessions hold in bulk: records and what tells files apart. What was learnt of them stays.

Figures that are to outlive their records are written once, and read as they were told.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from profagent.errors import UsageError
from profagent.store.database import RECORDS_PER_PART, fetched, put

if TYPE_CHECKING:
    from collections.abc import Sequence

    import aiosqlite

_ROW = "key, number, total, mean, median, mad, p95, max, share, bound"
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


async def held_sessions(connection: aiosqlite.Connection) -> list[HeldSession]:
    """The sessions that have not been cleared, oldest first."""
    sizes: dict[int, int] = dict(await fetched(connection, "SELECT job, sum(offset) FROM log GROUP BY job"))
    jobs: dict[int, set[int]] = {}
    for session, job in await fetched(connection, _FETCHED):
        jobs.setdefault(session, set()).add(job)
    rows = await fetched(
        connection,
        "SELECT session, identity, started_us, ended_us IS NOT NULL FROM session JOIN board USING (board)"
        " WHERE session NOT IN (SELECT session FROM cleared_session) ORDER BY started_us, session",
    )
    return [
        HeldSession(session, board, started_us, bool(is_over), frozenset(held), sum(sizes.get(job, 0) for job in held))
        for session, board, started_us, is_over in rows
        for held in [jobs.get(session, set())]
    ]


async def clear_sessions(connection: aiosqlite.Connection, sessions: Sequence[HeldSession], cleared_us: int) -> None:
    """Delete the records of sessions that share their JOBs with no other; the caller has a transaction open."""
    await put(
        connection,
        "INSERT INTO cleared_session SELECT ?1, ?2, count(*), ?3 FROM inference WHERE session = ?1",
        [(held.session, cleared_us, held.bytes) for held in sessions],
    )
    for job in sorted({job for held in sessions for job in held.jobs}):
        await _clear_job(connection, job)


async def cleared_jobs(connection: aiosqlite.Connection) -> list[JobMirrored]:
    """The JOBs that were cleared and of which nothing has come since: nothing of them is wanted in the mirror."""
    rows = await fetched(
        connection,
        "SELECT b.identity, j.name FROM job j JOIN board b USING (board)"
        " WHERE EXISTS (SELECT 1 FROM session_job JOIN cleared_session USING (session) WHERE session_job.job = j.job)"
        " AND NOT EXISTS (SELECT 1 FROM log WHERE log.job = j.job AND generation > 0)",
    )
    return list(map(JobMirrored._make, rows))


async def is_cleared(connection: aiosqlite.Connection, session: int) -> bool:
    """Whether the session's records were deleted."""
    return bool(await fetched(connection, "SELECT 1 FROM cleared_session WHERE session = ?", (session,)))


async def require_records(connection: aiosqlite.Connection, session: int) -> None:
    """Raise UsageError when the session's records were deleted."""
    if await is_cleared(connection, session):
        raise UsageError(
            f"session {session} has its figures only: `profagent gc` deleted its records",
            hint=f"`profagent stats {session}` tells them; name another session for everything else",
        )


async def _clear_job(connection: aiosqlite.Connection, job: int) -> None:
    for table, kind in _RECORDS.items():
        parts = await fetched(
            connection, "SELECT part FROM part JOIN log USING (log) WHERE job = ? AND kind = ?", (job, kind)
        )
        await put(
            connection,
            f"DELETE FROM {table} WHERE record BETWEEN ?1 * {RECORDS_PER_PART}"  # noqa: S608 - constants
            f" AND ?1 * {RECORDS_PER_PART} + {RECORDS_PER_PART - 1}",
            parts,
        )
    for statement in _ROWS:
        await connection.execute(statement, (job,))


class StoredRow(NamedTuple):
    """The figures of one thing, None where not known; `share` is in %, the others are in the unit of all rows."""

    key: tuple[str, ...]
    number: int
    total: float | None
    mean: float | None
    median: float | None
    mad: float | None
    p95: float | None
    max: float | None
    share: float | None
    bound: str | None


class StoredFigures(NamedTuple):
    """Rows by falling total, of what `by` says, in `unit` (us or ticks)."""

    by: str
    unit: str
    rows: Sequence[StoredRow]


async def write_figures(
    connection: aiosqlite.Connection,
    session: int,
    figures: Sequence[StoredFigures],
    left_out: Sequence[tuple[str, int, int]],
) -> None:
    """Keep a session's figures in place of those kept before; `left_out`: model, its inferences, those left out."""
    for table in ("figure", "figure_left_out"):
        await connection.execute(f"DELETE FROM {table} WHERE session = ?", (session,))  # noqa: S608 - one of two names
    await put(
        connection,
        f"INSERT INTO figure (session, by, place, unit, {_ROW}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        [
            (session, each.by, place, each.unit, json.dumps(row.key), *row[1:])
            for each in figures
            for place, row in enumerate(each.rows)
        ],
    )
    await put(connection, "INSERT INTO figure_left_out VALUES (?, ?, ?, ?)", [(session, *row) for row in left_out])


async def figures_of_session(connection: aiosqlite.Connection, session: int, by: str) -> StoredFigures | None:
    """The figures that were kept; None where none were."""
    rows = await fetched(
        connection,
        f"SELECT unit, {_ROW} FROM figure WHERE session = ? AND by = ? ORDER BY place",  # noqa: S608 - constants
        (session, by),
    )
    if not rows:
        return None
    return StoredFigures(by, rows[0][0], [StoredRow(tuple(json.loads(key)), *others) for _, key, *others in rows])


async def left_out_of(connection: aiosqlite.Connection, session: int) -> list[tuple[str, int, int]]:
    """Each model, its inferences, and how many of them the figures leave out."""
    rows = await fetched(
        connection,
        "SELECT model, inferences, left_out FROM figure_left_out WHERE session = ? ORDER BY model",
        (session,),
    )
    return [tuple(row) for row in rows]
