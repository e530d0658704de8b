"""Metadata of a session that every exported file carries: session, board, completeness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profagent import __version__
from profagent.link.boards_file import BoardNames
from profagent.store.coverage import why_incomplete
from profagent.store.database import fetched
from profagent.store.queries import find_session, ledger_of, not_final
from profagent.store.sessions import require_records

if TYPE_CHECKING:
    from collections.abc import Mapping

    import aiosqlite

    from profagent.store.queries import SessionRow

_JOBS = "SELECT name FROM session_job JOIN job USING (job) WHERE session = ? ORDER BY name"


async def metadata_of(connection: aiosqlite.Connection, session: SessionRow) -> dict[str, Any]:
    """Return the metadata of a session: its numbers and names, its JOBs, its ledger, and its completeness."""
    incomplete = await why_incomplete(connection, session.session)
    jobs = await fetched(connection, _JOBS, (session.session,))
    return {
        "session": session.session,
        "board": session.board,
        "hostname": session.hostname,
        "jobs": [name for (name,) in jobs],
        "simulated": session.simulated,
        "complete": not incomplete,
        "incomplete": incomplete,
        "ledger": await ledger_of(connection, session.session),
        "not_final": await not_final(connection, session.session),
    }


def title_of(metadata: Mapping[str, Any]) -> str:
    """Return a title as `euler session 3 [simulated]`, from the metadata of a session.

    Copied JOBs have no board with a name or a host name; the names of the JOBs are their title.
    """
    mark = " [simulated]" if metadata["simulated"] else ""
    name = BoardNames.known().of(metadata["board"], metadata["hostname"])
    if name == metadata["board"] and not metadata["hostname"]:
        if metadata["jobs"]:
            return ", ".join(metadata["jobs"]) + mark
        # The first digits of the board's identity are enough to tell the boards of one workspace apart.
        name = name[:8]
    return f"{name} session {metadata['session']}{mark}"


async def session_to_export(connection: aiosqlite.Connection, number: int | None) -> tuple[SessionRow, dict[str, Any]]:
    """Return a session (None: the newest) that has its records, and its metadata. Raises UsageError, StoreError."""
    session = await find_session(connection, number)
    await require_records(connection, session.session)
    return session, {"profagent": __version__, **await metadata_of(connection, session)}
