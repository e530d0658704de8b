"""`profagent import`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from profagent.cli import options
from profagent.cli.exit_codes import exit_code_of
from profagent.cli.progress import progress
from profagent.cli.provenance import events_line, ledger_lines, summary_lines
from profagent.cli.running import run_to_the_end, run_until_stopped, tell
from profagent.cli.table import counted, printable
from profagent.errors import IncompleteError, ProfagentError, UsageError
from profagent.formats.board_files import parse_acl_json
from profagent.formats.names import display_text
from profagent.importing.importing import import_into, import_job
from profagent.importing.job_folder import fresh_database, write_log
from profagent.importing.target import tell_unrecorded
from profagent.ingest.decoder import source_named
from profagent.link.messages import Profiling
from profagent.store.database import reading
from profagent.store.sessions import NO_BOARD
from profagent.store.summary import session_summary
from profagent.store.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.ascend.importing import Taken
    from profagent.store.counter_maps import CounterMaps

# An import's database holds this one session.
SESSION = 1


@click.command("import")
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@options.job_directory(required=False)
@click.option(
    "--workspace",
    type=options.FOLDER,
    metavar="DIR",
    help="Where sessions go; with -dir the JOB's own database unless given, with PATH $PROFAGENT_WORKSPACE, else"
    " ~/.local/share/profagent.",
)
@click.option(
    "--board",
    metavar="BOARD",
    help="With --workspace: the board that the JOB is from; a name or an identity.",
    shell_complete=options.completed("boards"),
)
@options.counter_map
@options.acl_json
@options.as_json
@options.quiet
def command(
    *,
    paths: tuple[Path, ...],
    directory: Path | None,
    workspace: Path | None,
    board: str | None,
    maps: CounterMaps,
    acl_json: Path | None,
    as_json: bool,
) -> int:
    """Import a JOB directory, or one of OPS-…, MARKS-… or METRICS-…, into the database in its sqlite/ folder.

    The database is made anew each time. With --workspace the JOB is copied there, and becomes what `record` would have
    made of it; what is there already is not copied again. Exit code 4: records that existed are missing. Exit code 1
    also where there is no record at all.

    Each PATH is a JOB, or has results of msprof, torch_npu, MindSpore or TensorFlow: a PROF_…, …_ascend_pt or
    …_ascend_ms directory, one of their CSV, JSON or .db files, an archive of such, or a folder of many. Each result
    becomes a session of a workspace.

    Example: profagent import -dir JOBABCDEFGHIJKLMNOPQRSTUVWXYZABC
    Example: profagent import -dir JOBABCDEFGHIJKLMNOPQRSTUVWXYZABC --workspace lab --board euler
    Example: profagent import runs/rank0_ascend_pt runs/PROF_000001_20260823165326062_AB
    """
    if (directory is None) == (not paths):
        raise UsageError("name either a JOB directory or what to import", hint="-dir JOB…, or PATH…")
    if directory is None and len(paths) == 1 and source_named(Path(os.path.realpath(paths[0])).name):
        directory = paths[0]
    if directory is None:
        return run_to_the_end(
            lambda: _into_sessions(paths, Workspace.at(workspace), identity_of(board), as_json=as_json)
        )
    profiling = None if acl_json is None else read_acl_json(acl_json)
    if workspace is None:
        if board is not None:
            raise UsageError("--board goes with --workspace", hint="name the workspace to import into")
        return run_to_the_end(lambda: _into_the_job(directory, maps, profiling, as_json=as_json))
    identity, found = identity_of(board), Workspace(workspace)
    summary = run_until_stopped(
        lambda stop: import_into(directory, found, stop, board=identity, maps=maps, profiling=profiling)
    )
    click.echo(msgspec.json.encode(summary) if as_json else "\n".join(summary_lines(summary)))
    return run_to_the_end(lambda: _exit_code(summary, found.database))


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
    from profagent.link.boards_file import BoardsFile  # noqa: PLC0415 - imports that name no board start faster

    entry = BoardsFile().entries().get(board)
    return entry.uuid if entry is not None and entry.uuid else board


async def _into_the_job(directory: Path, maps: CounterMaps, profiling: Profiling | None, *, as_json: bool) -> int:
    has_changed = await fresh_database(directory, maps) is None
    imported = await import_job(directory, maps, profiling=profiling, tell=tell)
    async with reading(imported.database) as connection:
        summary = await session_summary(connection, SESSION)
    lines = ledger_lines(summary["ledger"])
    write_log(directory, [f"import: {counted(imported.files, 'file')} in {imported.elapsed_s:.1f} s", *lines])
    if as_json:
        click.echo(msgspec.json.encode({**summary, "database": display_text(str(imported.database))}))
    else:
        records = ", ".join(f"{count} {unit}" for unit, count in summary["records"].items())
        mark = " [simulated]" if imported.simulated else ""
        again = "" if has_changed else "; nothing new: no file has changed since the import before"
        if (events := events_line(summary["events"])) is not None:
            records = f"{records}, {events}"
        click.echo(
            f"imported {counted(imported.files, 'file')}{mark}: {records}{again}\n  database: {imported.database}"
        )
        for line in (*lines, *summary["implausible"]):
            tell(f"  {line}")
    return await _exit_code(summary, imported.database)


async def _exit_code(summary: dict[str, Any], database: Path) -> int:
    empty = await tell_unrecorded(database, summary["session"])
    return exit_code_of(summary) or empty


async def _into_sessions(paths: Sequence[Path], workspace: Workspace, board: str, *, as_json: bool) -> int:
    """Import results of other tools, a session each, and tell what came of them; the exit code."""
    from profagent.ascend.importing import found_sources, import_results  # noqa: PLC0415 - a JOB needs none of it

    found = await asyncio.to_thread(found_sources, paths)
    come: list[object] = []
    with progress("import", "results") as shown:

        def count(one: object) -> None:
            come.append(one)
            shown(len(come), len(found))

        taken = await import_results(found, workspace, board, count)
    if as_json:
        click.echo(msgspec.json.encode([_result_document(each) for each in taken]))
    else:
        for each in taken:
            click.echo(printable(_result_line(each)))
        click.echo(f"database: {workspace.database}")
    for each in taken:
        if each.error is not None:
            said = str(each.error)
            tell(said if str(each.path) in said else f"{each.path}: {said}")
            tell(f"  {each.error.hint}")
    if any(each.error is not None for each in taken):
        return ProfagentError.exit_code
    return IncompleteError.exit_code if any(each.losses for each in taken) else 0


def _result_line(taken: Taken) -> str:
    if taken.session is None:
        return f"not imported: {taken.path}"
    if taken.is_known:
        return f"session {taken.session}: {taken.path}: nothing new"
    entries = f", {taken.entries} in its ledger" if taken.entries else ""
    came = f"{counted(taken.rows, 'row')}, {counted(taken.kernels, 'kernel')}{entries}"
    return f"session {taken.session}: {taken.path}: {came}"


def _result_document(taken: Taken) -> dict[str, Any]:
    error = None if taken.error is None else display_text(str(taken.error))
    return {**taken._asdict(), "path": display_text(str(taken.path)), "error": error}
