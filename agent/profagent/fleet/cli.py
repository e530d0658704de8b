"""Commands `profagent fleet`: questions to a lake, over all of its boards and nights.

Each question is a file of standard SQL in `queries`, which every engine understands and a user may run in its shell.
It reads tables of the lake and these views: `chosen`, the rows of `sessions` that the options of the command select,
and `figures` and `buckets`, the rows of `layers` and `histograms` that belong to them.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.cli.lakes import in_lake, require_lake
from profagent.errors import IncompleteError, ProfagentError, UsageError
from profagent.files import write_atomically
from profagent.tables.table import Column, fitted_lines, markdown_lines, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from datetime import datetime
    from pathlib import Path

    from profagent.fleet.comparing import FleetDiff
    from profagent.lake.engines import Answer
    from profagent.lake.lake import Lake
    from profagent.tables.slo import Objective


class Question(NamedTuple):
    """Question: its line of help, its file in `queries` that begins with a longer comment, and its kind of figures."""

    title: str
    file: str
    kind: str | None = None


QUESTIONS = {
    "stats": Question("Show what takes the time, night by night.", "nights", "layer"),
    "trend": Question(
        "Show each model's latency, or a layer's time, and since which night it changed.", "nights", "latency"
    ),
    "budget": Question("Show which boards take longer than a budget, and how often.", "budget", "latency"),
    "boards": Question("Show the boards that differ from the rest.", "boards", "latency"),
    "losses": Question("Show what the captures of each board lack.", "losses"),
}
# Labels of all boards, to find one that separates the changed boards from the others.
_LABELS = "SELECT DISTINCT board, labels_json FROM chosen"
_SESSIONS = "SELECT * FROM chosen"
# Column of a session's facts, by which the rules of comparability judge it.
FACTS = "facts_json"
_DECIMALS = {"p": 4}
_engine = click.option(
    "--engine",
    metavar="ENGINE",
    default="duckdb",
    show_default=True,
    help="The engine of the queries: duckdb, or sc://HOST:PORT for Spark.",
)
_DAY = click.DateTime(["%Y-%m-%d"])


@click.group("fleet")
def command() -> None:
    """Query a lake about all of its boards and nights.

    Example: profagent fleet stats --lake /mnt/lake --since 2026-11-01
    Example: profagent fleet losses --lake /mnt/lake --label rack=3
    Example: profagent fleet demo
    """


class Selected(NamedTuple):
    """Selection of sessions, and of a model and a layer."""

    since: datetime | None = None
    until: datetime | None = None
    boards: Sequence[str] = ()
    labels: Sequence[str] = ()
    model: str | None = None
    layer: str | None = None

    def views(self, kind: str | None = None) -> list[str]:
        """Return the statements that create the questions' views; `kind` is `layer`, `latency`, or None for both."""
        days = ((">=", self.since), ("<=", self.until))
        of_sessions = [f"date {sign} '{day:%Y-%m-%d}'" for sign, day in days if day is not None]
        if self.boards:
            of_sessions.append(f"board IN ({', '.join(map(_quoted, self.boards))})")
        for each in self.labels:
            if "=" not in each:
                raise UsageError(f"{each!r} is not a label", hint="--label KEY=VALUE")
        # The column `labels` is one text of all labels, separated by blanks.
        of_sessions += [f"position({_quoted(f' {each} ')} IN concat(' ', labels, ' ')) > 0" for each in self.labels]
        named = {"kind": "layer" if kind and self.layer else kind, "model": self.model, "layer": self.layer}
        of_layers = [f"{name} = {_quoted(value)}" for name, value in named.items() if value is not None]
        of_layers.append("push IN (SELECT push FROM chosen)")
        return [
            view_of("chosen", "sessions", of_sessions or ["TRUE"]),
            view_of("figures", "layers", of_layers),
            view_of("buckets", "histograms", of_layers),
        ]


def view_of(name: str, table: str, which: Iterable[str]) -> str:
    """Return the statement that creates a view of a table's rows that meet all conditions of `which`."""
    return f"CREATE OR REPLACE TEMPORARY VIEW {name} AS SELECT * FROM {table} WHERE {' AND '.join(which)}"  # noqa: S608


def _quoted(text: str) -> str:
    # Engines differ in whether a backslash escapes: quoting could not be the same for all.
    if "\\" in text:
        raise UsageError(f"{text}: engines read a backslash differently", hint="leave it out")
    return "'" + text.replace("'", "''") + "'"


class Asking(NamedTuple):
    """Lake and engine to ask, and the form of the answer."""

    address: str | None
    engine: str = "duckdb"
    as_json: bool = False
    as_markdown: bool = False
    columns: int = 0

    def lake(self) -> Lake:
        """Return the lake. Raises UsageError if none is named, or a package that reads it is missing."""
        named = require_lake(self.address)
        from profagent.lake.lake import Lake  # noqa: PLC0415 - needs packages that no other command has

        return Lake(named)

    def answers(self, statements: Iterable[str]) -> list[Answer]:
        """Return the answer to each statement, which may use views of earlier ones. Raises UsageError, LakeError."""
        lake = self.lake()
        from profagent.lake.engines import engine_of  # noqa: PLC0415 - as above

        with engine_of(lake, self.engine) as found:
            return [found.ask(statement) for statement in statements]

    def show(self, names: Sequence[str], rows: Sequence[Sequence[Any]], *remarks: str) -> None:
        """Print remarks and rows, as JSON only the rows. Text omits columns without any known value."""
        if self.as_json:
            print_document("fleet", [dict(zip(names, row, strict=True)) for row in rows])
            return
        known = [place for place in range(len(names)) if not rows or any(row[place] is not None for row in rows)]
        titles = [
            Column(names[at], _DECIMALS.get(names[at], 2) if any(isinstance(row[at], float) for row in rows) else None)
            for at in known
        ]
        cells = [[_cell(row[at]) for at in known] for row in rows]
        lines = markdown_lines(titles, cells) if self.as_markdown else fitted_lines(titles, cells, self.columns)
        for line in (*remarks, *[""] * (bool(remarks) and self.as_markdown), *lines):
            click.echo(printable(line))


def _cell(value: Any) -> Any:
    return ", ".join(value) if isinstance(value, list) else value


def asking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every command that asks a lake, which it receives as one `asked`."""

    @in_lake
    @_engine
    @options.as_json
    @click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown.")
    @options.wide
    @functools.wraps(function)
    def with_asking(**given: Any) -> Any:
        asked = Asking(**{name: given.pop(name) for name in Asking._fields})
        if asked.as_json and asked.as_markdown:
            raise UsageError("--json and --markdown cannot be given together", hint="give only one of them")
        return function(asked=asked, **given)

    return with_asking


def choosing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select sessions, which the command receives as one `chosen`."""

    @click.option("--since", type=_DAY, metavar="DATE", help="Only sessions that began on this day (UTC) or later.")
    @click.option("--until", type=_DAY, metavar="DATE", help="Only sessions that began on this day (UTC) or before.")
    @click.option(
        "--board", "boards", multiple=True, metavar="ID", help="Only sessions of this board; may be repeated."
    )
    @click.option(
        "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Only sessions with this label; may be repeated."
    )
    @functools.wraps(function)
    def with_chosen(**given: Any) -> Any:
        chosen = Selected(**{name: given.pop(name) for name in Selected._fields if name in given})
        return function(chosen=chosen, **given)

    return with_chosen


def of_layers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select a model and a layer, for `choosing`."""
    function = click.option("--layer", metavar="NAME", help="Only this layer.")(function)
    return click.option("--model", metavar="NAME", help="Only this model.")(function)


def budget_view(budget_us: float) -> str:
    """Return the statement that creates the view `budget`: the histogram bucket that contains a time."""
    # The base of the logarithm is GAMMA of profagent.lake.aggregates, by which the buckets were made.
    return (
        f"CREATE OR REPLACE TEMPORARY VIEW budget AS SELECT floor(ln({budget_us}e0) / ln(1.001e0 / 0.999e0)) AS bucket"
    )


def query_of(name: str) -> str:
    """Return the SQL of a question."""
    return resources.files("profagent.fleet").joinpath(f"queries/{name}.sql").read_text("utf-8")


def _in_us(_context: click.Context, _argument: click.Parameter, given: str | None) -> float | None:
    return None if given is None else options.time_us(given)


def _judged(asked: Asking, chosen: Selected, objectives: Sequence[Objective]) -> int:
    """Show the verdict on each objective for each board, and return the exit code."""
    from profagent.fleet.judging import (  # noqa: PLC0415 - only this needs numpy
        COLUMNS,
        TAILS,
        cells_of,
        judged_rows,
        kind_of,
        objective_view,
        subject_of,
    )
    from profagent.tables.slo import Judgement, exit_code_of  # noqa: PLC0415 - as above

    rows, judgements = [], []
    for objective in objectives:
        model, layer = subject_of(objective)
        views = chosen._replace(model=model or chosen.model, layer=layer or chosen.layer).views(kind_of(objective))
        *_, answer, tails = asked.answers([*views, objective_view(objective), query_of("slo"), TAILS])
        named = [[dict(zip(each.names, row, strict=True)) for row in each.rows] for each in (answer, tails)]
        found = judged_rows(objective, *named)
        rows += [cells_of(*each) for each in found]
        judgements.append(Judgement(objective, [judged for judged, _ in found]))
    asked.show(COLUMNS, rows)
    return exit_code_of([each.verdict for each in judgements])


def question(name: str, title: str, file: str, kind: str | None) -> click.Command:
    """Return the command for a question."""
    text = query_of(file)
    about = [line.removeprefix("--").strip() for line in text.splitlines() if line.startswith("--")]

    @asking
    @choosing
    def ask(
        *, asked: Asking, chosen: Selected, budget_us: float | None = None, objectives: Sequence[Objective] = ()
    ) -> int | None:
        if bool(objectives) is (budget_us is not None) and name == "budget":
            raise UsageError("fleet budget takes a TIME or --slo", hint="write 20ms, or --slo 'latency.p99 < 20ms'")
        if objectives:
            return _judged(asked, chosen, objectives)
        views = chosen.views(kind)
        if budget_us is not None:
            views.append(budget_view(budget_us))
        if name != "trend":
            asked.show(*asked.answers([*views, text])[-1])
            return None
        from profagent.fleet.levels import facts_by_night, with_levels  # noqa: PLC0415 - only this needs numpy

        *_, sessions, answer = asked.answers([*views, _SESSIONS, text])
        asked.show(*with_levels(answer, facts_by_night(*sessions)))
        return None

    if kind is not None:
        ask = of_layers(ask)
    typed = name
    if name == "budget":
        typed = "budget 20ms"
        ask = click.argument("budget_us", required=False, metavar="[TIME]", callback=_in_us)(ask)
        ask = options.slo("Judge an objective, such as 'frame.p99 < 33ms', on each board: exit code 1 if exceeded.")(
            ask
        )
    examples = f"Example: profagent fleet {typed} --since 2026-11-01\nExample: profagent fleet {typed} --label rack=3"
    return click.command(name, help="\n\n".join([title, "\b\n" + "\n".join(about), examples]))(ask)


for _name, _question in QUESTIONS.items():
    command.add_command(question(_name, *_question))


def changes_of(asked: Asking, chosen: Selected, at: datetime | None = None, allowed: Collection[str] = ()) -> FleetDiff:
    """Return the changes since a night, or in the newest nights. Raises UsageError, LakeError."""
    from profagent.fleet.comparing import Nights, compared  # noqa: PLC0415 - only this needs numpy

    *_, rows, labels, sessions = asked.answers([*chosen.views(), query_of("diff"), _LABELS, _SESSIONS])
    # A lake that an earlier version filled has no column of facts: nothing is known that forbids a comparison.
    at_facts = sessions.names.index(FACTS) if FACTS in sessions.names else None
    facts = (None if at_facts is None else row[at_facts] for row in sessions.rows)
    board, day = (sessions.names.index(name) for name in ("board", "date"))
    nights = Nights((row[board], row[day], text) for row, text in zip(sessions.rows, facts, strict=True))
    return compared(rows.rows, labels.rows, None if at is None else f"{at:%Y-%m-%d}", nights, allowed)


@command.command("diff")
@click.option("--at", type=_DAY, metavar="DATE", help="The first of the later nights.  [default: the newest 7]")
@options.allow
@asking
@of_layers
@choosing
def diff(*, asked: Asking, chosen: Selected, at: datetime | None, allowed: frozenset[str]) -> int:
    """Show which layers are slower or faster in later nights, on which boards, and since when.

    A change is distinguished from noise as in `profagent diff`, over all boards and layers at once. This takes 5 nights
    of a board before the change and 5 after it. Nights that are not comparable with the newest night of their board
    are left out. Exit code 1: a layer is slower; 4: there are too few nights.

    Example: profagent fleet diff
    Example: profagent fleet diff --since 2026-10-01 --at 2026-11-20 --label rack=3 --markdown
    """
    found = changes_of(asked, chosen, at, allowed)
    if asked.as_json:
        print_document("fleet-diff", found._asdict() | {"changes": [each._asdict() for each in found.changes or ()]})
    else:
        from profagent.fleet.comparing import FleetChange, apart_line, headline  # noqa: PLC0415 - only this needs numpy

        remarks = [headline(found), *([apart_line(found)] if found.apart else [])]
        asked.show(FleetChange._fields, found.changes or [], *remarks)
    if found.changes is None:
        return IncompleteError.exit_code
    return ProfagentError.exit_code if any(each.what == "slower" for each in found.changes) else 0


@command.command("report")
@in_lake
@_engine
@choosing
@click.option("-o", "output", required=True, type=options.OUTPUT_FILE, metavar="FILE", help="The HTML file to write.")
def report(*, address: str | None, engine: str, chosen: Selected, output: Path) -> None:
    """Write one HTML page for any browser, also offline: nights, layers, changes, boards that differ, losses.

    Example: profagent fleet report -o fleet.html
    Example: profagent fleet report --since 2026-11-01 --label rack=3 -o rack3.html
    """
    asked = Asking(address, engine)
    questions = (query_of("nights"), query_of("losses"), "SELECT max(simulated) FROM chosen")
    *_, nights, losses, simulated = asked.answers([*chosen.views(), *questions])
    boards = asked.answers([*chosen.views("latency"), query_of("boards")])[-1]
    changes = changes_of(asked, chosen)
    from profagent.fleet.page import fleet_page  # noqa: PLC0415 - the other questions start faster

    page = fleet_page(nights, changes, boards, losses, is_simulated=bool(simulated.rows[0][0]))
    write_atomically(output, [page.encode()])
    click.echo(f"{output}: open it in a browser")


@command.command("sql")
@click.argument("text", metavar="SELECT…")
@asking
def sql(*, text: str, asked: Asking) -> None:
    """Run one SQL statement on the tables of a lake.

    Example: profagent fleet sql 'SELECT board, count(*) FROM sessions GROUP BY board'
    Example: profagent fleet sql 'SELECT * FROM ledger LIMIT 10' --engine sc://127.0.0.1:50051
    """
    asked.show(*asked.answers([*Selected().views(), text])[-1])


@command.command("demo")
@_engine
@click.option(
    "-o",
    "--output",
    type=options.FOLDER,
    metavar="DIR",
    help="The folder of the demo; if it has one already, query that.",
)
@options.quiet
def demo(*, engine: str, output: Path | None) -> None:
    """Make a simulated fleet of 16 boards and 30 nights, push it into a lake, and find what is wrong with it.

    All figures are invented. The demo takes a minute or two, and uses a temporary folder unless DIR is named.

    Example: profagent fleet demo
    Example: profagent fleet demo -o /tmp/fleet --engine sc://127.0.0.1:50051
    """
    require_lake("demo")
    from profagent.fleet import demo as simulated  # noqa: PLC0415 - needs packages that no other command has

    for line in simulated.shown(engine, output):
        click.echo(printable(line))


@command.command("compact")
@in_lake
@options.as_json
def compact_tables(*, address: str | None, as_json: bool) -> None:
    """Join the small files that pushes leave, and remove files that no reader needs; queries become faster.

    The command may run at the same time as pushes and readers.

    Example: profagent fleet compact --lake /mnt/lake
    Example: profagent fleet compact --json
    """
    asked = Asking(address, as_json=as_json)
    lake = asked.lake()
    from profagent.lake.upkeep import Compacted, compact  # noqa: PLC0415 - needs packages that no other command has

    asked.show(Compacted._fields, [*compact(lake)])


@command.command("expire")
@click.argument("before", metavar="DATE", type=_DAY)
@in_lake
@options.as_json
def expire_rows(*, before: datetime, address: str | None, as_json: bool) -> None:
    """Delete records, calls, metrics, ranges and inferences of sessions that began before a day (UTC).

    Their figures, histograms and ledger stay, so all queries except `fleet sql` give the same answers as before. The
    disk space is free after a week, when `fleet compact` runs. If `gc --pushed` deleted the records of a session on
    its host, these records then exist nowhere.

    Example: profagent fleet expire 2026-08-01 --lake /mnt/lake
    Example: profagent fleet expire 2026-08-01 --json
    """
    asked = Asking(address, as_json=as_json)
    lake = asked.lake()
    from profagent.lake.upkeep import Expired, expire  # noqa: PLC0415 - needs packages that no other command has

    asked.show(Expired._fields, [*expire(lake, before.date())])
