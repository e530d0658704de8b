"""`profagent export timeline` and `profagent export summary`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from profagent.cli import options
from profagent.cli.provenance import ledger_lines, not_final_lines
from profagent.cli.running import asynchronous, tell
from profagent.export.export import NO_CHOICE, SummaryOptions, export_summary, export_timeline
from profagent.importing.job_folder import (
    choice_options,
    chosen_inferences,
    find_target,
    target_options,
    tell_unrecorded,
    write_log,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from profagent.cli.table import SheetFormat
    from profagent.export.export import Exported
    from profagent.importing.job_folder import Target
    from profagent.store.counter_maps import CounterMaps


@click.group("export")
def command() -> None:
    """Write timelines or summaries of a JOB directory or of a session.

    Files of a JOB go to its timeline/ and summary/ folders, those of a session to exports/ in the workspace.

    Example: profagent export timeline -dir JOBABCDEFGHIJKLMNOPQRSTUVWXYZABC
    """


@command.command("timeline")
@target_options
@choice_options
@options.as_json
@asynchronous
async def timeline(
    *,
    directory: Path | None,
    session: int | None,
    job: str | None,
    workspace: Path | None,
    maps: CounterMaps,
    last: int | None,
    inference: int | None,
    as_json: bool,
) -> int:
    """Write task_time and acl timelines for chrome://tracing and Perfetto.

    Example: profagent export timeline -dir JOBABCDEFGHIJKLMNOPQRSTUVWXYZABC --last 100
    """
    target = await find_target(directory, session, job, workspace, maps)
    exported = await export_timeline(
        target.database,
        target.output("timeline"),
        session=target.session,
        job=target.job,
        choice=chosen_inferences(last, inference, NO_CHOICE),
    )
    _report(target, exported, as_json=as_json)
    _tell_if_absent(exported, "task_time", inference)
    return await _unrecorded(target, exported)


@command.command("summary")
@target_options
@choice_options
@click.option("--format", "sheet_format", type=click.Choice(["csv", "json"]), default="csv", show_default=True)
@click.option("--aggregate", is_flag=True, help="One table over all inferences of a model, not one for each.")
@options.as_json
@asynchronous
async def summary(  # noqa: PLR0913 - one parameter an option
    *,
    directory: Path | None,
    session: int | None,
    job: str | None,
    workspace: Path | None,
    maps: CounterMaps,
    last: int | None,
    inference: int | None,
    sheet_format: SheetFormat,
    aggregate: bool,
    as_json: bool,
) -> int:
    """Write op_summary, op_statistic and acl_statistic tables.

    Example: profagent export summary -dir JOBABCDEFGHIJKLMNOPQRSTUVWXYZABC --format csv
    """
    target = await find_target(directory, session, job, workspace, maps)
    chosen = SummaryOptions(sheet_format, chosen_inferences(last, inference, NO_CHOICE), aggregate)
    exported = await export_summary(
        target.database, target.output("summary"), session=target.session, job=target.job, options=chosen
    )
    _report(target, exported, as_json=as_json)
    _tell_if_absent(exported, "op_", inference)
    return await _unrecorded(target, exported)


def _tell_if_absent(exported: Sequence[Exported], prefix: str, inference: int | None) -> None:
    """Say that no inference has the picture count that was asked for."""
    if inference is not None and not any(name.startswith(prefix) for job in exported for name in job.files):
        tell(f"no inference has the picture count {inference}")


async def _unrecorded(target: Target, exported: Sequence[Exported]) -> int:
    """Say why a JOB has no files; the exit code."""
    is_without = any(not job.files for job in exported)
    return await tell_unrecorded(target.database, target.session, target.job) if is_without else 0


def _report(target: Target, exported: Sequence[Exported], *, as_json: bool) -> None:
    for job in exported:
        lines = [f"export: {len(job.files)} files in {job.directory}", *ledger_lines(job.ledger)]
        lines += [f"{line}: left out" for line in not_final_lines(job.not_final)]
        if job.unplaced:
            lines.append(f"{job.unplaced} records or calls have no known start and are not in the timeline")
        if target.session is None:
            write_log(target.folder, lines)
        for line in lines[1:]:
            tell(f"  {line}")
    if as_json:
        told = [{**job._asdict(), "directory": str(job.directory)} for job in exported]
        click.echo(msgspec.json.encode(told))
        return
    for job in exported:
        click.echo(f"{job.job}{' [simulated]' if job.simulated else ''}: {len(job.files)} files in {job.directory}")
