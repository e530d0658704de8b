"""What every file of a session carries in its own metadata: which session of which board, and whether all is there."""

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


async def told_of(connection: aiosqlite.Connection, session: SessionRow) -> dict[str, Any]:
    """The metadata of a session."""
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


def title_of(told: Mapping[str, Any]) -> str:
    """`euler session 3 [simulated]`; copied JOBs have no board of their own, and are named themselves."""
    mark = " [simulated]" if told["simulated"] else ""
    name = BoardNames.known().of(told["board"], told["hostname"])
    if name == told["board"] and not told["hostname"]:
        if told["jobs"]:
            return ", ".join(told["jobs"]) + mark
        name = name[:8]
    return f"{name} session {told['session']}{mark}"


async def session_to_export(connection: aiosqlite.Connection, number: int | None) -> tuple[SessionRow, dict[str, Any]]:
    """A session that has its records (None: the newest), and its metadata. Raises UsageError, StoreError."""
    session = await find_session(connection, number)
    await require_records(connection, session.session)
    return session, {"profagent": __version__, **await told_of(connection, session)}
