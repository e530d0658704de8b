"""`profagent show`, and of `profagent export` what writes no merged trace: timeline, summary, parquet, sqlite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from profagent.cli import options
from profagent.cli.exit_codes import exit_code_of_written, tell_incomplete
from profagent.cli.provenance import (
    SIMULATED_MARK,
    events_line,
    ledger_lines,
    not_final_lines,
    provenance_lines,
    provenance_of,
    session_title,
)
from profagent.cli.running import asynchronous, tell
from profagent.cli.table import (
    ACL_STATISTIC,
    FREQUENCY,
    OP_STATISTIC,
    OP_SUMMARY,
    SHEETS,
    UNKNOWN,
    Cell,
    Column,
    as_object,
    counted,
    fitted_lines,
    json_text,
    printable,
    toned,
)
from profagent.errors import IncompleteError
from profagent.export.export import NO_CHOICE, export_summary, export_timeline, icache_miss_rate
from profagent.export.merged_cli import perfetto, speedscope, target_of, trace
from profagent.export.parquet import export_parquet
from profagent.export.sqlite_file import export_sqlite
from profagent.export.tables import acl_statistic_rows, inference_tables
from profagent.formats.names import display_text
from profagent.formats.records import shown_mhz
from profagent.importing.job_folder import write_log
from profagent.importing.target import choice_options, tell_unrecorded, vendor_target_options
from profagent.store.database import FILE_NAME, event_counts, reading
from profagent.store.queries import Scope, call_logs, calls, count_inferences, find_session, jobs_of
from profagent.store.selection import Choice, Selection
from profagent.store.sessions import require_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import aiosqlite

    from profagent.export.export import Exported
    from profagent.importing.target import Target
    from profagent.store.counter_maps import CounterMaps
    from profagent.store.selection import InferenceRow


LAST_INFERENCE = Choice(last=1)
# What a narrow terminal does without, first of all.
LESS = (
    *("Layer Id", "Ori Layer Name", "Layer Type", "Task ID", "Stream ID", "Process ID", "Thread ID"),
    *("DDR Read(byte)", "DDR Write(byte)", "Mac Ppen Ratio", "Vec Ppen Ratio", "Dtrans Ratio", "Total Time Ratio(%)"),
)


class ShownTable(NamedTuple):
    """One table: which of the four it is, what it is about, and its rows."""

    kind: str
    about: dict[str, Cell]
    columns: Sequence[Column]
    rows: Sequence[tuple[Cell, ...]]


class Shown(NamedTuple):
    """The tables of one JOB; `inferences` of `known_inferences` have tables of layers."""

    provenance: dict[str, Any]
    known_inferences: int
    inferences: int
    tables: list[ShownTable]


async def show(
    database: Path, *, session: int | None = None, job: str | None = None, choice: Choice = LAST_INFERENCE
) -> list[Shown]:
    """The tables of each of the session's JOBs, or of one; of layers for the chosen inferences (each model's last).

    `session` None is the newest one. Raises UsageError and StoreError.
    """
    async with reading(database) as connection:
        found = await find_session(connection, session)
        await require_records(connection, found.session)
        return [
            await _show_job(connection, Scope(found, row), choice)
            for row in await jobs_of(connection, found.session, job)
        ]


def shown_as_document(shown: Shown) -> dict[str, Any]:
    """What `--json` prints for a JOB: where it comes from, and the tables as arrays of objects."""
    tables = [
        {"table": table.kind, **table.about, "rows": [as_object(table.columns, row) for row in table.rows]}
        for table in shown.tables
    ]
    return {**shown.provenance, "known_inferences": shown.known_inferences, "tables": tables}


def shown_as_text(shown: Shown, columns: int = 0) -> Iterator[str]:
    """Lines for a terminal of so many columns (0: any): a heading, tables, ledger, what the PMU columns stand on."""
    mark = SIMULATED_MARK if shown.provenance["simulated"] else ""
    yield printable(f"{shown.provenance['job']}  {session_title(shown.provenance)}{mark}")
    if shown.inferences < shown.known_inferences:
        yield f"{shown.inferences:,} of {counted(shown.known_inferences, 'inference')} shown; --last N shows more"
    for table in shown.tables:
        about = ", ".join(f"{name} {UNKNOWN if value is None else value}" for name, value in table.about.items())
        yield ""
        yield printable(f"{table.kind}: {about}" if about else table.kind)
        yield from fitted_lines(table.columns, table.rows, columns, less=LESS)
    yield ""
    if (events := events_line(shown.provenance["events"])) is not None:
        yield f"beside its JOBs, session {shown.provenance['session']} has {events}"
    yield from map(toned, provenance_lines(shown.provenance))
    yield shown.provenance["pmu"]


async def _show_job(connection: aiosqlite.Connection, scope: Scope, choice: Choice) -> Shown:
    """All op_summary tables stand before those of op_statistic, calls and the frequency."""
    selection, logs = (
        await Selection.of(connection, scope, choice._replace(by_aicore=True)),
        await call_logs(connection, scope),
    )
    found = [each async for each in inference_tables(connection, scope, selection)]
    tables = [ShownTable("AA core metric", _about(each.inference), OP_SUMMARY, each.op_summary) for each in found]
    tables += [ShownTable("Op statistic", _about(each.inference), OP_STATISTIC, each.op_statistic) for each in found]
    for log in logs:
        about: dict[str, Cell] = {"model": log.model_name, "model id": log.model_id, "device": log.device_id}
        rows = await acl_statistic_rows(calls(connection, scope, log.log))
        tables.append(ShownTable("Acl statistic", about, ACL_STATISTIC, rows))
    devices = sorted({each.inference.device_id for each in found} | {log.device_id for log in logs})
    frequency = [(device, shown_mhz(scope.job.frequency_mhz)) for device in devices]
    tables.append(ShownTable("Frequency", {}, FREQUENCY, frequency))
    known = await count_inferences(connection, scope.job.job, scope.session.session)
    events = await event_counts(connection, scope.session.session)
    provenance = {**await provenance_of(connection, scope), "events": events}
    return Shown(provenance, known, len(found), [table for table in tables if table.rows])


def _about(inference: InferenceRow) -> dict[str, Cell]:
    return {
        "model": inference.model_name,
        "model id": inference.model_id,
        "device": inference.device_id,
        "stream": inference.stream_id,
        "batch": inference.batch_num,
        "input pictures": inference.input_pic_num,
        "pictures before": inference.current_pic_count,
        "icache miss rate": icache_miss_rate(inference),
    }


@click.command("show", cls=options.SessionCommand)
@asynchronous
@vendor_target_options
@choice_options
@options.as_json
@options.wide
async def show_command(*, target: Target, choice: Choice, as_json: bool, columns: int) -> int:
    """Print the four tables: AA core metric, Op statistic, Acl statistic, Frequency.

    Like the vendor's command it leaves sqlite/, log/ and timeline/ in a JOB directory.

    Example: profagent show -dir JOBABCDEFGHIJKLMNOPQRSTUVWXYZABC --last 1
    Example: profagent show 3 --wide
    """
    shown = LAST_INFERENCE if choice == NO_CHOICE else choice
    found = await show(target.database, session=target.session, job=target.job, choice=shown)
    if target.session is None:
        await export_timeline(target.database, target.output("timeline"), job=target.job)
        write_log(target.folder, ["show"])
    if as_json:
        click.echo(json_text([shown_as_document(each) for each in found]))
    elif not found:
        click.echo(await _other_sources(target))
    else:
        click.echo("\n".join(line for each in found for line in shown_as_text(each, columns)))
    await tell_incomplete(target.database, [target.session])
    is_without = any(not each.known_inferences for each in found)
    return await tell_unrecorded(target.database, target.session, target.job) if is_without else 0


async def _other_sources(target: Target) -> str:
    """What a session without a JOB has."""
    async with reading(target.database) as connection:
        found = await find_session(connection, target.session)
        events = events_line(await event_counts(connection, found.session)) or "nothing"
    return f"{session_title(found._asdict())}: {events}; no JOB{SIMULATED_MARK if found.simulated else ''}"


@click.group("export")
def command() -> None:
    """Write timelines, summaries or one merged trace of a JOB directory or of a session.

    Files of a JOB go to its timeline/, summary/ and trace/ folders, those of a session to exports/ in the workspace.

    Example: profagent export timeline -dir JOBABCDEFGHIJKLMNOPQRSTUVWXYZABC
    Example: profagent export trace 3 --last 100
    """


for each in (trace, perfetto, speedscope):
    command.add_command(each)


@command.command("timeline", cls=options.SessionCommand)
@asynchronous
@vendor_target_options
@choice_options
@options.as_json
@options.quiet
async def timeline(*, target: Target, choice: Choice, as_json: bool) -> int:
    """Write task_time and acl timelines for chrome://tracing and Perfetto.

    Example: profagent export timeline -dir JOBABCDEFGHIJKLMNOPQRSTUVWXYZABC --last 100
    Example: profagent export timeline 3
    """
    exported = await export_timeline(
        target.database, target.output("timeline"), session=target.session, job=target.job, choice=choice
    )
    return await _ended(target, exported, "task_time", choice, as_json=as_json)


@command.command("summary", cls=options.SessionCommand)
@asynchronous
@vendor_target_options
@choice_options
@click.option("--format", "sheet_format", type=click.Choice([*SHEETS]), default="csv", show_default=True)
@click.option("--aggregate", is_flag=True, help="One table over all inferences of a model, not one for each.")
@options.as_json
@options.quiet
async def summary(*, target: Target, choice: Choice, sheet_format: str, aggregate: bool, as_json: bool) -> int:
    """Write op_summary, op_statistic and acl_statistic tables.

    Example: profagent export summary -dir JOBABCDEFGHIJKLMNOPQRSTUVWXYZABC --format csv
    Example: profagent export summary 3 --aggregate
    """
    exported = await export_summary(
        target.database,
        target.output("summary"),
        session=target.session,
        job=target.job,
        choice=choice,
        sheet_format=sheet_format,
        aggregate=aggregate,
    )
    return await _ended(target, exported, "op_", choice, as_json=as_json)


async def _ended(target: Target, exported: Sequence[Exported], prefix: str, choice: Choice, *, as_json: bool) -> int:
    """Say what was written, and why nothing where nothing was; return the exit code."""
    _report(target, exported, prefix, as_json=as_json)
    has_asked = any(name.startswith(prefix) for job in exported for name in job.files)
    is_left_out = not has_asked and any(job.not_final for job in exported)
    if choice.inference is not None and not has_asked:
        tell(f"no inference has the picture count {choice.inference}")
        is_left_out = True
    is_without = not all(job.files for job in exported) or not exported
    code = await tell_unrecorded(target.database, target.session, target.job) if is_without else 0
    return await exit_code_of_written(
        target.database, [target.session], IncompleteError.exit_code if is_left_out else code
    )


def _report(target: Target, exported: Sequence[Exported], prefix: str, *, as_json: bool) -> None:
    left_out = "left out, but in op_summary where all is known of the NPU" if prefix == "op_" else "left out"
    for job in exported:
        lines = [f"export: {counted(len(job.files), 'file')} in {job.directory}", *ledger_lines(job.ledger)]
        lines += [f"{line}: {left_out}" for line in not_final_lines(job.not_final)]
        if job.unplaced:
            lines.append(f"{job.unplaced} records or calls have no known start and are not in the timeline")
        if target.session is None:
            write_log(target.folder, lines)
        for line in lines[1:]:
            tell(f"  {line}")
    if as_json:
        document = [{**job._asdict(), "directory": display_text(str(job.directory))} for job in exported]
        click.echo(json_text(document))
        return
    for job in exported:
        click.echo(
            f"{job.job}{' [simulated]' if job.simulated else ''}: {counted(len(job.files), 'file')} in {job.directory}"
        )


@command.command("parquet", cls=options.SessionCommand)
@options.targets
@options.workspace
@click.option("--output", type=options.FOLDER, metavar="DIR", help="In place of parquet/.")
@options.counter_map
@options.as_json
@asynchronous
async def parquet(
    *, targets: tuple[str, ...], workspace: Path | None, output: Path | None, maps: CounterMaps, as_json: bool
) -> int:
    """Write the views as Parquet, by board and day.

    Several sessions may share a folder. Needs pyarrow; without it the error tells the command that installs it.

    Example: profagent export parquet 3
    Example: profagent export parquet 3 4 --output lake
    """
    documents = []
    code = 0
    for text in targets:
        target = await target_of(text, workspace, maps)
        written = await export_parquet(target.database, output or target.output("parquet"), target.session)
        rows = sum(written.rows.values())
        line = f"{counted(rows, 'row')} of {counted(len(written.rows), 'view')} in {written.folder}"
        folder = display_text(str(written.folder))
        documents.append({"folder": folder, "rows": written.rows, "metadata": written.metadata})
        if not as_json:
            click.echo(f"session {written.metadata['session']}: {line}")
        code = await exit_code_of_written(target.database, [target.session], code)
    if as_json:
        click.echo(json_text(documents))
    return code


@command.command("sqlite", cls=options.SessionCommand)
@options.target
@options.workspace
@click.option(
    "--output",
    type=options.OUTPUT_FILE,
    metavar="FILE",
    help=f"In place of sqlite/{FILE_NAME}; of a JOB, exports/{FILE_NAME}.",
)
@options.counter_map
@options.as_json
@asynchronous
async def sqlite(*, target: str, workspace: Path | None, output: Path | None, maps: CounterMaps, as_json: bool) -> int:
    """Write one session as a database of its own.

    A folder with such a profagent.db is a workspace to read from: profagent stats 3 --workspace DIR

    Example: profagent export sqlite 3
    Example: profagent export sqlite 3 --output /media/usb/profagent.db
    """
    found = await target_of(target, workspace, maps)
    # A JOB's own database is in its sqlite/.
    file = output or found.output("exports" if found.session is None else "sqlite") / FILE_NAME
    metadata = await export_sqlite(found.database, file, found.session)
    if as_json:
        click.echo(json_text({"file": display_text(str(file)), "metadata": metadata}))
    else:
        click.echo(f"session {metadata['session']}: {file}")
    return await exit_code_of_written(found.database, [found.session])
