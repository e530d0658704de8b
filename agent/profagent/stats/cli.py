"""`profagent stats` and `profagent trend`."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.cli.exit_codes import tell_incomplete
from profagent.cli.measured import print_measured
from profagent.cli.options import age_us
from profagent.cli.running import asynchronous
from profagent.cli.target import target_options, tell_unrecorded
from profagent.errors import UsageError
from profagent.link.boards_file import BoardNames
from profagent.stats.document import ANSWERS, cells_of, columns_of, model_lines, stats_document
from profagent.stats.figures import UNITS
from profagent.stats.frames import frame_lines
from profagent.stats.session_figures import OF_WHOLE_INFERENCES
from profagent.stats.slo import judgements
from profagent.stats.stats import BYS, stats
from profagent.stats.trend import MINUTE, trend
from profagent.store.workspace import Workspace
from profagent.tables.ci_formats import of_stats
from profagent.tables.provenance import SIMULATED_MARK, doubt_line, likely_counters, provenance_lines, session_title
from profagent.tables.slo import exit_code_of
from profagent.tables.table import (
    Column,
    counted,
    fitted_lines,
    printable,
    sheet_pieces,
    sparkline,
    time_text,
    toned,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from profagent.stats.session_figures import Row, StatsBy
    from profagent.stats.stats import Stats
    from profagent.stats.trend import BoardTrend
    from profagent.store.sessions import Condition
    from profagent.store.target import Target
    from profagent.tables.ci_formats import CiFormat
    from profagent.tables.slo import Judgement, Objective
    from profagent.tables.table import Tone

# The condition under which a program records any of it.
NEEDS = {
    "api": '"acl_api" of acl.json must be exactly "on"',
    "aicpu": '"aicpu" of acl.json must be exactly "on"',
    "step": "marks alone are no steps, a span, a range or a Profiler's step is one",
    "frame": "mark the program's stages with a frame's number: span(\"infer\", frame=7)",
}
# The condition under which another tool's results contain any of it.
NEEDS_OF_IMPORTED = {
    "api": "api_statistic, runtime_api, a timeline or a database's CANN_API tells calls; they are recorded with"
    " --ascendcl and --runtime-api of msprof, runtime_api of profiling_options, or the profiler's Level1",
    "aicpu": "of another tool's results --by type has what ran there, with (AI_CPU) behind its type; more is recorded"
    " with --aicpu=on of msprof, or aicpu of profiling_options",
    "step": "step_trace, step_trace_time, a timeline, or a database's STEP_TIME or StepTraceTime tells steps; they are"
    " recorded with training_trace of profiling_options, or step() of the profiler in PyTorch or MindSpore",
}
# Two decimals suffice for these units.
_COARSE = ("%", "1/s")
# Columns that a narrow terminal leaves out, in this order.
LESS = tuple(
    f"{name}{unit}"
    for name in ("mad", "mean", "p99", "max", "total", "type", "p95", "median")
    for unit in ("", "(us)", "(ticks)")
)
# A row of a model keeps its latency and pace; the origin of the latency is printed below the table.
LESS_OF_MODELS = ("mad(us)", "mean(us)", "bound by", "latency_from", "of_layers", "recorded", "max(us)", "layers(us)")


@click.command("stats", cls=options.SessionCommand)
@asynchronous
@target_options
@click.option("--by", type=click.Choice(BYS), default="layer", show_default=True, help="The subject of a row.")
@click.option("--skip", type=click.IntRange(min=0), metavar="N", help="Leave out the first N inferences of each load.")
@click.option(
    "--sort",
    metavar="COLUMN",
    help="Sort by this column; largest first.  [default: the time in an inference]",
    shell_complete=lambda context, _option, word: _beginning(columns_of(context.params["by"] or "layer"), word),
)
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Only the first N rows.")
@options.slo("Judge an objective, such as 'latency.p99 < 33ms': the verdict, how often, and the guilty part.")
@options.as_json
@click.option("--csv", "as_csv", is_flag=True, help="Print the table as CSV.")
@options.ci_format
@options.wide
async def command(  # noqa: PLR0913 - one parameter an option
    *,
    target: Target,
    by: StatsBy,
    skip: int | None,
    sort: str | None,
    top: int | None,
    objectives: list[Objective],
    as_json: bool,
    as_csv: bool,
    ci_format: CiFormat | None,
    columns: int,
) -> int:
    """Show what takes the time, over all inferences of a session or of a JOB directory.

    By layer, type or segment, each row shows its share of an inference's latency, on both processors. By model, each
    row shows the latency, the inferences per second and the gap between inferences; by device, the same for each
    device. The slower first inferences of each load (warm-up) are left out. By frame, rows are the stages and waits of
    the program's frames, which sum to them: latency, age, drops and frames a second are below.

    With --slo, exit code 1: an objective is exceeded; 4: a verdict is unknown.

    Example: profagent stats 3 --by type --sort median
    Example: profagent stats JOB… --top 10
    Example: profagent stats last --by frame
    Example: profagent stats last --format bmf
    Example: profagent stats last --slo 'latency.p99 < 33ms' --slo 'layer[conv1].mean < 350us'
    """
    if sum([as_json, as_csv, ci_format is not None]) > 1:
        raise UsageError("--json, --csv and --format cannot be given together", hint="give only one of them")
    answer = await stats(target.database, session=target.session, job=target.job, by=by, skip=skip)
    found = await judgements(target.database, objectives, session=target.session, job=target.job, skip=skip)
    rows = _sorted(answer, sort)[:top]
    await tell_incomplete(target.database, [target.session])
    if as_json or ci_format is not None:
        document = stats_document(answer, rows, skip)
        if found:
            document["slo"] = [each.document() for each in found]
        if ci_format is None:
            print_document("stats", document)
        else:
            print_measured(ci_format, of_stats(document))
        return await _exit_code(target, answer, found)
    titles = [_column(name, answer.unit if unit == ANSWERS else unit) for name, unit in columns_of(by).items()]
    cells = [cells_of(answer, row, likely_counters(answer.provenance)) for row in rows]
    if as_csv:
        for piece in sheet_pieces(titles, cells, "csv"):
            click.echo(piece, nl=False)
        _show_verdicts(found, err=True)
    else:
        click.echo(printable(_heading(answer)))
        _show_verdicts(found)
        for line in fitted_lines(titles, cells, columns, less=LESS_OF_MODELS if by in OF_WHOLE_INFERENCES else LESS):
            click.echo(line)
        click.echo()
    for line in _remarks(answer, rows, skip):
        click.echo(toned(printable(line)), err=as_csv)
    return await _exit_code(target, answer, found)


async def _exit_code(target: Target, answer: Stats, found: Sequence[Judgement]) -> int:
    if not _has_what_is_asked(answer):
        return await tell_unrecorded(target.database, target.session, target.job)
    return exit_code_of(found)


def _show_verdicts(found: Sequence[Judgement], *, err: bool = False) -> None:
    for each in found:
        for line in each.lines():
            click.echo(toned(printable(line), "loss") if each.verdict == "exceeded" else printable(line), err=err)


def _has_what_is_asked(answer: Stats) -> bool:
    is_of_layers = answer.by in ("layer", "type")
    return any(not is_of_layers or UNITS[0] in row.key for row in answer.rows)


def _beginning(names: Iterable[str], word: str) -> list[str]:
    return [name for name in names if name.startswith(word)]


def _column(name: str, unit: str) -> Column:
    return Column(f"{name}({unit})", 2 if unit in _COARSE else 3) if unit else Column(name)


def _sorted(answer: Stats, column: str | None) -> list[Row]:
    if column is None:
        return answer.rows
    names = list(columns_of(answer.by))
    if column not in names:
        raise UsageError(f"there is no column {column!r} by {answer.by}", hint=f"sort by one of: {', '.join(names)}")

    def rank(row: Row) -> tuple[bool, Any]:
        value = cells_of(answer, row)[names.index(column)]
        return value is None, "" if value is None else value if isinstance(value, str) else -value

    return sorted(answer.rows, key=rank)


def _heading(answer: Stats) -> str:
    jobs = ", ".join(each["job"] for each in answer.provenance)
    session = "".join(f"{session_title(each)}, " for each in answer.provenance[:1])
    mark = SIMULATED_MARK if answer.is_simulated else ""
    return f"{session}{jobs or 'no JOB'}: by {answer.by}{mark}"


def _remarks(answer: Stats, rows: Sequence[Row], skip: int | None) -> Iterator[str]:
    if not answer.rows and not any(each.left_out for each in answer.left_out):
        is_imported = any("imported_from" in each for each in answer.provenance)
        need = (NEEDS_OF_IMPORTED if is_imported else NEEDS).get(answer.by)
        # Advice about acl.json helps only if there is a JOB, whose program reads one.
        about = f": {need}" if need and (answer.provenance or answer.by in ("step", "frame")) else ""
        yield f"nothing was recorded that could be told by {answer.by}{about}"
    if len(rows) < len(answer.rows):
        yield f"{len(rows):,} of {counted(len(answer.rows), 'row')} shown"
    yield from _about_figures(answer)
    why, way = ("as warm-up", " (--skip 0 keeps them)") if skip is None else (f"by --skip {skip}", "")
    for model, inferences, number in answer.left_out:
        if number:
            yield f"left out {why}: {number} of {inferences} inferences of {model}{way}"
    for job in answer.provenance:
        about = f"{job['job']}: " if len(answer.provenance) > 1 else ""
        for line in provenance_lines(job):
            yield about + line


def _about_figures(answer: Stats) -> Iterator[str]:
    if answer.unit == "ticks":
        yield "durations are in ticks: without info.json nobody knows how long one takes"
    yield from chain(*map(model_lines, answer.models), *map(frame_lines, answer.frames))
    if likely := likely_counters(answer.provenance):
        yield doubt_line(likely)


TREND_LESS = ("mad(us)", "mad(ticks)", "count")


@click.command("trend")
@options.workspace
@click.option(
    "--model",
    required=True,
    metavar="NAME",
    help="The model, as `stats --by model` names it.",
    shell_complete=options.completed("models"),
)
@click.option(
    "--layer",
    metavar="NAME",
    help="One of its layers, as `stats` names it, in place of the whole inference.",
    shell_complete=options.completed("layers"),
)
@click.option(
    "--since", metavar="WHEN", help="Only sessions that began since a day (2026-11-01, UTC) or within an age (30d)."
)
@options.where
@options.allow
@options.as_json
@options.wide
@asynchronous
async def trend_command(
    *,
    workspace: Path | None,
    model: str,
    layer: str | None,
    since: str | None,
    where: list[Condition],
    allowed: frozenset[str],
    as_json: bool,
    columns: int,
) -> None:
    """Show a model's latency in each session, and since which session its level, or that of a layer, is another.

    A level has at least three sessions; a single one that is off changes nothing. Each change has its size with its
    95 % interval, and what changed with it: labels, SDK, layers of the model, clock, interval, temperature. Without
    --layer the layers and metrics that changed follow.

    Example: profagent trend --model yolov5s --since 30d
    Example: profagent trend --model yolov5s --layer conv1 --where board=euler
    """
    chosen = Workspace.at(workspace)
    if not chosen.database.exists():
        raise UsageError(f"there is no workspace in {chosen.root}", hint="name another one with --workspace DIR")
    begun_us = None if since is None else since_us(since)
    boards = await trend(chosen.readable_database(), model, layer, begun_us, where, allowed)
    await tell_incomplete(chosen.readable_database(), (night.session for board in boards for night in board.nights))
    if as_json:
        print_document("trend", boards)
        return
    what = model if layer is None else f"{layer} of {model}"
    click.echo("\n\n".join("\n".join(_trend_lines(board, what, columns)) for board in boards))


def since_us(text: str) -> int:
    """Return a day in UTC, or an age before now, in µs since 1970; raise UsageError for anything else."""
    try:
        return int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()) * 1_000_000
    except ValueError:
        pass
    try:
        return time.time_ns() // 1000 - age_us(text)
    except UsageError as error:
        raise UsageError(f"{text!r} is neither a date nor an age", hint="write 2026-11-01, 36h, 30d or 8w") from error


def _trend_lines(board: BoardTrend, what: str, width: int) -> Iterator[str]:
    nights, newest = board.nights, board.nights[-1]
    unit = newest.unit
    is_simulated = any("simulated" in each.facts for each in nights)
    mark = SIMULATED_MARK if is_simulated else ""
    time = "" if newest.time == "layer" else f"{newest.time}, "
    yield printable(f"{BoardNames.known().of(board.board, board.hostname)}: {time}median of {what}{mark}")
    medians = [None if night.apart else night.median for night in nights]
    mads = [None if night.apart else night.mad for night in nights]
    yield sparkline(medians)
    levels = {change.session: change.size for change in board.own_changes}
    columns = [Column(title) for title in ("session", "started (UTC)", "count")]
    columns += [Column(f"median({unit})", 3), Column(f"mad({unit})", 3), Column("losses"), Column("level")]
    rows = [
        (
            each.session,
            time_text(each.started_us, MINUTE),
            each.count,
            median,
            mad,
            each.losses,
            levels.get(each.session, "-"),
        )
        for each, median, mad in zip(nights, medians, mads, strict=True)
    ]
    yield from fitted_lines(columns, rows, width, less=TREND_LESS, tones=_tones(board))
    if others := [f"{each.session} ({each.apart})" for each in nights if each.apart]:
        yield printable(f"not compared with session {newest.session}: {', '.join(others)}")
        yield "with --allow CODE they are compared, and what differs is a candidate for the cause of a change"
    yield from map(printable, board.verdict_lines())
    yield from map(printable, board.other_lines())


def _tones(board: BoardTrend) -> list[Tone | None]:
    levels: dict[int, Tone] = {each.session: "slower" if each.percent > 0 else "faster" for each in board.own_changes}
    return ["loss" if night.losses else levels.get(night.session) for night in board.nights]
