"""The command `profagent push`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.cli.lakes import in_lake, named_lake, require_lake
from profagent.cli.progress import progress
from profagent.cli.running import asynchronous, tell
from profagent.errors import LakeError, UsageError
from profagent.store.database import reading
from profagent.store.sessions import held_sessions
from profagent.store.workspace import Workspace, session_named
from profagent.tables.table import counted

if TYPE_CHECKING:
    from pathlib import Path


async def restored_from(workspace: Workspace, session: int, address: str, file: Path) -> None:
    """Write the database of a session to a file, from the configured lake or from the one at `address`.

    Raises UsageError if the packages that read a lake are not installed, LakeError, StoreError.
    """
    set_lake = require_lake(named_lake(None, workspace) or address)
    from profagent.lake.lake import Lake  # noqa: PLC0415 - 130 MB, which no other command needs
    from profagent.lake.restore import restored  # noqa: PLC0415 - as above

    try:
        await restored(workspace, session, Lake(address), file)
    except LakeError:
        if set_lake == address:
            raise
        # The lake that the session was pushed to may have moved to the configured address.
        await restored(workspace, session, Lake(set_lake), file)


@click.command("push", cls=options.SessionCommand)
@click.argument("sessions", metavar="SESSION…", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Push all sessions that have ended and still have their records.")
@in_lake
@options.workspace
@options.as_json
@options.quiet
@asynchronous
async def command(
    *, sessions: tuple[str, ...], is_all: bool, address: str | None, workspace: Path | None, as_json: bool
) -> None:
    """Copy ended sessions into a lake of Delta tables, which any engine reads.

    The lake holds each session once, however often it is pushed. If a session was decoded anew, its new version
    replaces the old one.

    Example: profagent push last --lake /mnt/lake
    Example: profagent push --all --json
    """
    if bool(sessions) == is_all:
        raise UsageError("push needs sessions, or --all", hint="profagent push last; profagent push --all")
    where = Workspace.at(workspace)
    named = require_lake(address, where)
    from profagent.lake.lake import Lake  # noqa: PLC0415 - 130 MB, which no other command needs
    from profagent.lake.push import push  # noqa: PLC0415 - as above

    lake = Lake(named)
    numbers = await _ended(where) if is_all else [await session_named(where, name) for name in sessions]
    found = []
    with progress("push", "sessions") as shown:
        for place, number in enumerate(numbers):
            shown(place, len(numbers))
            pushed = await push(where, number, lake)
            found.append({"number": number, **pushed._asdict()})
            if not as_json and not (is_all and pushed.was_there):
                rows = counted(sum(pushed.rows.values()), "row")
                tell(f"session {number}: " + ("was there" if pushed.was_there else f"{rows} into {lake.address}"))
    if as_json:
        print_document("push", found)
    elif is_all:
        came = sum(not each["was_there"] for each in found)
        tell(f"{came} of {counted(len(found), 'session')} came into {lake.address}, the others were there")


async def _ended(workspace: Workspace) -> list[int]:
    async with reading(workspace.readable_database()) as connection:
        return [held.session for held in await held_sessions(connection) if held.is_over]
