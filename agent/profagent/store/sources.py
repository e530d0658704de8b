"""What sessions have of the sources beside JOBs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.store.database import fetched, fetched_one

if TYPE_CHECKING:
    import aiosqlite

# What a row of each view is called.
VIEWS = {"ops": "op_events", "ranges": "ranges", "samples": "metrics"}


async def views_there(connection: aiosqlite.Connection) -> dict[str, str]:
    """Those of VIEWS that the database has: an earlier profagent made it without, and it was only read since."""
    there = {name for (name,) in await fetched(connection, "SELECT name FROM sqlite_master WHERE type = 'view'")}
    return {what: view for what, view in VIEWS.items() if view in there}


async def event_counts(connection: aiosqlite.Connection, session: int) -> dict[str, int]:
    """How many subscribed operators, ranges and samples of metrics a session has."""
    counts = dict.fromkeys(VIEWS, 0)
    for what, view in (await views_there(connection)).items():
        query = f"SELECT count(*) FROM {view} WHERE session = ?"  # noqa: S608 - a constant
        (counts[what],) = await fetched_one(connection, query, (session,))
    return counts
