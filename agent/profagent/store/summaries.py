"""A session in figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profagent.ingest import reasons
from profagent.store.counters import implausible_of
from profagent.store.rows import RECORDS_PER_PART
from profagent.store.sampling import sampling_of

if TYPE_CHECKING:
    import sqlite3


_STOOD = (
    "SELECT s.job, (SELECT min(session) FROM session_job o WHERE o.job = s.job) FROM session_job s"
    " WHERE s.session = ?1 AND s.job NOT IN (SELECT job FROM fetched_jobs WHERE session = ?1)"
)


def stood_already(connection: sqlite3.Connection, session: int) -> dict[int, int]:
    """JOBs of a session of which it fetched no record, and the session that began each before."""
    return dict(connection.execute(_STOOD, (session,)).fetchall())


def inferences_in(connection: sqlite3.Connection, job: int) -> int:
    """How many inferences of a JOB have rows, whoever fetched them."""
    (count,) = connection.execute(
        "SELECT count(*) FROM inference JOIN model USING (model) WHERE job = ?", (job,)
    ).fetchone()
    return int(count)


_UNITS = {"aicore": "aicore", "aicpu": "aicpu", "api": "acl_api"}


def session_summary(connection: sqlite3.Connection, session: int) -> dict[str, Any]:
    """What a session holds: JOBs, bytes, records by kind, the ledger by grade and reason, whether it is complete.

    `earlier` lists its JOBs of which it fetched nothing: they are in none of its figures.
    """
    board, simulated, sdk_version, counter_map, digest = connection.execute(
        "SELECT identity, simulated, sdk_version, counter_map, counter_map_digest"
        " FROM session JOIN board USING (board) WHERE session = ?",
        (session,),
    ).fetchone()
    jobs = connection.execute(
        "SELECT job, name, state FROM session_job JOIN job USING (job) WHERE session = ? ORDER BY job", (session,)
    ).fetchall()
    stood = stood_already(connection, session)
    ledger = _ledger(connection, session)
    return {
        "session": session,
        "board": board,
        "simulated": bool(simulated),
        "sdk_version": sdk_version,
        "counter_map": counter_map,
        "counter_map_digest": digest,
        "jobs": [name for _, name, _ in jobs],
        "bytes": sum(_bytes(connection, job) for job, _, _ in jobs if job not in stood),
        "records": {unit: _records(connection, session, table) for table, unit in _UNITS.items()},
        "sampling": sampling_of(connection, session),
        "earlier": [
            {"job": name, "session": stood[job], "inferences": inferences_in(connection, job)}
            for job, name, _ in jobs
            if job in stood
        ],
        "ledger": ledger,
        "kept_losses": kept_losses_of(connection, session),
        "implausible": implausible_of(connection, session),
        "complete": not ledger["loss"] and reasons.STOPPED_EARLY not in ledger["note"],
        "not_copied": not_copied(connection, session),
        "not_final": _not_final(connection, session),
    }


def not_copied(connection: sqlite3.Connection, session: int) -> dict[str, int | None]:
    """How many inferences the board held that were not copied when the capture was stopped, by JOB; None: not known."""
    rows = connection.execute(
        "SELECT name, first FROM ledger_entry JOIN job USING (job) WHERE session = ? AND reason = ?",
        (session, reasons.STOPPED_EARLY),
    )
    return dict(rows.fetchall())


def _not_final(connection: sqlite3.Connection, session: int) -> list[dict[str, Any]]:
    """How many of its inferences have no figures, by state and reason."""
    rows = connection.execute(
        "SELECT count(*), figures, why FROM inference WHERE session = ? AND figures <> 'final'"
        " GROUP BY figures, why ORDER BY 1 DESC, 2, 3",
        (session,),
    )
    return [{"inferences": count, "figures": figures, "why": why} for count, figures, why in rows]


def kept_losses_of(connection: sqlite3.Connection, session: int) -> list[dict[str, Any]]:
    """The kept losses that a session heard first, by column name, in the order in which they happened."""
    cursor = connection.execute(
        "SELECT job, reason, detail, lost_logs, lost_bytes, from_us, to_us FROM kept_losses WHERE session = ?"
        " ORDER BY from_us, id",
        (session,),
    )
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _bytes(connection: sqlite3.Connection, job: int) -> int:
    (size,) = connection.execute("SELECT ifnull(sum(offset), 0) FROM log WHERE job = ?", (job,)).fetchone()
    return int(size)


def _records(connection: sqlite3.Connection, session: int, table: str) -> int:
    # CROSS JOIN keeps SQLite from scanning all records for each part.
    (count,) = connection.execute(
        f"SELECT count(*) FROM part CROSS JOIN {table} ON record BETWEEN part * {RECORDS_PER_PART}"  # noqa: S608 - constants
        f" AND part * {RECORDS_PER_PART} + {RECORDS_PER_PART - 1} WHERE session = ?",
        (session,),
    ).fetchone()
    return int(count)


def _labels(connection: sqlite3.Connection, session: int) -> dict[str, str]:
    rows = connection.execute("SELECT key, value FROM session_label WHERE session = ? ORDER BY key", (session,))
    return dict(rows.fetchall())


def _frequencies(connection: sqlite3.Connection, session: int) -> list[int]:
    rows = connection.execute(
        "SELECT DISTINCT frequency_mhz FROM session_job JOIN job USING (job)"
        " WHERE session = ? AND frequency_mhz IS NOT NULL ORDER BY frequency_mhz",
        (session,),
    )
    return [mhz for (mhz,) in rows]


def _ledger(connection: sqlite3.Connection, session: int) -> dict[str, dict[str, int]]:
    by_grade: dict[str, dict[str, int]] = {"loss": {}, "note": {}}
    for grade, reason, count in connection.execute(
        "SELECT grade, reason, sum(count) FROM ledger_entry WHERE session = ? GROUP BY grade, reason", (session,)
    ):
        by_grade[grade][reason] = count
    return by_grade


def all_sessions(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    """Every row of the `sessions` view, by column name, oldest first, with what is kept of it elsewhere."""
    cursor = connection.execute("SELECT * FROM sessions ORDER BY session")
    names = [column[0] for column in cursor.description]
    found = [dict(zip(names, row, strict=True)) for row in cursor]
    return [
        {
            **session,
            "labels_by_key": _labels(connection, session["session"]),
            "frequencies_mhz": _frequencies(connection, session["session"]),
            "sampling": sampling_of(connection, session["session"]),
            "kept_losses": kept_losses_of(connection, session["session"]),
            "implausible": implausible_of(connection, session["session"]),
        }
        for session in found
    ]
