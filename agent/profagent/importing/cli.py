"""The command `profagent import`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.cli.exit_codes import exit_code_of
from profagent.cli.running import run_to_the_end, run_until_stopped, tell
from profagent.cli.target import tell_unrecorded
from profagent.errors import IncompleteError, ProfagentError, UsageError
from profagent.formats.board_files import parse_acl_json
from profagent.formats.names import display_text
from profagent.importing.importing import import_into, import_job
from profagent.link.messages import Profiling
from profagent.store.database import reading
from profagent.store.job_folder import fresh_database, write_log
from profagent.store.sessions import NO_BOARD
from profagent.store.summary import session_summary
from profagent.store.workspace import Workspace
from profagent.tables.provenance import events_line, ledger_lines, summary_lines
from profagent.tables.table import counted, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.ascend.importing import ImportedSource
    from profagent.formats.counter_maps import CounterMaps

# The database of an import into a JOB directory holds one session, with this number.
SESSION = 1


@click.command("import")
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(readable=False, path_type=Path))
@options.job_directory(required=False)
@click.option(
    "--workspace",
    type=options.FOLDER,
    metavar="DIR",
    help="The folder of sessions. Without it, -dir uses the JOB's own database; PATH uses $PROFAGENT_WORKSPACE, else"
    " ~/.local/share/profagent.",
)
@click.option(
    "--board",
    metavar="BOARD",
    help="With PATH or --workspace: the board that recorded the data, as a name or an identity.",
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
    """Import JOB directories and results of other tools. Each becomes a session of a workspace.

    Each PATH is searched at any depth: for JOB directories, OPS-…, MARKS-… and METRICS-…; for results of msprof,
    torch_npu, MindSpore or TensorFlow, such as PROF_…, …_ascend_pt and …_ascend_ms directories and their CSV, JSON or
    .db files; and for archives of all these. Data that the workspace has already is not copied again. If one source
    fails, the others are imported all the same. The last line counts the files that were not imported; --json lists
    each with the cause.

    With -dir, one JOB is imported into the database in its sqlite/ folder, which is made anew each time. With -dir and
    --workspace, it is imported into the workspace, and a summary is printed.

    Exit code 1: a source could not be imported, or a JOB has no record at all. 4: all sources were imported, but
    records that existed are missing. 2: nothing at any PATH can be imported.

    Example: profagent import -dir JOBABCDEFGHIJKLMNOPQRSTUVWXYZABC
    Example: profagent import -dir JOBABCDEFGHIJKLMNOPQRSTUVWXYZABC --workspace lab --board euler
    Example: profagent import output runs/rank0_ascend_pt results.zip --workspace lab
    """
    if (directory is None) == (not paths):
        raise UsageError("name either a JOB directory or what to import", hint="-dir JOB…, or PATH…")
    profiling = None if acl_json is None else read_acl_json(acl_json)
    if directory is None:
        into, identity = Workspace.at(workspace), identity_of(board)
        return run_to_the_end(lambda: _into_sessions(paths, into, identity, maps, profiling, as_json=as_json))
    if workspace is None:
        if board is not None:
            raise UsageError("--board goes with --workspace", hint="name the workspace to import into")
        return run_to_the_end(lambda: _into_the_job(directory, maps, profiling, as_json=as_json))
    identity, found = identity_of(board), Workspace(workspace)
    summary = run_until_stopped(
        lambda stop: import_into(directory, found, stop, board=identity, maps=maps, profiling=profiling)
    )
    if as_json:
        print_document("import-into", summary)
    else:
        click.echo("\n".join(summary_lines(summary)))
    return run_to_the_end(lambda: _exit_code(summary, found.database))


def read_acl_json(file: Path) -> Profiling:
    """Return the profiling settings in an acl.json. Raises UsageError, FormatError."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {file}: {error.strerror}", hint="name the acl.json that the JOB's program was given"
        ) from error
    return Profiling(str(file), str(parse_acl_json(data, str(file))))


def identity_of(board: str | None) -> str:
    """Return the identity of a board by its name in the boards file; any other text is taken for an identity."""
    if board is None:
        return NO_BOARD
    from profagent.link.boards_file import BoardsFile  # noqa: PLC0415 - imports that name no board start faster

    entry = BoardsFile().entries().get(board)
    return entry.uuid if entry is not None and entry.uuid else board


async def _into_the_job(directory: Path, maps: CounterMaps, profiling: Profiling | None, *, as_json: bool) -> int:
    # The check precedes the import, which makes the database anew in any case.
    has_changed = await fresh_database(directory, maps) is None
    imported = await import_job(directory, maps, profiling=profiling, tell=tell)
    async with reading(imported.database) as connection:
        summary = await session_summary(connection, SESSION)
    lines = ledger_lines(summary["ledger"])
    write_log(directory, [f"import: {counted(imported.files, 'file')} in {imported.elapsed_s:.1f} s", *lines])
    if as_json:
        print_document("import-job", {**summary, "database": display_text(str(imported.database))})
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


async def _into_sessions(
    paths: Sequence[Path],
    workspace: Workspace,
    board: str,
    maps: CounterMaps,
    profiling: Profiling | None,
    *,
    as_json: bool,
) -> int:
    from profagent.importing.paths import import_paths  # noqa: PLC0415 - one JOB needs none of it
    from profagent.importing.sources import skipped_text  # noqa: PLC0415 - as above

    taken, jobs, skipped = await import_paths(paths, workspace, board=board, maps=maps, profiling=profiling)
    if as_json:
        document = {
            "sources": [_source_document(each) for each in taken],
            "not_taken": [{"path": display_text(str(each.address)), "why": each.why.value} for each in skipped],
            "database": display_text(str(workspace.database)),
        }
        print_document("import", document)
    else:
        for each in taken:
            click.echo(printable(_source_line(each)))
        if skipped:
            click.echo(f"not imported: {skipped_text(skipped)}; --json lists them")
        click.echo(f"database: {workspace.database}")
    # Errors go to stderr after the sources, so that they stand last on a terminal.
    for each in taken:
        if each.error is not None:
            message = str(each.error)
            tell(message if str(each.path) in message else f"{each.path}: {message}")
            tell(f"  {each.error.hint}")
    empty = [await tell_unrecorded(workspace.database, session) for session in jobs]
    # A source that failed outweighs missing records, and these outweigh a JOB without records.
    if any(each.error is not None for each in taken):
        return ProfagentError.exit_code
    return IncompleteError.exit_code if any(each.losses for each in taken) else max(empty, default=0)


def _source_line(taken: ImportedSource) -> str:
    if taken.session is None:
        return f"not imported: {taken.path}"
    ledger = f"; losses: {taken.losses:,}, notes: {taken.notes:,}" if taken.losses or taken.notes else ""
    if taken.is_known:
        return f"session {taken.session}: {taken.path}: nothing new{ledger}"
    kernels = f", {counted(taken.kernels, 'kernel')}" if taken.kernels else ""
    return f"session {taken.session}: {taken.path} ({taken.what}): {counted(taken.rows, 'row')}{kernels}{ledger}"


def _source_document(taken: ImportedSource) -> dict[str, Any]:
    error: dict[str, str | None] = {"error": None, "hint": None}
    if taken.error is not None:
        error = {"error": display_text(str(taken.error)), "hint": display_text(taken.error.hint)}
    return {**taken._asdict(), "path": display_text(str(taken.path)), **error}
