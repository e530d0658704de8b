"""`profagent baseline set`, `list` and `show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from profagent.cli import options
from profagent.cli.table import Column, table_lines
from profagent.sessions.baselines import Baselines
from profagent.sessions.cli import SESSION_COLUMNS, session_cells
from profagent.store.queries import open_reader
from profagent.store.sessions import all_sessions
from profagent.store.workspace import Workspace

if TYPE_CHECKING:
    from pathlib import Path

    from profagent.sessions.baselines import Baseline


@click.group("baseline")
def command() -> None:
    """Name sessions that others are compared with.

    Example: profagent baseline set release-1.2 14
    """


@command.command("set")
@click.argument("name")
@click.argument("session", type=int)
@options.workspace
def set_(*, name: str, session: int, workspace: Path | None) -> None:
    """Give a session a name; a session that had it before has it no more.

    Example: profagent baseline set release-1.2 14
    """
    chosen = Workspace.at(workspace)
    Baselines(chosen).put(name, session)
    click.echo(f"baseline {name} is session {session} of {chosen.root}")


@command.command("list")
@options.workspace
@options.as_json
def list_(*, workspace: Path | None, as_json: bool) -> None:
    """List the baselines of a workspace with their sessions.

    Example: profagent baseline list
    """
    chosen = Workspace.at(workspace)
    _show(chosen, Baselines(chosen).all(), as_json=as_json)


@command.command("show")
@click.argument("name")
@options.workspace
@options.as_json
def show(*, name: str, workspace: Path | None, as_json: bool) -> None:
    """Show a baseline's session.

    Example: profagent baseline show release-1.2
    """
    chosen = Workspace.at(workspace)
    _show(chosen, {name: Baselines(chosen).get(name)}, as_json=as_json)


def _show(workspace: Workspace, baselines: dict[str, Baseline], *, as_json: bool) -> None:
    sessions: dict[int, dict[str, Any]] = {}
    if baselines:
        with open_reader(workspace.readable_database()) as connection:
            sessions = {session["session"]: session for session in all_sessions(connection)}
    found = [(name, each, sessions.get(each.session)) for name, each in baselines.items()]
    if as_json:
        documents = [
            {"name": name, "session": each.session, "set_us": each.set_us, "is": session}
            for name, each, session in found
        ]
        click.echo(msgspec.json.encode(documents))
        return
    if not found:
        click.echo(f"no baselines in {workspace.root}")
        return
    for line in table_lines(
        (Column("baseline"), *SESSION_COLUMNS),
        [
            (name, *(session_cells(session) if session else (each.session, *(None,) * (len(SESSION_COLUMNS) - 1))))
            for name, each, session in found
        ],
    ):
        click.echo(line)
