"""`profagent stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from profagent.cli import options
from profagent.cli.provenance import doubt_line, likely_counters, provenance_lines
from profagent.cli.running import asynchronous
from profagent.cli.table import Cell, Column, fitted_lines, printable, sheet_pieces, toned
from profagent.errors import UsageError
from profagent.formats.countermap import bound_mark
from profagent.importing.job_folder import named_target, tell_unrecorded
from profagent.stats.stats import BYS, KEYS, stats

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from profagent.stats.stats import Row, Stats, StatsBy
    from profagent.store.counter_maps import CounterMaps

FIGURES = ("count", "total", "share", "mean", "median", "mad", "p95", "max")
_WITHOUT_BOUND = ("aicpu", "api", "step")
# What of acl.json has it recorded.
SWITCHES = {"api": "acl_api", "aicpu": "aicpu"}
# What a narrow terminal does without, first of all.
LESS = tuple(
    f"{name}{unit}" for name in ("mad", "mean", "max", "total", "type", "p95") for unit in ("", "(us)", "(ticks)")
)


@click.command("stats")
@options.target
@options.workspace
@options.job
@options.counter_map
@click.option("--by", type=click.Choice(BYS), default="layer", show_default=True, help="What a row is of.")
@click.option("--skip", type=click.IntRange(min=0), metavar="N", help="Leave out the first N inferences of each load.")
@click.option(
    "--sort",
    metavar="COLUMN",
    help="Sort by this column; largest first.  [default: total]",
    shell_complete=lambda context, _option, word: _beginning(column_names(context.params["by"] or "layer"), word),
)
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Only the first N rows.")
@options.as_json
@click.option("--csv", "as_csv", is_flag=True, help="Print the table as CSV.")
@options.wide
@asynchronous
async def command(  # noqa: PLR0913 - one parameter an option
    *,
    target: str,
    workspace: Path | None,
    job: str | None,
    maps: CounterMaps,
    by: StatsBy,
    skip: int | None,
    sort: str | None,
    top: int | None,
    as_json: bool,
    as_csv: bool,
    columns: int,
) -> int:
    """Show what takes the time, over all inferences of a session or of a JOB directory.

    The slower first inferences of each load (warm-up) are left out.

    Example: profagent stats 3 --by type --sort median
    Example: profagent stats JOB… --top 10
    """
    if as_json and as_csv:
        raise UsageError("--json and --csv do not go together", hint="leave one of them out")
    found = await named_target(target, job, workspace, maps)
    answer = await stats(found.database, session=found.session, job=found.job, by=by, skip=skip)
    rows = _sorted(answer, sort)[:top]
    if as_json:
        click.echo(msgspec.json.encode(stats_document(answer, rows, skip)))
        return 0 if answer.rows else await tell_unrecorded(found.database, found.session, found.job)
    titles = [_column(name, answer.unit) for name in column_names(by)]
    cells = [_cells(by, row, likely_counters(answer.provenance)) for row in rows]
    if as_csv:
        for piece in sheet_pieces(titles, cells, "csv"):
            click.echo(piece, nl=False)
    else:
        click.echo(printable(_heading(answer)))
        for line in fitted_lines(titles, cells, columns, less=LESS):
            click.echo(line)
        click.echo()
    for line in _remarks(answer, rows, skip):
        click.echo(toned(printable(line)), err=as_csv)
    return 0 if answer.rows else await tell_unrecorded(found.database, found.session, found.job)


def column_names(by: str) -> tuple[str, ...]:
    """The columns of an answer, without units: what `--sort` takes and JSON has for keys."""
    return (*KEYS[by], *FIGURES, *(() if by in _WITHOUT_BOUND else ("bound by",)))


def _beginning(names: Iterable[str], word: str) -> list[str]:
    return [name for name in names if name.startswith(word)]


def _column(name: str, unit: str) -> Column:
    if name == "share":
        return Column("share(%)", 2)
    return Column(f"{name}({unit})", 3) if name in FIGURES and name != "count" else Column(name)


def _cells(by: str, row: Row, likely: Sequence[str] = ()) -> tuple[Cell, ...]:
    """A row's values in the order of the columns; what rests on `likely` counters is marked."""
    number, total, *others = row.figures
    bound = row.bound and row.bound + bound_mark(likely)
    return (*row.key, number, total, row.share, *others, *(() if by in _WITHOUT_BOUND else (bound,)))


def _sorted(answer: Stats, column: str | None) -> list[Row]:
    """The rows by a column, largest number first, words by the alphabet, what is not known last."""
    if column is None:
        return answer.rows
    names = column_names(answer.by)
    if column not in names:
        raise UsageError(f"there is no column {column!r} by {answer.by}", hint=f"sort by one of: {', '.join(names)}")

    def rank(row: Row) -> tuple[bool, Any]:
        value = _cells(answer.by, row)[names.index(column)]
        return value is None, "" if value is None else value if isinstance(value, str) else -value

    return sorted(answer.rows, key=rank)


def _heading(answer: Stats) -> str:
    jobs = ", ".join(each["job"] for each in answer.provenance)
    session = "".join(f"session {each['session']}, " for each in answer.provenance[:1])
    mark = "  *** simulated: these figures are invented ***" if answer.is_simulated else ""
    return f"{session}{jobs or 'no JOB'}: by {answer.by}{mark}"


def _remarks(answer: Stats, rows: Sequence[Row], skip: int | None) -> Iterator[str]:
    if not answer.rows and not any(each.left_out for each in answer.left_out):
        switch = f': "{SWITCHES[answer.by]}" of acl.json must be exactly "on"' if answer.by in SWITCHES else ""
        spans = ": marks alone are no steps, a span, a range or a Profiler's step is one" if answer.by == "step" else ""
        yield f"nothing was recorded that could be told by {answer.by}{switch}{spans}"
    if len(rows) < len(answer.rows):
        yield f"{len(rows)} of {len(answer.rows)} rows shown; shares are of all"
    if answer.unit == "ticks":
        yield "durations are in ticks: without info.json nobody knows how long one takes"
    if likely := likely_counters(answer.provenance):
        yield doubt_line(likely)
    why, way = ("as warm-up", " (--skip 0 keeps them)") if skip is None else (f"by --skip {skip}", "")
    for model, inferences, number in answer.left_out:
        if number:
            yield f"left out {why}: {number} of {inferences} inferences of {model}{way}"
    for job in answer.provenance:
        about = f"{job['job']}: " if len(answer.provenance) > 1 else ""
        for line in provenance_lines(job):
            yield about + line


def stats_document(answer: Stats, rows: Sequence[Row], skip: int | None) -> dict[str, Any]:
    """What `--json` prints."""
    names = column_names(answer.by)
    return {
        "by": answer.by,
        "unit": answer.unit,
        "simulated": answer.is_simulated,
        "rows": [dict(zip(names, _cells(answer.by, row), strict=True)) for row in rows],
        "all_rows": len(answer.rows),
        "likely": likely_counters(answer.provenance),
        "skip": skip,
        "left_out": [each._asdict() for each in answer.left_out],
        "jobs": answer.provenance,
    }
