"""`profagent sessions`."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from profagent.cli import options
from profagent.cli.provenance import keeping_line, kept_loss_line, share_text
from profagent.cli.running import asynchronous, terminal_columns
from profagent.cli.table import Cell, Column, fitted_lines, printable
from profagent.store.database import reading
from profagent.store.sessions import all_sessions, fits
from profagent.store.workspace import Workspace

if TYPE_CHECKING:
    from pathlib import Path

    from profagent.store.sessions import Condition

TITLES = (
    *("session", "board", "source", "started (UTC)", "state", "JOBs", "inferences", "captured", "losses", "notes"),
    "labels",
)
# What a narrow terminal does without, first of all.
LESS = ("source", "JOBs", "notes", "captured")
SESSION_COLUMNS = tuple(Column(title) for title in TITLES)


@click.command("sessions")
@options.workspace
@options.where
@options.as_json
@asynchronous
async def command(*, workspace: Path | None, where: list[Condition], as_json: bool) -> None:
    """List the sessions of a workspace, oldest first.

    Example: profagent sessions --where label=build=1234
    """
    chosen = Workspace.at(workspace)
    async with reading(chosen.readable_database()) as connection:
        sessions = [session for session in await all_sessions(connection) if fits(session, where)]
    if as_json:
        click.echo(msgspec.json.encode(sessions))
        return
    if not sessions:
        click.echo(f"no sessions {'that fit ' if where else ''}in {chosen.root}")
        return
    for line in fitted_lines(SESSION_COLUMNS, _rows(sessions), terminal_columns(), less=LESS):
        click.echo(line)
    for session in sessions:
        if (kept := keeping_line(session["sampling"])) is not None:
            click.echo(f"session {session['session']}: {kept}")
        for loss in session["kept_losses"]:
            click.echo(f"session {session['session']}: {printable(kept_loss_line(loss))}")
        for line in session["implausible"]:
            click.echo(f"session {session['session']}: {printable(line)}")


def _rows(sessions: list[dict[str, Any]]) -> list[tuple[Cell, ...]]:
    """The rows; where boards share a host name, their identities tell them apart."""
    boards = {(session["hostname"], session["board"]) for session in sessions}
    names = Counter(hostname for hostname, _ in boards)
    shown = (
        {**session, "hostname": f"{session['hostname']} {session['board'][:8]}"}
        if session["hostname"] and names[session["hostname"]] > 1
        else session
        for session in sessions
    )
    return [session_cells(session) for session in shown]


def session_cells(session: dict[str, Any]) -> tuple[Cell, ...]:
    """A row of the list, from a session as `all_sessions` gives it."""
    started = datetime.fromtimestamp(session["started_us"] / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
    state = _state(session)
    if session["cleared_us"] is not None:
        state += ", figures only"
    mark = " [simulated]" if session["simulated"] else ""
    return (
        session["session"],
        (session["hostname"] or session["board"]) + mark,
        session["source"],
        started,
        state,
        session["jobs"],
        session["inferences"],
        share_text(session["sampling"]["sampled"], session["sampling"]["due"]),
        session["losses"],
        session["notes"],
        session["labels"] or "",
    )


def _state(session: dict[str, Any]) -> str:
    if session["ended_us"] is None:
        return "unfinished"
    if session["losses"]:
        return "INCOMPLETE"
    return "stopped early" if session["stopped_early"] else "complete"
