"""The reports of `advise`: lines for people, an object for programs, the vendor's file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profagent.cli.running import terminal_columns
from profagent.formats.records import US_PER_MS
from profagent.limits import SHOWN_EVIDENCE
from profagent.tables.provenance import SIMULATED_MARK
from profagent.tables.table import UNKNOWN, Cell, Column, counted, fitted_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagent.advise.advise import Advice, RuleFinding
    from profagent.advise.rules import Language

_DECIMALS = 3
GAIN = "gain_us"
WHOLE = 100.0
# Phrases around the rules' own words.
PHRASES = {
    "en": {
        "high": "high",
        "medium": "medium",
        "low": "low",
        "info": "info",
        "inference": "could bring at most {:.3f} ms an inference",
        "step": "could bring at most {:.3f} ms a step",
        "no gain": f"what it could bring is {UNKNOWN}",
    },
    "zh": {
        "high": "高",
        "medium": "中",
        "low": "低",
        "info": "提示",
        "inference": "每次推理最多可省 {:.3f} ms",
        "step": "每步最多可省 {:.3f} ms",
        "no gain": f"可节省的时间：{UNKNOWN}",
    },
}
PER = {"inference": "an inference", "step": "a step"}
_INDENT = "   "


def advice_document(advice: Advice) -> dict[str, Any]:
    """Return the object that `--json` prints; times are in µs, None if not known."""
    return {
        "session": advice.session,
        "simulated": advice.is_simulated,
        "findings": [each._asdict() for each in advice.findings],
        "nothing_found": advice.quiet,
        "cannot_tell": [each._asdict() for each in advice.undecided],
        "jobs": advice.provenance,
    }


def vendor_document(advice: Advice) -> dict[str, Any]:
    """Return the findings under the keys of the vendor's file."""
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
    """Yield the findings for people, then the rules that found nothing and those that cannot tell."""
    mark = SIMULATED_MARK if advice.is_simulated else ""
    yield f"session {advice.session}: {counted(len(advice.findings), 'finding')}{mark}"
    if len(advice.findings) > 1:
        per = " or ".join(dict.fromkeys(PER[each.per] for each in advice.findings))
        yield f"in the order of what each could bring at most in {per}; where that is not known, by severity"
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
    for rule, why in advice.undecided:
        whys.setdefault(why, []).append(rule)
    for why, names in whys.items():
        yield f"N/A: {', '.join(names)}: {why}"


def _finding_lines(finding: RuleFinding, language: Language) -> Iterator[str]:
    about = f"{finding.model}: " if finding.model else ""
    yield f"{about}{gain_text(finding, language)}"
    yield finding.finding
    yield f"-> {finding.advice}"
    if finding.same_time:
        yield f"it is about layers of {', '.join(finding.same_time)} as well: what they could bring is one time"
    yield f"[{finding.rule}; {finding.manual}]"
    columns, rows = evidence_table(finding)
    width = terminal_columns()
    yield from fitted_lines(columns, rows, width and width - len(_INDENT))
    if len(finding.evidence) > SHOWN_EVIDENCE:
        yield f"… {len(finding.evidence) - SHOWN_EVIDENCE} more rows: --json has all"


def gain_text(finding: RuleFinding, language: Language) -> str:
    """Return the possible gain, with its share if that is within the inference or step."""
    phrases = PHRASES[language]
    if finding.gain_us is None:
        return phrases["no gain"]
    share = "" if finding.share is None or finding.share > WHOLE else f" ({finding.share:.1f} %)"
    return phrases[finding.per].format(finding.gain_us / US_PER_MS) + share


def evidence_table(finding: RuleFinding) -> tuple[list[Column], list[list[Cell]]]:
    """Return the columns and the first rows of the evidence."""
    rows = finding.evidence[:SHOWN_EVIDENCE]
    names = [name for name in rows[0] if name != GAIN or finding.gain_us is not None]
    is_number = {name: any(isinstance(row[name], float) for row in rows) for name in names}
    columns = [Column(name, _DECIMALS if is_number[name] else None) for name in names]
    return columns, [[row[name] for name in names] for row in rows]
