"""Summary of a session, and the list of all sessions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from profagent import ledger
from profagent.ingest.source import views
from profagent.store.coverage import coverage_of, why_incomplete
from profagent.store.database import OF_PART, fetched, fetched_named, fetched_one
from profagent.store.queries import (
    count_inferences,
    implausible_of,
    jobs_of,
    ledger_of,
    not_final,
    recorded_losses_of,
)
from profagent.store.sampling import sampling_of

if TYPE_CHECKING:
    import sqlite3

    import aiosqlite

    from profagent.store.database import Running

_ABOUT = (
    "SELECT session, identity AS board, hostname, simulated, sdk_version, counter_map, counter_map_digest"
    " FROM session JOIN board USING (board) WHERE session = ?"
)
_JOBS = "SELECT job, name FROM session_job JOIN job USING (job) WHERE session = ? ORDER BY job"
# JOBs of which the session fetched no record, each with the session that began it earlier.
_STOOD = (
    "SELECT s.job, (SELECT min(session) FROM session_job o WHERE o.job = s.job) FROM session_job s"
    " WHERE s.session = ?1 AND s.job NOT IN (SELECT job FROM fetched_jobs WHERE session = ?1)"
)


_HAS_RECORDS = (
    "SELECT EXISTS (SELECT 1 FROM session_job JOIN model USING (job) JOIN inference i USING (model)"
    " WHERE session_job.session = ?1) OR EXISTS (SELECT 1 FROM part JOIN log USING (log) WHERE part.session = ?1"
    " AND kind IN ('aicore', 'aicpu', 'acl_api'))"
)
_LABELS = "SELECT key, value FROM session_label WHERE session = ? ORDER BY key"
_UNITS = {"aicore": "aicore", "aicpu": "aicpu", "api": "acl_api"}


async def session_summary(connection: Running, session: int) -> dict[str, Any]:
    """Return what a session holds: JOBs, bytes, records by kind, coverage, the ledger by grade and reason.

    `complete` is True for a complete session; else `incomplete` has the reasons. `earlier` lists JOBs of which the
    session fetched nothing: they are in none of its figures.
    """
    (about,) = await fetched_named(connection, _ABOUT, (session,))
    jobs = await fetched(connection, _JOBS, (session,))
    # JOBs that stood on the board already, with the session that has them.
    stood: dict[int, int] = dict(await fetched(connection, _STOOD, (session,)))
    incomplete = await why_incomplete(connection, session)
    return {
        **about,
        "simulated": bool(about["simulated"]),
        "jobs": [name for _, name in jobs],
        "bytes": sum([await _bytes(connection, job) for job, _ in jobs if job not in stood]),
        "records": {
            unit: await connection.run(partial(records_in, session=session, table=table))
            for table, unit in _UNITS.items()
        },
        "events": await event_counts(connection, session),
        "sampling": await sampling_of(connection, session),
        "earlier": [
            {"job": name, "session": stood[job], "inferences": await count_inferences(connection, job)}
            for job, name in jobs
            if job in stood
        ],
        "ledger": await ledger_of(connection, session),
        "kept_losses": await recorded_losses_of(connection, session),
        "implausible": await implausible_of(connection, session),
        "complete": not incomplete,
        "incomplete": incomplete,
        "coverage": await coverage_of(connection, session),
        "not_copied": await not_copied(connection, session),
        "not_final": await not_final(connection, session),
    }


async def has_recorded(connection: aiosqlite.Connection, session: int) -> bool:
    """Return True if a session has anything of a program, beside what the board measures by itself."""
    (has_records,) = await fetched_one(connection, _HAS_RECORDS, (session,))
    if has_records:
        return True
    return any((await event_counts(connection, session, own=True)).values())


async def event_counts(connection: aiosqlite.Connection, session: int, *, own: bool = False) -> dict[str, int]:
    """Return the number of rows of each counted view of sources in a session, as `{"ops": 1200, "ranges": 30}`.

    `own` leaves out what the board measures by itself.
    """
    counts = {}
    counted = [view for view in views() if view.counted_as and (view.is_own or not own)]
    for view in sorted(counted, key=lambda view: view.counted_as):
        query = f"SELECT count(*) FROM {view.name} WHERE session = ?"  # noqa: S608 - a name of ours
        (counts[view.counted_as],) = await fetched_one(connection, query, (session,))
    return counts


async def not_copied(connection: aiosqlite.Connection, session: int) -> dict[str, int | None]:
    """Return by JOB how many inferences were still on the board when the capture was stopped; None if unknown."""
    rows = await fetched(
        connection,
        "SELECT name, first FROM ledger_entry JOIN job USING (job) WHERE session = ? AND reason = ?",
        (session, ledger.STOPPED_EARLY),
    )
    return dict(rows)


async def _bytes(connection: aiosqlite.Connection, job: int) -> int:
    (size,) = await fetched_one(connection, "SELECT ifnull(sum(offset), 0) FROM log WHERE job = ?", (job,))
    return int(size)


def records_in(connection: sqlite3.Connection, session: int, table: str) -> int:
    """Return the number of records in a unit's table that a session fetched."""
    # CROSS JOIN keeps SQLite from scanning all records for each part.
    query = f"SELECT count(*) FROM part p CROSS JOIN {table} ON record {OF_PART} WHERE session = ?"  # noqa: S608 - constants
    (count,) = connection.execute(query, (session,)).fetchone()
    return int(count)


async def _frequencies(connection: aiosqlite.Connection, session: int) -> list[int]:
    rows = await fetched(
        connection,
        "SELECT DISTINCT frequency_mhz FROM session_job JOIN job USING (job)"
        " WHERE session = ? AND frequency_mhz > 0 AND family IS NULL ORDER BY frequency_mhz",
        (session,),
    )
    return [mhz for (mhz,) in rows]


async def all_sessions(connection: Running) -> list[dict[str, Any]]:
    """Return every row of the `sessions` view, by column name, oldest first, with figures from other tables."""
    found = await fetched_named(connection, "SELECT * FROM sessions ORDER BY session")
    return [
        {
            **session,
            "simulated": bool(session["simulated"]),
            "complete": bool(session["complete"]),
            "jobs": len(await jobs_of(connection, session["session"])),
            "labels_by_key": dict(await fetched(connection, _LABELS, (session["session"],))),
            "frequencies_mhz": await _frequencies(connection, session["session"]),
            "events": await event_counts(connection, session["session"]),
            "sampling": await sampling_of(connection, session["session"]),
            "kept_losses": await recorded_losses_of(connection, session["session"]),
            "implausible": await implausible_of(connection, session["session"]),
            "incomplete": await why_incomplete(connection, session["session"]),
            "coverage": await coverage_of(connection, session["session"]),
        }
        for session in found
    ]
