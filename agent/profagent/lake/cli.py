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
PACKAGES = ("deltalake", "duckdb", "pyarrow")


in_lake = click.option(
    "--lake", "address", envvar=VARIABLE, metavar="URL", help=f"The lake: a folder that hosts share (${VARIABLE})."
)


def require_lake(address: str | None) -> str:
    """Return the address. Raises UsageError where there is none, or what reads a lake is not installed."""
    if not address:
        raise UsageError("no lake is named", hint=f"name one by --lake URL, or in ${VARIABLE}")
    for package in PACKAGES:
        if find_spec(package) is None:
            needed = installing(" ".join(PACKAGES))
            raise UsageError(f"a lake needs {package}, which is not installed", hint=needed)
    return address


@click.command("push", cls=options.SessionCommand)
@click.argument("sessions", metavar="SESSION…", nargs=-1, required=True)
@in_lake
@options.workspace
@options.as_json
@options.quiet
@asynchronous
async def command(*, sessions: tuple[str, ...], address: str | None, workspace: Path | None, as_json: bool) -> None:
    """Bring ended sessions into a lake of Delta tables, which any engine reads.

    Each is there once, however often and by whomever it is pushed; one that was decoded anew takes its own place.

    Example: profagent push last --lake /mnt/lake
    Example: profagent push 3 4 --lake /mnt/lake --json
    """
    named = require_lake(address)
    from profagent.lake.lake import Lake  # noqa: PLC0415 - 130 MB, which no other command needs
    from profagent.lake.push import push  # noqa: PLC0415 - as above

    where, lake = Workspace.at(workspace), Lake(named)
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
