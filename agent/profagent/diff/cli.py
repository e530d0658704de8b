"""`profagent diff`."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.cli.measured import print_measured
from profagent.cli.running import asynchronous, tell
from profagent.cli.target import named_target
from profagent.diff.comparing import Floor
from profagent.diff.diff import Operand, diff, parse_condition
from profagent.diff.report import diff_document, junit_cases, junit_xml, report_lines
from profagent.diff.runs import exported_files
from profagent.errors import IncompleteError, ProfagentError, UsageError
from profagent.files import write_atomically
from profagent.stats.stats import judgements
from profagent.store.workspace import LAST, Workspace, session_query
from profagent.tables.ci_formats import of_diff
from profagent.tables.slo import exit_code_of, unjudged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.diff.diff import Condition
    from profagent.formats.counter_maps import CounterMaps
    from profagent.tables.ci_formats import CiFormat
    from profagent.tables.slo import Judgement, Objective


_FLOOR = re.compile(r"(?P<percent>\d+(?:\.\d+)?)%(?:,(?P<us>\d+(?:\.\d+)?)us)?")


def floor_of(text: str) -> Floor:
    """Return the floor that a text such as `1%,0.1us` or `1%` gives; raise UsageError for any other text."""
    found = _FLOOR.fullmatch(text.replace(" ", ""))
    if found is None:
        raise UsageError(
            f"{text!r} is not a floor", hint="write it as 1%,0.1us: percent of the base, then microseconds"
        )
    return Floor(float(found["percent"]), float(found["us"] or 0.0))


@click.command("diff", cls=options.SessionCommand)
@click.argument("base", shell_complete=options.completed("operands"))
@click.argument("new", shell_complete=options.completed("operands"))
@options.workspace
@options.counter_map
@click.option(
    "--fail-if",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    callback=lambda _context, _option, texts: [parse_condition(text) for text in texts],
    help="Exit with code 1 if this holds: latency.median>+3%, layer.median>+5%, layer[conv1].p95>+20us; may be"
    " repeated.",
)
@click.option(
    "--floor",
    metavar="PERCENT%,US",
    default="1%,0.1us",
    show_default=True,
    callback=lambda _context, _option, text: floor_of(text),
    help="Ignore smaller changes: a change counts only if it reaches both limits.",
)
@click.option("--skip", type=click.IntRange(min=0), metavar="N", help="Leave out the first N inferences of each load.")
@options.slo("Judge an objective in both runs, such as 'latency.p99 < 33ms'.")
@options.allow
@options.as_json
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown, for a pull request.")
@options.ci_format
@click.option("--junit", type=options.OUTPUT_FILE, metavar="FILE", help="Write JUnit XML to this file.")
@options.wide
@asynchronous
async def command(  # noqa: PLR0913 - one parameter an option
    *,
    base: str,
    new: str,
    workspace: Path | None,
    maps: CounterMaps,
    conditions: list[Condition],
    floor: Floor,
    skip: int | None,
    objectives: list[Objective],
    allowed: frozenset[str],
    as_json: bool,
    as_markdown: bool,
    ci_format: CiFormat | None,
    junit: Path | None,
    columns: int,
) -> int:
    """Compare two runs: which layers are slower or faster by more than their noise, or new.

    BASE and NEW are each a session, a JOB directory, an op_summary table (CSV or JSON), or a folder of such tables.
    The first line says whether the runs are comparable; --allow CODE overrides one rule.

    Exit code 1: a condition of --fail-if holds, or NEW exceeds an objective of --slo; 4: a run is incomplete, the runs
    are not comparable, or a condition or an objective cannot be decided.

    Example: profagent diff baseline=release-1.2 14 --fail-if 'layer.median>+5%'
    Example: profagent diff 13 14 --markdown
    Example: profagent diff 13 14 --format github-benchmark
    Example: profagent diff 13 14 --slo 'frame.p99 < 33ms'
    """
    if sum([as_json, as_markdown, ci_format is not None]) > 1:
        raise UsageError("--json, --markdown and --format cannot be given together", hint="give only one of them")
    if workspace is not None and not any(map(_is_in_workspace, (base, new))):
        raise UsageError("--workspace goes with a session", hint="leave it out: BASE and NEW are none")
    chosen = Workspace.at(workspace)
    old = await operand(base, chosen, maps)
    newer = await operand(new, chosen, maps)
    found = await diff(old, newer, conditions, floor, skip, allowed)
    judged = [await _judged(each, objectives, skip) for each in (old, newer)]
    found = replace(found, slo=list(zip(*judged, strict=True)))
    if junit is not None:
        text = "\n".join(report_lines(found, as_markdown=False))
        write_atomically(junit, [junit_xml("profagent diff", junit_cases(found), text)])
    if as_json:
        print_document("diff", diff_document(found))
    elif ci_format is not None:
        print_measured(ci_format, of_diff(diff_document(found)))
        if any(each.blocks for each in found.comparability.differences):
            tell(found.comparability.line())
    else:
        click.echo("\n".join(report_lines(found, as_markdown=as_markdown, width=columns)))
    code = exit_code_of([of_new.verdict for _, of_new in found.slo])
    if code == ProfagentError.exit_code or any(outcome.failing for outcome in found.outcomes):
        return ProfagentError.exit_code
    is_decided = not (code or any(outcome.undecided for outcome in found.outcomes))
    is_answered = is_decided and not found.comparability.is_blocked
    return 0 if found.is_complete and is_answered else IncompleteError.exit_code


async def _judged(run: Operand, objectives: Sequence[Objective], skip: int | None) -> list[Judgement]:
    if run.database is None:
        why = "tables op_summary have no calls and no frames: judge a session or a JOB directory"
        return [unjudged(each, why) for each in objectives]
    return await judgements(run.database, objectives, session=run.session, job=run.job, skip=skip)


def _is_in_workspace(text: str) -> bool:
    """Return True if the text names a session; an existing directory or file of that name comes first."""
    return session_query(text) is not None and not Path(text).exists()


async def operand(text: str, workspace: Workspace, maps: CounterMaps) -> Operand:
    """Return the run that an argument names. Raises UsageError, StoreError."""
    tables = exported_files(Path(text))
    if tables:
        return Operand(text, tables=tables)
    target = await named_target(text, None, workspace.root if _is_in_workspace(text) else None, maps)
    # A position counted from the newest session means another session tomorrow, so the report names its number.
    called = str(target.session) if text == LAST or text.startswith("-") else text
    return Operand(called, target.database, target.session, target.job)
