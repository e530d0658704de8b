"""Whose a JOB's figures are: those of a JOB that stood there already are no later session's that fetched nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
