"""JSON of options that people write by hand: where it is broken, and what it says all the same. Pure."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from profagent.ascend_options.rules import Expression
from profagent.doctor.finding import Finding, bad, unknown
from profagent.limits import SHOWN_AFTER, SHOWN_BEFORE

# A part of the text that a script computes stands between these.
OPENING, CLOSING = "⟨", "⟩"
_QUOTE = "[\"'“”‘’]"
# Of Chinese keyboards, too.
BEHIND_NAME = "[:=：]"
# A path may have 4,096 characters; longer than that, a quote that is never closed is looked for in vain.
_MEMBER = re.compile(
    rf"{_QUOTE}?\b([A-Za-z_]\w*){_QUOTE}*\s*{BEHIND_NAME}\s*"
    r"(?:\"([^\"\n]{0,4096})\"|'([^'\n]{0,4096})'|“([^”\n]{0,4096})”|‘([^’\n]{0,4096})’"
    r"|(⟨[^⟩\n]{0,4096}⟩|[^,，；}\s]{0,4096}))"
)
_WORD = re.compile(r"[^\s\"'“”‘’{}\[\],，；:：=]+")
_PROFILER = re.compile(rf"\bprofiler{_QUOTE}?\s*{BEHIND_NAME}\s*\{{([^}}]*)", re.IGNORECASE)


class Slip(NamedTuple):
    """Where a text is no JSON."""

    line: int
    column: int
    at: int
    why: str


class Reading(NamedTuple):
    """What a text says; where it is broken, what can be told of it."""

    value: object
    slip: Slip | None = None
    doubles: tuple[str, ...] = ()


def read(text: str) -> Reading:
    """Read a text, broken or not. Raises RecursionError for one that is nested too deep."""
    doubles: list[str] = []

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        names = [name for name, _ in pairs]
        doubles.extend(name for name in dict.fromkeys(names) if names.count(name) > 1)
        return dict(pairs)

    try:
        return Reading(json.loads(text, object_pairs_hook=unique), None, tuple(doubles))
    except json.JSONDecodeError as error:
        return Reading(_meant(text), Slip(error.lineno, error.colno, error.pos, error.msg))
    except ValueError as error:  # a number with thousands of digits
        return Reading(members(text), Slip(1, 1, 0, str(error)))


def _meant(text: str) -> object:
    try:
        # It may be broken by nothing but a newline or a tab within a text.
        return json.loads(text, strict=False)
    except ValueError:
        inner = _PROFILER.search(text)
        return {"profiler": members(inner[1])} if inner else members(text)


def members(text: str) -> dict[str, object]:
    """The members of an object without inner ones, whichever quotes, commas or brackets are missing."""
    return {
        match[1]: next((each for each in match.groups()[1:] if each), "").strip("\"',“”‘’ ")
        for match in _MEMBER.finditer(text)
    }


def known(value: object) -> object:
    """A value; an Expression if a part of it is computed."""
    return Expression(value) if isinstance(value, str) and OPENING in value else value


def slip_findings(text: str, reading: Reading, effect: str) -> list[Finding]:
    """What is wrong with the JSON itself, and what the runtime makes of it."""
    findings = []
    if reading.slip is not None:
        line, column, at, why = reading.slip
        before = ("…" if at > SHOWN_BEFORE else "") + text[max(at - SHOWN_BEFORE, 0) : at]
        after = text[at : at + SHOWN_AFTER] + ("…" if at + SHOWN_AFTER < len(text) else "")
        evidence = f"no JSON: line {line}, column {column}: {why}; here: {before} ▸ {after}; {effect}"
        findings.append(bad("json", " ".join(evidence.split()), "take the corrected text"))
        if lost := [word for word in _WORD.findall(_MEMBER.sub(" ", text)) if word not in str(reading.value)]:
            findings.append(unknown("json", f"not understood, and not in the corrected text: {' '.join(lost)}"))
    findings += [unknown("json", f"{name!r} stands twice: the last one counts") for name in reading.doubles]
    return findings


def written(options: dict[str, object]) -> str:
    """One line, as scripts have it."""
    plain = {name: value.text if isinstance(value, Expression) else value for name, value in options.items()}
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
