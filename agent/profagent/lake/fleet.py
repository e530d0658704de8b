"""`profagent fleet`: questions to a lake, over all of its boards and nights.

Each question is a file of standard SQL in `queries`, which every engine takes and a user may run in a shell of it. It
asks the tables of the lake, and `chosen`: the rows of `sessions` that the options of the command choose.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import TYPE_CHECKING, Any

import click

from profagent.cli import options
from profagent.cli.lakes import in_lake, require_lake
from profagent.errors import UsageError
from profagent.tables.table import Column, fitted_lines, json_text, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from profagent.lake.engines import Answer

# By command, its line of the help. The file of that name in `queries` begins with a comment that says more.
QUESTIONS = {
    "stats": "Show what takes the time, night by night.",
    "trend": "Show each model's latency, night by night.",
    "boards": "Show the boards that differ from the rest.",
    "losses": "Show what the captures of each board lack.",
}
_DAY = click.DateTime(["%Y-%m-%d"])


class QuestionGroup(click.Group):
    """The group whose commands are `sql` and those of QUESTIONS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all questions."""
        return [*QUESTIONS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a question; None where there is none of that name."""
        return question(cmd_name) if cmd_name in QUESTIONS else super().get_command(ctx, cmd_name)


@click.group("fleet", cls=QuestionGroup)
def command() -> None:
    """Ask a lake about all of its boards and nights.

    Example: profagent fleet stats --lake /mnt/lake --since 2026-11-01
    Example: profagent fleet losses --lake /mnt/lake --label rack=3
    """


def asking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every command that asks a lake."""
    for option in (
        options.wide,
        options.as_json,
        click.option(
            "--engine", metavar="ENGINE", default="duckdb", show_default=True, help="Or sc://HOST:PORT, Spark."
        ),
        in_lake,
    ):
        function = option(function)
    return function


def query_of(name: str) -> str:
    """Return the SQL of a question."""
    return resources.files("profagent.lake").joinpath(f"queries/{name}.sql").read_text("utf-8")


@functools.cache
def question(name: str) -> click.Command:
    """Return the command that asks a question."""
    text = query_of(name)
    about = [line.removeprefix("--").strip() for line in text.splitlines() if line.startswith("--")]

    @click.option("--since", type=_DAY, metavar="DATE", help="Sessions that began on this day (UTC) or later.")
    @click.option("--until", type=_DAY, metavar="DATE", help="Sessions that began on this day (UTC) or before.")
    @click.option("--board", "boards", multiple=True, metavar="ID", help="Sessions of this board; may be repeated.")
    @click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Sessions with it; may be repeated.")
    @asking
    def ask(
        *,
        address: str | None,
        engine: str,
        since: datetime | None,
        until: datetime | None,
        boards: Sequence[str],
        labels: Sequence[str],
        as_json: bool,
        columns: int,
    ) -> None:
        chosen = _chosen(since, until, boards, labels)
        _show(*_answered(address, engine, chosen, text), as_json=as_json, columns=columns)

    examples = [f"Example: profagent fleet {name} {words}" for words in ("--since 2026-11-01", "--label rack=3")]
    return click.command(name, help="\n\n".join([QUESTIONS[name], "\b\n" + "\n".join(about), "\n".join(examples)]))(ask)


@command.command("sql")
@click.argument("text", metavar="SELECT…")
@asking
def sql(*, text: str, address: str | None, engine: str, as_json: bool, columns: int) -> None:
    """Answer one SQL statement about the tables of a lake.

    Example: profagent fleet sql 'SELECT board, count(*) FROM sessions GROUP BY board'
    Example: profagent fleet sql 'SELECT * FROM ledger LIMIT 10' --engine sc://127.0.0.1:50051
    """
    _show(*_answered(address, engine, _chosen(None, None, (), ()), text), as_json=as_json, columns=columns)


@command.command("compact")
@in_lake
@options.as_json
def compact(*, address: str | None, as_json: bool) -> None:
    """Join the small files that pushes leave, which makes questions faster, and remove what no reader needs.

    It may run beside pushes and readers.

    Example: profagent fleet compact --lake /mnt/lake
    Example: profagent fleet compact --json
    """
    named = require_lake(address)
    from profagent.lake import lake, upkeep  # noqa: PLC0415 - need packages that no other command has

    done = [*upkeep.compact(lake.Lake(named))]
    _show(upkeep.Compacted._fields, done, as_json=as_json)


@command.command("expire")
@click.argument("before", metavar="DATE", type=_DAY)
@in_lake
@options.as_json
def expire(*, before: datetime, address: str | None, as_json: bool) -> None:
    """Delete records, calls, metrics, ranges and inferences of sessions that began before a day (UTC).

    Their figures, histograms and ledger stay: `fleet stats`, `trend`, `boards` and `losses` answer as before. The disk
    has the room a week later, when `fleet compact` runs.

    Example: profagent fleet expire 2026-08-01 --lake /mnt/lake
    Example: profagent fleet expire 2026-08-01 --json
    """
    named = require_lake(address)
    from profagent.lake import lake, upkeep  # noqa: PLC0415 - need packages that no other command has

    done = [*upkeep.expire(lake.Lake(named), before.date())]
    _show(upkeep.Expired._fields, done, as_json=as_json)


def _chosen(since: datetime | None, until: datetime | None, boards: Sequence[str], labels: Sequence[str]) -> str:
    """SQL of the view of chosen sessions."""
    days = ((">=", since), ("<=", until))
    conditions = [f"date {sign} '{day:%Y-%m-%d}'" for sign, day in days if day is not None]
    if boards:
        conditions.append(f"board IN ({', '.join(map(_quoted, boards))})")
    # `labels` has all of them, with blanks between.
    conditions += [f"position({_quoted(f' {label} ')} IN concat(' ', labels, ' ')) > 0" for label in labels]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"CREATE OR REPLACE TEMPORARY VIEW chosen AS SELECT * FROM sessions{where}"  # noqa: S608 - quoted


def _quoted(text: str) -> str:
    if "\\" in text:
        raise UsageError(f"{text}: a backslash means something else in each engine", hint="leave it out")
    return "'" + text.replace("'", "''") + "'"


def _answered(address: str | None, engine: str, chosen: str, text: str) -> Answer:
    named = require_lake(address)
    from profagent.lake.engines import engine_of  # noqa: PLC0415 - needs packages that no other command has
    from profagent.lake.lake import Lake  # noqa: PLC0415 - as above

    with engine_of(Lake(named), engine) as found:
        found.ask(chosen)
        return found.ask(text)


def _show(names: Sequence[str], rows: Sequence[Sequence[Any]], *, as_json: bool, columns: int = 0) -> None:
    if as_json:
        click.echo(json_text([dict(zip(names, row, strict=True)) for row in rows]))
        return
    is_fraction = [any(isinstance(row[place], float) for row in rows) for place in range(len(names))]
    titles = [Column(name, 2 if fraction else None) for name, fraction in zip(names, is_fraction, strict=True)]
    for line in fitted_lines(titles, rows, columns):
        click.echo(printable(line))
