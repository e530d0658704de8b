"""Marks that a person sets while watching: a time of the board's clock and a text, stored with the session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.store.database import fetched, reading, writing

if TYPE_CHECKING:
    from pathlib import Path

    import aiosqlite

SCHEMA = """
CREATE TABLE IF NOT EXISTS session_mark (
    session INTEGER NOT NULL REFERENCES session,
    time_us INTEGER NOT NULL,           -- board wall clock
    text    TEXT NOT NULL
);

-- Moments that a person marked while watching.
--   text, time_us
CREATE VIEW IF NOT EXISTS session_marks AS SELECT session, time_us, text FROM session_mark;
"""


async def add_mark(database: Path, session: int, time_us: int, text: str) -> None:
    """Store a mark with a session; `time_us` is the board's wall clock. Raises StoreError."""
    async with writing(database) as connection:
        await connection.execute("INSERT INTO session_mark VALUES (?, ?, ?)", (session, time_us, text))


async def session_going_on(database: Path, identity: str) -> int | None:
    """Return the newest session of a board that has not ended, None without one. Raises StoreError."""
    sql = "SELECT max(session) FROM session JOIN board USING (board) WHERE identity = ? AND ended_us IS NULL"
    async with reading(database) as connection:
        ((session,),) = await fetched(connection, sql, (identity,))
    return session  # type: ignore[no-any-return]


async def marks_of(connection: aiosqlite.Connection, session: int) -> list[tuple[int, str]]:
    """Return times and texts of a session's marks, in the order of time."""
    sql = "SELECT time_us, text FROM session_mark WHERE session = ? ORDER BY time_us, rowid"
    return [(time_us, text) for time_us, text in await fetched(connection, sql, (session,))]
