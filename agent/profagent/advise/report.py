"""The reports of `advise`: lines for people, an object for programs, the vendor's file."""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any

from profagent.cli.running import terminal_columns
from profagent.limits import SHOWN_EVIDENCE
from profagent.tables.provenance import SIMULATED_MARK
from profagent.tables.table import UNKNOWN, Cell, Column, fitted_lines
from profagent.units import US_PER_MS

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
        "inference": "could save at most {:.3f} ms an inference",
        "step": "could save at most {:.3f} ms a step",
        "no gain": f"the time that it could save is {UNKNOWN}",
        "title": "session {}: {}",
        "findings": "{} findings",
        "finding": "1 finding",
        "simulated": SIMULATED_MARK,
        "order": "sorted by the time that each could save at most in {}; where that is not known, by severity",
        "an inference": "an inference",
        "a step": "a step",
        "or": " or ",
        "uncertain": "(?): the finding depends on a counter of which the counter map is not certain",
        "quiet": "nothing found by: {}",
        "same time": "the same layers are in {}: count the time that they could save only once",
        "more": "… {} more rows: --json has all",
        "between": ", ",
    },
    "zh": {
        "high": "高",
        "medium": "中",
        "low": "低",
        "info": "提示",
        "inference": "每次推理最多可省 {:.3f} ms",
        "step": "每步最多可省 {:.3f} ms",
        "no gain": f"可节省的时间：{UNKNOWN}",
        "title": "会话 {}：{}",
        "findings": "{} 条建议",
        "finding": "1 条建议",
        "simulated": "  *** 模拟数据：这些数值是虚构的 ***",
        "order": "按{}最多可节省的时间排序；时间未知时按严重程度排序",
        "an inference": "每次推理",
        "a step": "每步",
        "or": "或",
        "uncertain": "(?)：该建议依据的计数器在计数器映射中尚不确定",
        "quiet": "以下规则没有发现问题：{}",
        "same time": "{} 也涉及这些层：可节省的时间只计一次",
        "more": "… 还有 {} 行：用 --json 查看全部",
        "between": "、",
    },
}
PER = {"inference": "an inference", "step": "a step"}
# The table of Chinese lines belongs to the report, a package above this one: it is loaded only to print them.
_TEXTS = "profagent.report.texts:Texts"
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
    phrases, texts = PHRASES[language], pkgutil.resolve_name(_TEXTS).of_language(language)
    mark = phrases["simulated"] if advice.is_simulated else ""
    count = len(advice.findings)
    findings = phrases["finding" if count == 1 else "findings"].format(count)
    yield phrases["title"].format(advice.session, findings) + mark
    if count > 1:
        per = phrases["or"].join(dict.fromkeys(phrases[PER[each.per]] for each in advice.findings))
        yield phrases["order"].format(per)
    for number, each in enumerate(advice.findings, 1):
        yield ""
        yield f"{number}. [{phrases[each.severity]}] {each.title}{'  (?)' if each.likely else ''}"
        yield from (f"{_INDENT}{line}" for line in _finding_lines(each, language))
    yield ""
    if any(each.likely for each in advice.findings):
        yield phrases["uncertain"]
    if advice.quiet:
        yield phrases["quiet"].format(phrases["between"].join(advice.quiet))
    whys: dict[str, list[str]] = {}
    for rule, why in advice.undecided:
        whys.setdefault(why, []).append(rule)
    for why, names in whys.items():
        yield f"{UNKNOWN}: {phrases['between'].join(names)}: {texts.line(why)}"


def _finding_lines(finding: RuleFinding, language: Language) -> Iterator[str]:
    phrases = PHRASES[language]
    about = f"{finding.model}: " if finding.model else ""
    yield f"{about}{gain_text(finding, language)}"
    yield finding.finding
    yield f"-> {finding.advice}"
    if finding.same_time:
        yield phrases["same time"].format(phrases["between"].join(finding.same_time))
    yield f"[{finding.rule}; {finding.manual}]"
    columns, rows = evidence_table(finding)
    width = terminal_columns()
    yield from fitted_lines(columns, rows, width and width - len(_INDENT))
    if len(finding.evidence) > SHOWN_EVIDENCE:
        yield phrases["more"].format(len(finding.evidence) - SHOWN_EVIDENCE)


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
