"""`profagent trend`."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from profagent.cli import options
from profagent.cli.options import age_us
from profagent.cli.table import Cell, Column, printable, sparkline, table_lines
from profagent.errors import UsageError
from profagent.stats.trend import TrendOptions, trend
from profagent.store.sessions import condition_of
from profagent.store.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagent.stats.trend import BoardTrend, LevelChange, Night

_TIME = 3
_PERCENT = 1


@click.command("trend")
@options.workspace
@click.option("--model", required=True, metavar="NAME", help="The model, as `stats --by model` names it.")
@click.option(
    "--layer", metavar="NAME", help="One of its layers, as `stats` names it, in place of the whole inference."
)
@click.option("--since", metavar="WHEN", help="Only sessions begun since a day (2026-11-01, UTC) or an age (30d).")
@click.option(
    "--where", multiple=True, metavar="COND", help="Only sessions with this, as in `sessions --where`; all must hold."
)
@options.as_json
def command(
    *,
    workspace: Path | None,
    model: str,
    layer: str | None,
    since: str | None,
    where: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show a model's time, session by session, and from which session on its level changed.

    Example: profagent trend --model yolov5s --since 30d
    """
    asked = TrendOptions(
        model, layer, None if since is None else since_us(since), [condition_of(text) for text in where]
    )
    chosen = Workspace.at(workspace)
    if not chosen.database.exists():
        raise UsageError(f"there is no workspace in {chosen.root}", hint="name another one with --workspace DIR")
    boards = trend(chosen.readable_database(), asked)
    if as_json:
        click.echo(msgspec.json.encode(boards))
        return
    for number, board in enumerate(boards):
        for line in _lines(board, asked, is_first=number == 0):
            click.echo(printable(line))


def since_us(text: str) -> int:
    """Microseconds since 1970 of a day in UTC, or of an age before now; UsageError for anything else."""
    try:
        return int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()) * 1_000_000
    except ValueError:
        pass
    try:
        return time.time_ns() // 1000 - age_us(text)
    except UsageError as error:
        raise UsageError(f"{text!r} is no day and no age", hint="write 2026-11-01, 36h, 30d or 8w") from error


def _lines(board: BoardTrend, asked: TrendOptions, *, is_first: bool) -> Iterator[str]:
    if not is_first:
        yield ""
    unit = board.nights[-1].unit
    what = asked.model if asked.layer is None else f"{asked.layer} of {asked.model}"
    mark = (
        "  *** simulated: these figures are invented ***"
        if any("simulated" in each.facts for each in board.nights)
        else ""
    )
    yield f"{board.hostname or board.board}: median of {what}{mark}"
    yield sparkline([night.median if night.unit == unit else None for night in board.nights])
    changes = {change.session: change for change in board.changes}
    titles = ("session", "started (UTC)", "count")
    columns = [
        *map(Column, titles),
        Column(f"median({unit})", _TIME),
        Column(f"mad({unit})", _TIME),
        Column("losses"),
        Column("level"),
    ]
    rows = [_row(night, unit, changes.get(night.session)) for night in board.nights]
    yield from table_lines(columns, rows)
    for change in board.changes:
        yield _told(change, unit)
    if not board.changes:
        yield f"the level did not change in {len(board.nights)} sessions"


def _row(night: Night, unit: str, change: LevelChange | None) -> tuple[Cell, ...]:
    known = night.unit == unit
    level = "-" if change is None else f"{change.percent:+.{_PERCENT}f} %"
    median, mad = (night.median, night.mad) if known else (None, None)
    return (night.session, _date(night.started_us), night.count, median, mad, night.losses, level)


def _told(change: LevelChange, unit: str) -> str:
    begin = f"from session {change.session} ({_date(change.started_us)}) on"
    level = f"{change.before:.3f} -> {change.after:.3f} {unit}, {change.percent:+.{_PERCENT}f} %"
    sure = "" if change.is_confirmed else ", which one session alone says"
    others = [f"{name}: {before or 'none'} -> {after or 'none'}" for name, (before, after) in change.changed.items()]
    return f"{begin}: {level}{sure}; changed with it: {', '.join(others) or 'nothing that is known'}"


def _date(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M")
