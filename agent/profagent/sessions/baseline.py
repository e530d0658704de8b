"""`profagent baseline`: sessions with a name, which is their label `baseline`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click
import msgspec

from profagent.cli import options
from profagent.cli.running import asynchronous
from profagent.cli.table import Column, printable, table_lines
from profagent.errors import UsageError
from profagent.sessions.cli import SESSION_COLUMNS, session_cells
from profagent.store.database import fetched, reading, transaction, writing
from profagent.store.queries import find_session
from profagent.store.sessions import all_sessions
from profagent.store.workspace import Workspace

if TYPE_CHECKING:
    from pathlib import Path

LABEL = "baseline"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


async def set_baseline(workspace: Workspace, name: str, session: int) -> None:
    """Give a session a name, which no other has then. Raises UsageError, StoreError."""
    if not _NAME.fullmatch(name):
        hint = "write 1 to 64 of A-Z a-z 0-9 . _ -, no . or - at the beginning"
        raise UsageError(f"{name!r} is no name of a baseline", hint=hint)
    async with reading(workspace.readable_database()) as connection:
        await find_session(connection, session)
    async with writing(workspace.database) as connection, transaction(connection):
        await connection.execute("DELETE FROM session_label WHERE key = ? AND value = ?", (LABEL, name))
        await connection.execute("INSERT OR REPLACE INTO session_label VALUES (?, ?, ?)", (session, LABEL, name))


async def baselines(workspace: Workspace) -> dict[str, int]:
    """Each name's session. Raises StoreError."""
    async with reading(workspace.readable_database()) as connection:
        query = "SELECT value, session FROM session_label WHERE key = ? ORDER BY session"
        return dict(await fetched(connection, query, (LABEL,)))


async def baseline_session(workspace: Workspace, name: str) -> int:
    """The session of that name. Raises UsageError, StoreError."""
    try:
        return (await baselines(workspace))[name]
    except KeyError as error:
        raise UsageError(
            f"there is no baseline {name!r} in {workspace.root}",
            hint=f"`profagent baseline set {name} SESSION` makes it, `profagent baseline list` tells others",
        ) from error


@click.group("baseline")
def command() -> None:
    """Name sessions that others are compared with.

    Example: profagent baseline set release-1.2 14
    """


@command.command("set")
@click.argument("name")
@click.argument("session", type=int)
@options.workspace
@asynchronous
async def set_(*, name: str, session: int, workspace: Path | None) -> None:
    """Give a session a name: it is its label `baseline`. A session that had it before has it no more.

    Example: profagent baseline set release-1.2 14
    """
    chosen = Workspace.at(workspace)
    await set_baseline(chosen, name, session)
    click.echo(f"baseline {name} is session {session} of {chosen.root}")


@command.command("list")
@options.workspace
@options.as_json
@asynchronous
async def list_(*, workspace: Path | None, as_json: bool) -> None:
    """List the baselines of a workspace with their sessions.

    Example: profagent baseline list
    """
    chosen = Workspace.at(workspace)
    async with reading(chosen.readable_database()) as connection:
        found = [each for each in await all_sessions(connection) if LABEL in each["labels_by_key"]]
    if as_json:
        click.echo(msgspec.json.encode([{"name": each["labels_by_key"][LABEL], **each} for each in found]))
        return
    if not found:
        click.echo(f"no baselines in {chosen.root}")
        return
    rows = [(each["labels_by_key"][LABEL], *session_cells(each)) for each in found]
    for line in table_lines((Column("baseline"), *SESSION_COLUMNS), rows):
        click.echo(printable(line))
