"""`profagent push`."""

from __future__ import annotations

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


@click.command("push", cls=options.SessionCommand)
@click.argument("sessions", metavar="SESSION…", nargs=-1, required=True)
@click.option("--lake", "address", envvar=VARIABLE, metavar="URL", help=f"The lake: a folder or s3://… (${VARIABLE}).")
@options.workspace
@options.as_json
@options.quiet
@asynchronous
async def command(*, sessions: tuple[str, ...], address: str | None, workspace: Path | None, as_json: bool) -> None:
    """Bring ended sessions into a lake of Delta tables, which any engine reads.

    Each is there once, however often and by whomever it is pushed; one that was decoded anew takes its own place.

    Example: profagent push last --lake /mnt/lake
    """
    if address is None:
        raise UsageError("no lake is named", hint=f"name one by --lake URL, or in ${VARIABLE}")
    try:
        from profagent.lake.lake import Lake  # noqa: PLC0415 - 130 MB, which no other command needs
        from profagent.lake.push import push  # noqa: PLC0415 - as above
    except ImportError as error:
        needed = installing("deltalake pyarrow")
        raise UsageError("a lake needs deltalake and pyarrow, which are not installed", hint=needed) from error
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
