"""`profagent trend`."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
import msgspec

from profagent.cli import options
from profagent.cli.options import age_us
from profagent.cli.table import Column, printable, sparkline, table_lines
from profagent.errors import UsageError
from profagent.stats.trend import trend
from profagent.store.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from profagent.stats.trend import BoardTrend
    from profagent.store.labels import Condition


@click.command("trend")
@options.workspace
@click.option("--model", required=True, metavar="NAME", help="The model, as `stats --by model` names it.")
@click.option(
    "--layer", metavar="NAME", help="One of its layers, as `stats` names it, in place of the whole inference."
)
@click.option("--since", metavar="WHEN", help="Only sessions begun since a day (2026-11-01, UTC) or an age (30d).")
@options.where
@options.as_json
def command(
    *,
    workspace: Path | None,
    model: str,
    layer: str | None,
    since: str | None,
    where: list[Condition],
    as_json: bool,
) -> None:
    """Show a model's time, session by session, and from which session on its level changed.

    Example: profagent trend --model yolov5s --since 30d
    """
    chosen = Workspace.at(workspace)
    if not chosen.database.exists():
        raise UsageError(f"there is no workspace in {chosen.root}", hint="name another one with --workspace DIR")
    boards = trend(chosen.readable_database(), model, layer, None if since is None else since_us(since), where)
    if as_json:
        click.echo(msgspec.json.encode(boards))
        return
    what = model if layer is None else f"{layer} of {model}"
    click.echo("\n\n".join("\n".join(map(printable, _lines(board, what))) for board in boards))


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


def _lines(board: BoardTrend, what: str) -> Iterator[str]:
    nights, unit = board.nights, board.nights[-1].unit
    is_simulated = any("simulated" in each.facts for each in nights)
    mark = "  *** simulated: these figures are invented ***" if is_simulated else ""
    yield f"{board.hostname or board.board}: median of {what}{mark}"
    medians = [night.median if night.unit == unit else None for night in nights]
    mads = [night.mad if night.unit == unit else None for night in nights]
    yield sparkline(medians)
    levels = {change.session: f"{change.percent:+.1f} %" for change in board.changes}
    columns = [Column(title) for title in ("session", "started (UTC)", "count")]
    columns += [Column(f"median({unit})", 3), Column(f"mad({unit})", 3), Column("losses"), Column("level")]
    rows = [
        (each.session, _date(each.started_us), each.count, median, mad, each.losses, levels.get(each.session, "-"))
        for each, median, mad in zip(nights, medians, mads, strict=True)
    ]
    yield from table_lines(columns, rows)
    for change in board.changes:
        sure = "" if change.is_confirmed else ", which one session alone says"
        others = [f"{name}: {old or 'none'} -> {new or 'none'}" for name, (old, new) in change.changed.items()]
        yield (
            f"from session {change.session} ({_date(change.started_us)}) on: {change.before:.3f} -> {change.after:.3f}"
            f" {unit}, {change.percent:+.1f} %{sure}; changed with it: {', '.join(others) or 'nothing that is known'}"
        )
    if not board.changes:
        yield f"the level did not change in {len(nights)} sessions"


def _date(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M")
