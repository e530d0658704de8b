"""JSON of options that people write by hand: its value, or the place where it is broken. Pure."""

from __future__ import annotations

import json
from typing import NamedTuple

from profagent.ascend_options.rules import Expression
from profagent.doctor.finding import Finding, bad, unknown
from profagent.limits import SHOWN_AFTER, SHOWN_BEFORE

# A part of the text that a script computes stands between these.
OPENING, CLOSING = "⟨", "⟩"


class Slip(NamedTuple):
    """Place where a text stops being JSON, and the parser's reason."""

    line: int
    column: int
    at: int
    why: str


class JsonReading(NamedTuple):
    """Value of a text, None if the text is broken; `doubles` are keys that stand twice in one object."""

    value: object
    slip: Slip | None = None
    doubles: tuple[str, ...] = ()


def read(text: str) -> JsonReading:
    """Read a text, broken or not. Raises RecursionError for one that is nested too deep."""
    doubles: list[str] = []

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        names = [name for name, _ in pairs]
        doubles.extend(name for name in dict.fromkeys(names) if names.count(name) > 1)
        return dict(pairs)

    try:
        return JsonReading(json.loads(text, object_pairs_hook=unique), None, tuple(doubles))
    except json.JSONDecodeError as error:
        return JsonReading(None, Slip(error.lineno, error.colno, error.pos, error.msg))
    except ValueError as error:  # a number with thousands of digits
        return JsonReading(None, Slip(1, 1, 0, str(error)))


def known(value: object) -> object:
    """Return the value, as an Expression if a script computes a part of it."""
    return Expression(value) if isinstance(value, str) and OPENING in value else value


def slip_finding(text: str, slip: Slip, effect: str) -> Finding:
    """Return the finding for a broken text: the place, the characters around it, and what the runtime does."""
    line, column, at, why = slip
    before = ("…" if at > SHOWN_BEFORE else "") + text[max(at - SHOWN_BEFORE, 0) : at]
    after = text[at : at + SHOWN_AFTER] + ("…" if at + SHOWN_AFTER < len(text) else "")
    evidence = f"no JSON: line {line}, column {column}: {why}; here: {before} ▸ {after}; {effect}"
    return bad("json", " ".join(evidence.split()))


def double_findings(reading: JsonReading) -> list[Finding]:
    """Return a finding for each key that stands twice in one object."""
    return [unknown("json", f"{name!r} stands twice: the last one counts") for name in reading.doubles]


def one_line_json(options: dict[str, object]) -> str:
    """Return the options as one line of JSON, as scripts have it."""
    plain = {name: value.text if isinstance(value, Expression) else value for name, value in options.items()}
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
