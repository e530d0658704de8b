"""`profagent report`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from profagent.advise.cli import advice_options
from profagent.cli.documents import print_document
from profagent.cli.exit_codes import tell_incomplete
from profagent.cli.options import OUTPUT_FILE, SessionCommand, allow, completed, slo
from profagent.cli.options import as_json as as_json_option
from profagent.cli.running import asynchronous
from profagent.diff.cli import operand
from profagent.diff.diff import Operand
from profagent.report.report import write_report
from profagent.stats.cli import show_verdict
from profagent.store.workspace import Workspace
from profagent.tables.slo import exit_code_of
from profagent.tables.table import printable

if TYPE_CHECKING:
    from pathlib import Path

    from profagent.advise.rules import Language, Rule
    from profagent.documents.captures import ReportDocument
    from profagent.store.target import Target
    from profagent.tables.slo import Objective


@click.command("report", cls=SessionCommand)
@asynchronous
@advice_options
@click.option(
    "--against",
    metavar="BASE",
    help="Compare with this run: a session, a JOB, or any other operand of `diff`.",
    shell_complete=completed("operands"),
)
@allow
@slo("Judge an objective, such as 'frame.p99 < 33ms': a section has the verdict, how often, and the guilty part.")
@click.option("-o", "output", required=True, type=OUTPUT_FILE, metavar="FILE", help="The HTML file to write.")
@as_json_option
async def command(
    *,
    target: Target,
    rules: list[Rule],
    language: Language,
    against: str | None,
    allowed: frozenset[str],
    objectives: list[Objective],
    output: Path,
    as_json: bool,
) -> int:
    """Write one HTML file with the verdict, the timeline, layers, losses and a table.

    The file opens in any browser, without profagent and without a network.

    With --slo, exit code 1: an objective is exceeded; 4: a verdict is unknown.

    Example: profagent report 3 -o report.html
    Example: profagent report 3 --against baseline=release-1.2 -o report.html
    Example: profagent report last --slo 'frame.p99 < 33ms' -o report.html
    """
    workspace = Workspace.at(None if target.session is None else target.database.parent)
    base = None if against is None else await operand(against, workspace, target.maps)
    shown = await write_report(
        Operand(f"{target.session or target.folder}", target.database, target.session, target.job),
        output,
        against=base,
        allowed=allowed,
        rules=rules,
        language=language,
        objectives=objectives,
    )
    if as_json:
        document: ReportDocument = {"file": str(output), "verdict": shown["verdict"]}
        if objectives:
            document["slo"] = shown["slo"]
        print_document("report", document)
    else:
        click.echo(printable(shown["verdict"]))
        for judged, lines in zip(shown["slo"], shown["slo_lines"], strict=True):
            show_verdict(judged["verdict"], lines)
        click.echo(f"{output}: open it in a browser")
    await tell_incomplete(target.database, [target.session])
    return exit_code_of([each["verdict"] for each in shown["slo"]])
