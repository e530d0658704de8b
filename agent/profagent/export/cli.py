"""`profagent export NAME`: a command for each entry of FORMATS."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.cli.exit_codes import exit_code_of_written
from profagent.cli.running import asynchronous, tell
from profagent.cli.target import (
    choice_options,
    named_target,
    tell_unrecorded,
    vendor_target_options,
)
from profagent.errors import IncompleteError, UsageError
from profagent.export.formats import FORMATS, Format, FormatScope
from profagent.export.merged import SessionOperand, export_trace
from profagent.export.session_trace import TraceSelection
from profagent.formats.names import display_text
from profagent.ingest.local import OUTPUT_FOLDERS
from profagent.store.database import reading
from profagent.store.incidents import incident_of
from profagent.store.job_folder import DATABASE_FOLDER, write_log
from profagent.store.queries import find_session
from profagent.store.target import directory_named
from profagent.tables.provenance import ledger_lines, not_final_lines
from profagent.tables.table import counted
from profagent.units import US_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from profagent.export.formats import Written
    from profagent.export.job_files import ExportedJob
    from profagent.export.merged import MergedTrace
    from profagent.formats.counter_maps import CounterMaps
    from profagent.store.selection import Choice
    from profagent.store.target import Target

# Folder in a JOB directory for formats that have no folder of their own there.
OTHER_FOLDER = "exports"


class FormatGroup(click.Group):
    """Click group with a command for each entry of FORMATS, in its order."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's interface
        """Return the names of all formats."""
        return list(FORMATS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Return the command of a format, or None if no format has that name."""
        return command_of(cmd_name, FORMATS[cmd_name]) if cmd_name in FORMATS else None


@click.group("export", cls=FormatGroup)
def command() -> None:
    """Write a JOB directory or sessions in a format for other programs.

    Files of a JOB are written to its timeline/, summary/ and trace/ folders, files of a session to exports/ in the
    workspace.

    Example: profagent export timeline -dir JOBABCDEFGHIJKLMNOPQRSTUVWXYZABC
    Example: profagent export trace 3 --last 100
    """


@functools.cache
def command_of(name: str, format_: Format) -> click.Command:
    """Return the command that writes a format."""
    # A command is made when it is first asked for: `profagent --help` needs none of them.
    callback, examples = _MAKERS[format_.scope](format_)
    found = click.command(name, cls=options.SessionCommand)(callback)
    found.params += format_.options
    found.help = "\n\n".join(
        [
            format_.about,
            f"It opens in {format_.opens_in}.",
            "\n".join(f"Example: profagent export {name} {example}" for example in examples),
        ]
    )
    return found


def results(target: Target, format_: Format) -> Path:
    """Return the default folder for the results of a format. Raises StoreError."""
    # A JOB directory holds its own database in sqlite/, which an export must not replace.
    is_other = format_.folder == DATABASE_FOLDER or format_.folder not in OUTPUT_FOLDERS
    return target.output(OTHER_FOLDER if target.session is None and is_other else format_.folder)


# Several sessions as one trace


def _trace(format_: Format) -> tuple[Callable[..., Any], Sequence[str]]:
    @options.targets
    @options.workspace
    @click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N inferences of each model.")
    @click.option(
        "--from",
        "from_text",
        metavar="TIME",
        help="Only from this time on, by the board's clock: s since 1970, or 2026-11-23T14:00:00 (UTC).",
    )
    @click.option("--to", "to_text", metavar="TIME", help="Only until this time, by the board's clock.")
    @click.option(
        "--incident",
        type=click.IntRange(min=1),
        metavar="N",
        help="Only the window of this incident, as `profagent incidents` numbers them.",
    )
    @click.option(
        "--output", type=options.OUTPUT_FILE, metavar="FILE", help=f"The file to write, in place of {format_.place}."
    )
    @options.counter_map
    @options.as_json
    @options.quiet
    @asynchronous
    async def write(  # noqa: PLR0913 - one parameter an option
        *,
        targets: tuple[str, ...],
        workspace: Path | None,
        last: int | None,
        from_text: str | None,
        to_text: str | None,
        incident: int | None,
        output: Path | None,
        maps: CounterMaps,
        as_json: bool,
        **more: Any,
    ) -> int:
        if [last, from_text or to_text, incident].count(None) < 2:
            raise UsageError("--last, --incident, and --from with --to, choose a part", hint="give only one of them")
        found = [await _target_of(target, workspace, maps) for target in targets]
        selection = TraceSelection(last, _time_us(from_text), _time_us(to_text))
        if incident is not None:
            selection = await _window(found, incident)
        # A trace of several sessions goes to the folder of the first one.
        file = output or results(found[0], format_) / format_.file_name
        merged = await export_trace(_operands(found), file, selection, functools.partial(format_.load(), **more))
        _report_merged(merged, format_, as_json=as_json)
        code = 0 if merged.events else IncompleteError.exit_code
        for target in found:
            code = await exit_code_of_written(target.database, [target.session], code)
        return code

    return write, ("3", "3 --last 100", "3 --incident 1", f"3 4 --output {format_.file_name}")


def _operands(targets: Sequence[Target]) -> list[SessionOperand]:
    found = [SessionOperand(target.database, target.session) for target in targets]
    if len({*found}) < len(found):
        raise UsageError("a session was named twice", hint="name each once")
    return found


async def _window(targets: Sequence[Target], number: int) -> TraceSelection:
    if len(targets) > 1:
        raise UsageError("--incident goes with one session", hint="name the session that has the incident")
    async with reading(targets[0].database) as connection:
        session = await find_session(connection, targets[0].session)
        incident = await incident_of(connection, session.session, number)
    return TraceSelection(from_us=incident.begin_us, to_us=incident.end_us)


def _report_merged(merged: MergedTrace, format_: Format, *, as_json: bool) -> None:
    # One warning is enough for all files of a trace: each of them has its own metadata.
    if len(merged.files) > 1:
        tell(
            "the trace is split by tracks, so that no file has all tracks of a time; --from and --to choose a time,"
            " `export perfetto` writes one file"
        )
    if merged.unplaced:
        tell(f"{merged.unplaced} records have no known place in time and are left out")
    if merged.metadata["clock"] == "host":
        for session in merged.metadata["sessions"]:
            line = session["clock_offset_us"]
            sure = "not known: it is not moved" if line is None else f"known to {line['uncertainty_us']:,.0f} us"
            tell(f"session {session['session']}: its clock's distance from the host's is {sure}")
    if as_json:
        files = [display_text(str(file)) for file in merged.files]
        print_document("export-trace", {"files": files, "events": merged.events, "metadata": merged.metadata})
        return
    for file in merged.files:
        click.echo(str(file))
    which = "each file" if len(merged.files) > 1 else "it"
    click.echo(f"{counted(merged.events, 'event')}; {which} opens in {format_.opens_in}")


def _time_us(text: str | None) -> int | None:
    """Return a time of the board's clock in µs, from seconds since 1970 or an ISO time. Raises UsageError."""
    if text is None:
        return None
    try:
        seconds = float(text) if text.replace(".", "", 1).isdecimal() else _utc(text).timestamp()
        return int(seconds * US_PER_S)
    except (ValueError, OverflowError) as error:
        hint = "write seconds since 1970, or a time as 2026-11-23T14:00:00, which is UTC"
        raise UsageError(f"{text!r} is not a time", hint=hint) from error


def _utc(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


# Files for each JOB


def _tables(format_: Format) -> tuple[Callable[..., Any], Sequence[str]]:
    @asynchronous
    @vendor_target_options
    @choice_options
    @options.as_json
    @options.quiet
    async def write(*, target: Target, choice: Choice, as_json: bool, **more: Any) -> int:
        folder = results(target, format_)
        exported = await format_.load()(
            target.database, folder, session=target.session, job=target.job, choice=choice, **more
        )
        return await _report_exported(target, exported, choice, as_json=as_json)

    return write, ("-dir JOBABCDEFGHIJKLMNOPQRSTUVWXYZABC --last 100", "3")


async def _report_exported(target: Target, exported: Sequence[ExportedJob], choice: Choice, *, as_json: bool) -> int:
    for job in exported:
        _report_left_out(target, job)
    if as_json:
        print_document("export-tables", [job.document() for job in exported])
    for job in () if as_json else exported:
        mark = " [simulated]" if job.simulated else ""
        click.echo(f"{job.job}{mark}: {counted(len(job.files), 'file')} in {job.directory}")
    has_inferences = any(job.inference_files for job in exported)
    # A JOB without any inference is complete; one whose inferences all lack final figures is not.
    is_left_out = not has_inferences and any(job.not_final for job in exported)
    if choice.inference is not None and not has_inferences:
        tell(f"no inference has the picture count {choice.inference}")
        is_left_out = True
    is_without = not all(job.files for job in exported) or not exported
    code = await tell_unrecorded(target.database, target.session, target.job) if is_without else 0
    return await exit_code_of_written(
        target.database, [target.session], IncompleteError.exit_code if is_left_out else code
    )


def _report_left_out(target: Target, job: ExportedJob) -> None:
    lines = [*ledger_lines(job.ledger), *(f"{line}: {job.left_out}" for line in not_final_lines(job.not_final))]
    if job.unplaced:
        lines.append(f"{job.unplaced} records or calls have no known start and are not in the timeline")
    if target.session is None:
        write_log(target.folder, [f"export: {counted(len(job.files), 'file')} in {job.directory}", *lines])
    # The terminal gets the same lines as the log of the JOB directory.
    for line in lines:
        tell(f"  {line}")


# Everything that one session has

_only_target = click.argument(
    "targets",
    metavar="SESSION|JOB",
    callback=lambda _context, _argument, target: (target,),
    shell_complete=options.completed("targets"),
)


def _session(format_: Format) -> tuple[Callable[..., Any], Sequence[str]]:
    in_job = "" if format_.is_folder else f"; of a JOB, {OTHER_FOLDER}/{format_.file_name}"
    kind = options.FOLDER if format_.is_folder else options.OUTPUT_FILE
    targets = options.targets if format_.is_folder else _only_target

    @targets
    @options.workspace
    @click.option(
        "--output",
        type=kind,
        metavar="DIR" if format_.is_folder else "FILE",
        help=f"Where to write, in place of {format_.place}{in_job}.",
    )
    @options.counter_map
    @options.as_json
    @asynchronous
    async def write(
        *,
        targets: tuple[str, ...],
        workspace: Path | None,
        output: Path | None,
        maps: CounterMaps,
        as_json: bool,
        **more: Any,
    ) -> int:
        documents = []
        code = 0
        for text in targets:
            target = await _target_of(text, workspace, maps)
            place = output or results(target, format_) / ("" if format_.is_folder else format_.file_name)
            written = await format_.load()(target.database, place, target.session, **more)
            documents.append(_document(written))
            if not as_json:
                click.echo(f"session {written.metadata['session']}: {_line(written)}")
            code = await exit_code_of_written(target.database, [target.session], code)
        if as_json:
            print_document("export-session", documents)
        return code

    return write, ("3", f"3 4 --output {format_.folder}" if format_.is_folder else f"3 --output {format_.file_name}")


def _document(written: Written) -> dict[str, Any]:
    rows = None if written.rows is None else dict(written.rows)
    return {
        "path": display_text(str(written.place)),
        "rows": rows,
        "also": [*written.also],
        "metadata": written.metadata,
    }


def _line(written: Written) -> str:
    if written.also:
        others = ", ".join(map(str, written.also))
        return f"{written.place}, with {others}: they share a JOB, which neither has whole without the other"
    if written.rows is None:
        return str(written.place)
    return f"{counted(sum(written.rows.values()), 'row')} of {counted(len(written.rows), 'view')} in {written.place}"


async def _target_of(text: str, workspace: Path | None, maps: CounterMaps) -> Target:
    # A workspace belongs to the sessions among the operands only: a JOB directory has its own database.
    return await named_target(text, None, workspace if directory_named(text) is None else None, maps)


_MAKERS = {FormatScope.TRACE: _trace, FormatScope.TABLES: _tables, FormatScope.SESSION: _session}
