"""`profagent import`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from profagent.cli import options
from profagent.cli.provenance import events_line, ledger_lines, summary_lines
from profagent.cli.running import run_to_the_end, run_until_stopped, tell
from profagent.errors import IncompleteError, UsageError
from profagent.formats.board_files import parse_acl_json
from profagent.importing.importing import NO_BOARD, WorkspaceImport, import_into, import_job
from profagent.importing.job_folder import tell_unrecorded, write_log
from profagent.link.boards_file import BoardsFile
from profagent.link.messages import Profiling
from profagent.store.database import reading
from profagent.store.summary import session_summary
from profagent.store.workspace import Workspace

if TYPE_CHECKING:
    import asyncio

    from profagent.store.counter_maps import CounterMaps

# An import's database holds this one session.
SESSION = 1


@click.command("import")
@options.job_directory
@click.option(
    "--workspace",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Copy the JOB into this workspace as a session, in place of the JOB's own database.",
)
@click.option(
    "--board", metavar="BOARD", help="With --workspace: the board that the JOB was copied from; a name or an identity."
)
@options.counter_map
@options.acl_json
@options.as_json
def command(
    *,
    directory: Path,
    workspace: Path | None,
    board: str | None,
    maps: CounterMaps,
    acl_json: Path | None,
    as_json: bool,
) -> int:
    """Import a JOB directory, or one of OPS-…, MARKS-… or METRICS-…, into the database in its sqlite/ folder.

    The database is made anew each time.

    With --workspace it is copied into that workspace and becomes what `record` would have made of it; what is there
    already is not copied again. Exit code 4: records that existed are missing; the summary says which. Exit code 1 also
    where there is no record at all: it says why.

    Example: profagent import -dir JOBABCDEFGHIJKLMNOPQRSTUVWXYZABC
    """
    told = None if acl_json is None else read_acl_json(acl_json)
    if workspace is None:
        if board is not None:
            raise UsageError("--board goes with --workspace", hint="name the workspace to import into")
        return run_to_the_end(lambda: _into_the_job(directory, maps, told, as_json=as_json))
    wanted = WorkspaceImport(directory, Workspace(workspace), identity_of(board), maps, told)
    return run_until_stopped(lambda stop: _into_workspace(wanted, stop, as_json=as_json))


async def _into_workspace(wanted: WorkspaceImport, stop: asyncio.Event, *, as_json: bool) -> int:
    summary = await import_into(wanted, stop)
    click.echo(msgspec.json.encode(summary) if as_json else "\n".join(summary_lines(summary)))
    return await _exit_code(summary, wanted.workspace.database)


def read_acl_json(file: Path) -> Profiling:
    """The interval that a file tells. Raises UsageError, FormatError."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {file}: {error.strerror}", hint="name the acl.json that the JOB's program was given"
        ) from error
    return Profiling(str(file), str(parse_acl_json(data, str(file))))


def identity_of(board: str | None) -> str:
    """The identity of a board that has a name and one; else what was given is an identity."""
    if board is None:
        return NO_BOARD
    entry = BoardsFile().entries().get(board)
    return entry.uuid if entry is not None and entry.uuid else board


async def _into_the_job(directory: Path, maps: CounterMaps, told: Profiling | None, *, as_json: bool) -> int:
    imported = await import_job(directory, maps, told=told, tell=tell)
    async with reading(imported.database) as connection:
        summary = await session_summary(connection, SESSION)
    lines = ledger_lines(summary["ledger"])
    write_log(directory, [f"import: {imported.files} files in {imported.elapsed_s:.1f} s", *lines])
    if as_json:
        click.echo(msgspec.json.encode({**summary, "database": str(imported.database)}))
    else:
        records = ", ".join(f"{count} {unit}" for unit, count in summary["records"].items())
        mark = " [simulated]" if imported.simulated else ""
        if (events := events_line(summary["events"])) is not None:
            records = f"{records}, {events}"
        click.echo(f"imported {imported.files} files{mark}: {records}\n  database: {imported.database}")
        for line in (*lines, *summary["implausible"]):
            tell(f"  {line}")
    return await _exit_code(summary, imported.database)


async def _exit_code(summary: dict[str, Any], database: Path) -> int:
    empty = await tell_unrecorded(database, summary["session"])
    return empty if summary["complete"] else IncompleteError.exit_code
