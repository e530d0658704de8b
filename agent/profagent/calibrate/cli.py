"""`profagent calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from profagent.calibrate.calibrating import calibrate, fit_text
from profagent.cli import options
from profagent.cli.table import Cell, Column, printable, table_lines
from profagent.errors import ProfagentError
from profagent.files import write_atomically
from profagent.formats.countermap import SDK_NOT_SAID

if TYPE_CHECKING:
    from profagent.calibrate.calibrating import Calibration
    from profagent.calibrate.fitting import Finding

COLUMNS = tuple(map(Column, ("counter", "verdict", "where", "rows", "agree", "rivals", "what would settle it")))
*_, NOT_SAID = SDK_NOT_SAID
SHOWN_RIVALS = 3


@click.command("calibrate")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB…", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--vendor-summary",
    "tables",
    multiple=True,
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="CSV",
    help="An op_summary that the vendor's tool made of one of these JOBs; may be repeated.",
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="MAP", help="Write the counter map."
)
@click.option("--name", metavar="NAME", help="The map's name; the name of its file.")
@click.option("--sdk", default=NOT_SAID, metavar="VERSION", help="The SDK whose runtime wrote the JOBs.")
@options.as_json
def command(
    *, jobs: tuple[Path, ...], tables: tuple[Path, ...], output: Path | None, name: str | None, sdk: str, as_json: bool
) -> None:
    """Learn which word of a record is which PMU counter, from JOBs and the vendor's tables of them.

    A counter is only put into the map when one number alone gives the vendor's values; where that is not certain, it
    says what would settle it.

    Example: profagent calibrate JOB… --vendor-summary op_summary_0.m.0.1.1.0.0.1000.700.csv -o map.toml
    """
    learnt = calibrate(jobs, tables)
    if as_json:
        click.echo(msgspec.json.encode(_calibration_document(learnt)))
    else:
        _print_calibration(learnt)
    if not learnt.found:
        raise ProfagentError("no counter was found", hint="the last column says what would settle each")
    if output is not None:
        write_atomically(output, [learnt.map_text(name or output.stem, sdk).encode()])
        if not as_json:
            click.echo(f"wrote {output}: use it with --counter-map {output}")


def _print_calibration(learnt: Calibration) -> None:
    """Print what was learnt, and from what."""
    for each in learnt.coverage:
        found = f"{each.matched} of {each.rows} rows are records of {each.job}, {each.log}, by {each.by}"
        click.echo(printable(f"{each.file}: {found}"))
    if learnt.is_simulated:
        click.echo("*** simulated: what is learnt here is invented ***")
    click.echo()
    for line in table_lines(COLUMNS, [_row(finding) for finding in learnt.findings]):
        click.echo(line)


def _row(finding: Finding) -> tuple[Cell, ...]:
    where = fit_text(finding.fit) if finding.fit else "-"
    shown = ", ".join(map(fit_text, finding.rivals[:SHOWN_RIVALS]))
    rivals = shown + (f" and {more} more" if (more := len(finding.rivals) - SHOWN_RIVALS) > 0 else "")
    agreeing = finding.fit.agreeing if finding.fit else "-"
    return (finding.counter, finding.verdict.value, where, finding.rows, agreeing, rivals or "-", finding.advice or "-")


def _calibration_document(learnt: Calibration) -> dict[str, Any]:
    """What was learnt, and from what, for programs."""
    return {
        "tables": learnt.coverage,
        "simulated": learnt.is_simulated,
        "digest": learnt.digest,
        "counters": learnt.findings,
    }
