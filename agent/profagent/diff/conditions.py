"""`--fail-if`: conditions on what changed, `SCOPE.FIGURE OP LIMIT`, such as `layer.median>+5%`."""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, NamedTuple

from profagent.cli.table import text_width
from profagent.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.diff.comparing import Change

SCOPES = ("total", "model", "layer", "type", "api")
FIGURES = ("mean", "median", "mad", "p95", "max")
UNITS = ("%", "us", "ms")
_OPERATORS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
# What a condition is made of, one after the other, and what to write where it is not there.
_PARTS = (
    ("scope", rf"(?:{'|'.join(SCOPES)})(?![a-z0-9])", f"write a scope: {', '.join(SCOPES)}"),
    ("name", r"\[[^\]]+\]|(?!\[)", "write a name, as in layer[conv1]"),
    ("dot", r"\.", "write a dot and a figure, as in layer.median"),
    ("figure", rf"(?:{'|'.join(FIGURES)})(?![a-z0-9])", f"write a figure: {', '.join(FIGURES)}"),
    ("operator", "|".join(_OPERATORS), f"write one of {' '.join(_OPERATORS)}"),
    ("sign", "[+-]", "write + for slower or - for faster, as in >+5%"),
    ("number", r"\d+(?:\.\d+)?", "write a number, as in >+5%"),
    ("unit", "|".join(UNITS), f"write a unit: {', '.join(UNITS)}"),
    ("end", "$", "nothing may follow"),
)
PREFIX = "--fail-if "
# What stands before an error's sentence, and before its hint, when the command prints them.
_MARGIN = len("profagent: ") - len("  ") + len(PREFIX)


class Condition(NamedTuple):
    """Holds for changes of `scope` (named `name`, unless None) whose `figure` differs by more than the limit."""

    text: str
    scope: str
    name: str | None
    figure: str
    operator: str
    limit: float
    unit: str

    def about(self, changes: Sequence[Change]) -> list[Change]:
        """Those that it is a condition on."""
        return [change for change in changes if change.scope == self.scope and self.name in (None, change.name)]

    def failing(self, changes: Sequence[Change]) -> list[Change]:
        """Those for which it holds; a change within noise or floor never does."""
        return [change for change in self.about(changes) if change.is_significant and self._holds(change)]

    def baseless(self, changes: Sequence[Change]) -> list[Change]:
        """Those of which nobody can tell whether it holds: the limit is in % of a figure that is 0 in the base only."""
        untold = (change for change in self.about(changes) if change.is_significant or change.p is None)
        sides = ((change, *self._sides(change)) for change in untold)
        return [change for change, base, new in sides if self.unit == "%" and base == 0 and new]

    def _holds(self, change: Change) -> bool:
        base, new = self._sides(change)
        if base is None or new is None or (self.unit == "%" and not base):
            return False
        found = (new - base) / {"%": base / 100, "us": 1, "ms": 1000}[self.unit]
        return bool(_OPERATORS[self.operator](found, self.limit))

    def _sides(self, change: Change) -> tuple[float | None, float | None]:
        return getattr(change.base, self.figure), getattr(change.new, self.figure)


def parse_condition(text: str) -> Condition:
    """Read a condition; UsageError whose hint has a caret below the column that cannot be."""
    at = 0
    found: dict[str, str] = {}
    for part, pattern, what in _PARTS:
        at += len(text[at:]) - len(text[at:].lstrip())
        has_no_name = part == "name" and found["scope"] == "total"
        match = re.compile("" if has_no_name else pattern).match(text, at)
        if match is None:
            before = " " * (_MARGIN + text_width(text[:at]))
            raise UsageError(f"{PREFIX}{text}", hint=f"{before}^ column {at + 1}: {what}")
        found[part], at = match[0], match.end()
    name, limit = found["name"][1:-1] or None, float(found["sign"] + found["number"])
    return Condition(text, found["scope"], name, found["figure"], found["operator"], limit, found["unit"])
