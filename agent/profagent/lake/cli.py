"""`profagent push`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from profagent.cli import options
from profagent.cli.progress import progress
from profagent.cli.running import asynchronous, installing, tell
from profagent.errors import UsageError
from profagent.store.workspace import Workspace, session_named
from profagent.tables.table import counted, json_text

if TYPE_CHECKING:
    from pathlib import Path

VARIABLE = "PROFAGENT_LAKE"


def _needed(_context: click.Context, _option: click.Parameter, address: str | None) -> str:
    """Raises UsageError where no lake is named, or what reads one is not installed."""
    if not address:
        raise UsageError("no lake is named", hint=f"name one by --lake URL, or in ${VARIABLE}")
    for package in ("deltalake", "duckdb", "pyarrow"):
        if find_spec(package) is None:
            raise UsageError(
                f"a lake needs {package}, which is not installed", hint=installing("deltalake duckdb pyarrow")
            )
    return address


in_lake = click.option(
    "--lake", "address", envvar=VARIABLE, metavar="URL", callback=_needed, help=f"The lake's folder (${VARIABLE})."
)


@click.command("push", cls=options.SessionCommand)
@click.argument("sessions", metavar="SESSION…", nargs=-1, required=True)
@in_lake
@options.workspace
@options.as_json
@options.quiet
@asynchronous
async def command(*, sessions: tuple[str, ...], address: str, workspace: Path | None, as_json: bool) -> None:
    """Bring ended sessions into a lake of Delta tables, which any engine reads.

    Each is there once, however often and by whomever it is pushed; one that was decoded anew takes its own place.

    Example: profagent push last --lake /mnt/lake
    Example: profagent push 3 4 --lake /mnt/lake --json
    """
    from profagent.lake.lake import Lake  # noqa: PLC0415 - 130 MB, which no other command needs
    from profagent.lake.push import push  # noqa: PLC0415 - as above

    where, lake = Workspace.at(workspace), Lake(address)
    found = []
    with progress("push", "sessions") as shown:
        for place, name in enumerate(sessions):
            shown(place, len(sessions))
            number = await session_named(where, name)
            pushed = await push(where, number, lake)
            found.append({"number": number, **pushed._asdict()})
            if not as_json:
                rows = counted(sum(pushed.rows.values()), "row")
                tell(f"session {number}: " + ("was there" if pushed.was_there else f"{rows} into {lake.address}"))
    if as_json:
        click.echo(json_text(found))
