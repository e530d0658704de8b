"""`profagent advise`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from profagent.advise.advise import US_PER_MS, advise
from profagent.advise.rules import LANGUAGES, rules_with
from profagent.cli import options
from profagent.cli.running import asynchronous, tell, terminal_columns
from profagent.cli.table import UNKNOWN, Cell, Column, fitted_lines, printable
from profagent.files import make_directory, write_atomically
from profagent.importing.job_folder import named_target, tell_unrecorded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagent.advise.advise import Advice, Finding
    from profagent.advise.rules import Language, Rule
    from profagent.store.counter_maps import CounterMaps

# In a workspace, the user's own rules.
RULES_FOLDER = "rules"
# The vendor's name for advice; the number is the device's.
VENDOR_FILE = "prof_rule_0.json"
SHOWN_ROWS = 5
_DECIMALS = 3
GAIN = "gain_us"
WHOLE = 100.0
# What is said around the rules' own words.
PHRASES = {
    "en": {
        "high": "high",
        "medium": "medium",
        "low": "low",
        "info": "info",
        "gain": "could bring at most {:.3f} ms an inference",
        "no gain": f"what it could bring is {UNKNOWN}",
    },
    "zh": {
        "high": "高",
        "medium": "中",
        "low": "低",
        "info": "提示",
        "gain": "每次推理最多可省 {:.3f} ms",
        "no gain": f"可节省的时间:{UNKNOWN}",
    },
}
_INDENT = "   "


def usual_language() -> Language:
    """What LC_ALL, LC_MESSAGES or LANG asks for: Chinese, else English."""
    named = next((value for name in ("LC_ALL", "LC_MESSAGES", "LANG") if (value := os.environ.get(name))), "")
    return "zh" if named.lower().startswith("zh") else "en"


language = click.option(
    "--lang",
    "language",
    type=click.Choice(LANGUAGES),
    help="The language of the advice.  [default: zh where LANG is Chinese, else en]",
)
rules_folders = click.option(
    "--rules",
    "folders",
    multiple=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Rules of your own, beside WORKSPACE/rules; may be repeated.",
)


@click.command("advise")
@options.target
@options.workspace
@click.option("--job", metavar="NAME", help="Only this JOB of the session, for what is about layers.")
@options.counter_map
@rules_folders
@language
@options.as_json
@click.option(
    "-o",
    "output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help=f"Write {VENDOR_FILE}, as the vendor's tools do, into this folder.",
)
@asynchronous
async def command(
    *,
    target: str,
    workspace: Path | None,
    job: str | None,
    maps: CounterMaps,
    folders: tuple[Path, ...],
    language: Language | None,
    as_json: bool,
    output: Path | None,
) -> int:
    """Say what to work on: what slows a run down, by which evidence, and what it could bring at most.

    The rules are data: queries over the database's views, with the thresholds of the vendor's manual.

    Example: profagent advise 3
    Example: profagent advise 3 --lang zh
    """
    found = await named_target(target, job, workspace, maps)
    rules = all_rules(found.database, found.session, folders)
    chosen = language or usual_language()
    advice = await advise(found.database, rules, session=found.session, job=found.job, language=chosen)
    if output is not None:
        _write(advice, output)
    if as_json:
        click.echo(msgspec.json.encode(advice_document(advice)))
    else:
        for line in advice_lines(advice, chosen):
            click.echo(printable(line))
    return 0 if advice.findings else await tell_unrecorded(found.database, found.session, found.job)


def _write(advice: Advice, folder: Path) -> None:
    make_directory(folder)
    file = folder / VENDOR_FILE
    write_atomically(file, [msgspec.json.format(msgspec.json.encode(vendor_document(advice)))])
    tell(f"{file} is written; its form is unverified: no file of the vendor's was at hand")


def all_rules(database: Path, session: int | None, named: tuple[Path, ...] = ()) -> list[Rule]:
    """Our rules, the workspace's, and those of folders that the user names.

    Without a session the database is in a JOB, which may be somebody else's: no rule is read there.
    """
    own = database.parent / RULES_FOLDER
    return rules_with([*([own] if session is not None and own.is_dir() else []), *named])


def advice_document(advice: Advice) -> dict[str, Any]:
    """What `--json` prints; times in µs, None for what is not known."""
    return {
        "session": advice.session,
        "simulated": advice.is_simulated,
        "findings": [each._asdict() for each in advice.findings],
        "nothing_found": advice.quiet,
        "cannot_tell": [each._asdict() for each in advice.untold],
        "jobs": advice.provenance,
    }


def vendor_document(advice: Advice) -> dict[str, Any]:
    """The findings with the keys of the vendor's file."""
    return {
        "data": [
            {
                "Rule Type": each.kind,
                "Rule Subtype": each.rule,
                "Rule Description": each.finding,
                "Rule Suggestion": each.advice,
                "Tuning Data": "Op Summary" if "layer" in each.evidence[0] else "Model Summary",
                "result": each.evidence,
            }
            for each in advice.findings
        ],
        "simulated": advice.is_simulated,
        "session": advice.session,
    }


def advice_lines(advice: Advice, language: Language) -> Iterator[str]:
    """The findings for people, then what was not found and what cannot be told."""
    mark = "  *** simulated: these figures are invented ***" if advice.is_simulated else ""
    yield f"session {advice.session}: {counted(len(advice.findings), 'finding')}{mark}"
    for number, each in enumerate(advice.findings, 1):
        yield ""
        yield f"{number}. [{PHRASES[language][each.severity]}] {each.title}{'  (?)' if each.likely else ''}"
        yield from (f"{_INDENT}{line}" for line in _finding_lines(each, language))
    yield ""
    if any(each.likely for each in advice.findings):
        yield "(?): the counter map is not certain of a counter that this rests on"
    if advice.quiet:
        yield f"nothing found by: {', '.join(advice.quiet)}"
    whys: dict[str, list[str]] = {}
    for rule, why in advice.untold:
        whys.setdefault(why, []).append(rule)
    for why, names in whys.items():
        yield f"N/A: {', '.join(names)}: {why}"


def _finding_lines(finding: Finding, language: Language) -> Iterator[str]:
    about = f"{finding.model}: " if finding.model else ""
    yield f"{about}{gain_text(finding, language)}"
    yield finding.finding
    yield f"-> {finding.advice}"
    yield f"[{finding.rule}; {finding.manual}]"
    columns, rows = evidence_table(finding, SHOWN_ROWS)
    width = terminal_columns()
    yield from fitted_lines(columns, rows, width and width - len(_INDENT))
    if len(finding.evidence) > SHOWN_ROWS:
        yield f"… {len(finding.evidence) - SHOWN_ROWS} more rows: --json has all"


def counted(count: int, what: str) -> str:
    """`1 finding`, `2 findings`."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def gain_text(finding: Finding, language: Language) -> str:
    """What it could bring; its share where it is within the inference."""
    phrases = PHRASES[language]
    if finding.gain_us is None:
        return phrases["no gain"]
    share = "" if finding.share is None or finding.share > WHOLE else f" ({finding.share:.1f} %)"
    return phrases["gain"].format(finding.gain_us / US_PER_MS) + share


def evidence_table(finding: Finding, most: int) -> tuple[list[Column], list[list[Cell]]]:
    """Its first rows."""
    rows = finding.evidence[:most]
    names = [name for name in rows[0] if name != GAIN or finding.gain_us is not None]
    is_number = {name: any(isinstance(row[name], float) for row in rows) for name in names}
    columns = [Column(name, _DECIMALS if is_number[name] else None) for name in names]
    return columns, [[row[name] for name in names] for row in rows]
