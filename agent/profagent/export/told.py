"""What every file of a session carries in its own metadata: which session of which board, and whether all is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profagent import __version__
from profagent.store.queries import find_session, is_complete, ledger_of, not_final
from profagent.store.sessions import require_records

if TYPE_CHECKING:
    import aiosqlite

    from profagent.store.queries import SessionRow


async def told_of(connection: aiosqlite.Connection, session: SessionRow) -> dict[str, Any]:
    """The metadata of a session."""
    ledger = await ledger_of(connection, session.session)
    return {
        "session": session.session,
        "board": session.board,
        "hostname": session.hostname,
        "simulated": session.simulated,
        "complete": is_complete(ledger),
        "ledger": ledger,
        "not_final": await not_final(connection, session.session),
    }


async def session_to_export(connection: aiosqlite.Connection, number: int | None) -> tuple[SessionRow, dict[str, Any]]:
    """A session that has its records (None: the newest), and its metadata. Raises UsageError, StoreError."""
    session = await find_session(connection, number)
    await require_records(connection, session.session)
    return session, {"profagent": __version__, **await told_of(connection, session)}
