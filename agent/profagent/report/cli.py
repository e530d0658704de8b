"""`profagent report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from profagent.advise.cli import all_rules, language, rules_folders, usual_language
from profagent.cli import options
from profagent.cli.running import asynchronous
from profagent.cli.table import printable
from profagent.diff.cli import operand
from profagent.diff.diff import Operand
from profagent.importing.job_folder import named_target
from profagent.report.report import write_report
from profagent.store.workspace import Workspace

if TYPE_CHECKING:
    from profagent.advise.rules import Language
    from profagent.store.counter_maps import CounterMaps


@click.command("report")
@options.target
@options.workspace
@options.job
@options.counter_map
@click.option("--against", metavar="BASE", help="Compare with this run: a session, a JOB, baseline:NAME, as `diff`.")
@click.option(
    "-o",
    "output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The HTML file that is written.",
)
@rules_folders
@language
@asynchronous
async def command(
    *,
    target: str,
    workspace: Path | None,
    job: str | None,
    maps: CounterMaps,
    against: str | None,
    output: Path,
    folders: tuple[Path, ...],
    language: Language | None,
) -> None:
    """Write one HTML file that opens anywhere, offline: the verdict, the timeline, layers, losses, a table.

    Who opens it needs a browser, and neither profagent nor a network.

    Example: profagent report 3 -o report.html
    Example: profagent report 3 --against baseline:release-1.2 -o report.html
    """
    found = await named_target(target, job, workspace, maps)
    base = None if against is None else await operand(against, Workspace.at(workspace), maps)
    shown = await write_report(
        Operand(target, found.database, found.session, found.job),
        output,
        against=base,
        rules=all_rules(found.database, found.session, folders),
        language=language or usual_language(),
    )
    click.echo(printable(shown["verdict"]))
    click.echo(f"{output}: open it in a browser")
