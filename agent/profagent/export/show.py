"""`profagent show`: the vendor's four tables of JOBs on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.cli.exit_codes import tell_incomplete
from profagent.cli.running import asynchronous
from profagent.cli.target import choice_options, tell_unrecorded, vendor_target_options
from profagent.export.job_files import NO_CHOICE
from profagent.export.tables import acl_statistic_rows, icache_miss_rate, inference_tables
from profagent.export.timeline import export_timeline
from profagent.store.database import reading
from profagent.store.job_folder import write_log
from profagent.store.queries import Scope, call_logs, calls, count_inferences, find_session, jobs_of
from profagent.store.selection import Choice, Selection
from profagent.store.sessions import require_records
from profagent.store.summary import event_counts
from profagent.tables.provenance import (
    SIMULATED_MARK,
    events_line,
    provenance_lines,
    provenance_of,
    session_title,
)
from profagent.tables.table import (
    ACL_STATISTIC,
    FREQUENCY,
    UNKNOWN,
    Cell,
    Column,
    as_object,
    counted,
    fitted_lines,
    printable,
    toned,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from profagent.store.database import Running
    from profagent.store.selection import InferenceRow
    from profagent.store.target import Target


LAST_INFERENCE = Choice(last=1)
# Columns that a narrow terminal leaves out, the first ones first.
LESS = (
    *("Layer Id", "Ori Layer Name", "Layer Type", "Task ID", "Stream ID", "Process ID", "Thread ID"),
    *("DDR Read(byte)", "DDR Write(byte)", "Mac Ppen Ratio", "Vec Ppen Ratio", "Dtrans Ratio", "Total Time Ratio(%)"),
)


class ShownTable(NamedTuple):
    """One table: which of the four it is, its subject, and its rows."""

    kind: str
    about: dict[str, Cell]
    columns: Sequence[Column]
    rows: Sequence[tuple[Cell, ...]]


class ShownJob(NamedTuple):
    """Tables of one JOB; `inferences` of its `known_inferences` have tables of layers."""

    provenance: dict[str, Any]
    known_inferences: int
    inferences: int
    tables: list[ShownTable]


async def show(
    database: Path, *, session: int | None = None, job: str | None = None, choice: Choice = LAST_INFERENCE
) -> list[ShownJob]:
    """Return the tables of each of the session's JOBs, or of one JOB.

    The chosen inferences have tables of layers: by default, each model's last one. `session` None is the newest
    one. Raises UsageError and StoreError.
    """
    async with reading(database) as connection:
        found = await find_session(connection, session)
        await require_records(connection, found.session)
        return [
            await _show_job(connection, Scope(found, row), choice)
            for row in await jobs_of(connection, found.session, job)
        ]


def shown_as_document(shown: ShownJob) -> dict[str, Any]:
    """Return the object that `--json` prints for a JOB: its provenance, and its tables as arrays of objects."""
    tables = [
        {"table": table.kind, "about": table.about, "rows": [as_object(table.columns, row) for row in table.rows]}
        for table in shown.tables
    ]
    return {**shown.provenance, "known_inferences": shown.known_inferences, "tables": tables}


def shown_as_text(shown: ShownJob, columns: int = 0) -> Iterator[str]:
    """Yield the lines for a terminal of this many columns (0: any): heading, tables, ledger, and the PMU's base."""
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


async def _show_job(connection: Running, scope: Scope, choice: Choice) -> ShownJob:
    selection, logs = (
        await Selection.of(connection, scope, choice._replace(by_aicore=True)),
        await call_logs(connection, scope),
    )
    inferences: list[InferenceRow] = []
    summaries: list[ShownTable] = []
    statistics: list[ShownTable] = []
    async for found in inference_tables(connection, scope, selection):
        inferences += found.inferences
        for kind, tables, sheets in (
            ("AA core metric", summaries, found.op_summary),
            ("Op statistic", statistics, found.op_statistic),
        ):
            for each, shown in zip(found.inferences, sheets.rows(), strict=True):
                tables.append(ShownTable(kind, _subject(each), sheets.columns, shown))
    # The vendor prints all op_summary tables before those of op_statistic, of calls and of the frequency.
    tables = summaries + statistics
    for log in logs:
        about: dict[str, Cell] = {"model": log.model_name, "model id": log.model_id, "device": log.device_id}
        rows = await acl_statistic_rows(calls(connection, scope, log.log))
        tables.append(ShownTable("Acl statistic", about, ACL_STATISTIC, rows))
    devices = sorted({each.device_id for each in inferences} | {log.device_id for log in logs})
    frequency = [(device, scope.job.clock_mhz) for device in devices]
    tables.append(ShownTable("Frequency", {}, FREQUENCY, frequency))
    known = await count_inferences(connection, scope.job.job, scope.session.session)
    events = await event_counts(connection, scope.session.session)
    provenance = {**await provenance_of(connection, scope), "events": events}
    return ShownJob(provenance, known, len(inferences), [table for table in tables if table.rows])


def _subject(inference: InferenceRow) -> dict[str, Cell]:
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
async def command(*, target: Target, choice: Choice, as_json: bool, columns: int) -> int:
    """Print the four tables: AA core metric, Op statistic, Acl statistic, Frequency.

    Like the vendor's command it leaves sqlite/, log/ and timeline/ in a JOB directory.

    Example: profagent show -dir JOBABCDEFGHIJKLMNOPQRSTUVWXYZABC --last 1
    Example: profagent show 3 --wide
    """
    shown = LAST_INFERENCE if choice == NO_CHOICE else choice
    found = await show(target.database, session=target.session, job=target.job, choice=shown)
    if target.session is None:
        # The vendor's command leaves a timeline in the JOB directory, too.
        await export_timeline(target.database, target.output("timeline"), job=target.job)
        write_log(target.folder, ["show"])
    if as_json:
        print_document("show", [shown_as_document(each) for each in found])
    elif not found:
        click.echo(await _line_without_jobs(target))
    else:
        click.echo("\n".join(line for each in found for line in shown_as_text(each, columns)))
    await tell_incomplete(target.database, [target.session])
    is_without = any(not each.known_inferences for each in found)
    return await tell_unrecorded(target.database, target.session, target.job) if is_without else 0


async def _line_without_jobs(target: Target) -> str:
    async with reading(target.database) as connection:
        found = await find_session(connection, target.session)
        events = events_line(await event_counts(connection, found.session)) or "nothing"
    return f"{session_title(found._asdict())}: {events}; no JOB{SIMULATED_MARK if found.simulated else ''}"
