"""`--fail-if`: conditions on what changed, `SCOPE.FIGURE OP LIMIT`, such as `layer.median>+5%`."""

from __future__ import annotations

import operator
import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

from profagent.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.diff.comparing import Change

__all__ = ["SCOPES", "Condition", "parse_condition"]

SCOPES = ("total", "model", "layer", "type", "api")
FIGURES = ("mean", "median", "mad", "p95", "max")
UNITS = {"%": "%", "us": "us", "ms": "ms"}
_OPERATORS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
_WORD = re.compile(r"[a-z0-9]+")
_NUMBER = re.compile(r"\d+(\.\d+)?")
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
        if self.unit != "%":
            return []
        untold = (change for change in self.about(changes) if change.is_significant or change.p is None)
        return [change for change in untold if self._is_baseless(change)]

    def _is_baseless(self, change: Change) -> bool:
        base, new = self._sides(change)
        return base == 0 and bool(new)

    def _holds(self, change: Change) -> bool:
        base, new = self._sides(change)
        if base is None or new is None or (self.unit == "%" and not base):
            return False
        found = (new - base) / base * 100 if self.unit == "%" else (new - base) / (1000 if self.unit == "ms" else 1)
        return bool(_OPERATORS[self.operator](found, self.limit))

    def _sides(self, change: Change) -> tuple[float | None, float | None]:
        return getattr(change.base, self.figure), getattr(change.new, self.figure)


def parse_condition(text: str) -> Condition:
    """Read a condition; UsageError whose hint has a caret below the column that cannot be."""
    return _Parser(text).condition()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def condition(self) -> Condition:
        scope = self._one_of(SCOPES, "a scope")
        name = self._name() if scope != "total" and self._is_next("[") else None
        self._expect(".", "a dot and a figure, as in layer.median")
        figure = self._one_of(FIGURES, "a figure")
        compare = next((each for each in _OPERATORS if self._is_next(each)), None)
        if compare is None:
            raise self._fault(f"write one of {' '.join(_OPERATORS)}")
        self._at += len(compare)
        sign = next((each for each in "+-" if self._is_next(each)), None)
        if sign is None:
            raise self._fault("write + for slower or - for faster, as in >+5%")
        self._at += 1
        self._pass_spaces()
        number = _NUMBER.match(self._text, self._at)
        if number is None:
            raise self._fault("write a number, as in >+5%")
        self._at = number.end()
        unit = next((each for each in UNITS if self._is_next(each)), None)
        if unit is None:
            raise self._fault(f"write a unit: {', '.join(UNITS)}")
        self._at += len(unit)
        self._pass_spaces()
        if self._at < len(self._text):
            raise self._fault("nothing may follow")
        return Condition(self._text, scope, name, figure, compare, float(sign + number[0]), unit)

    def _one_of(self, words: Sequence[str], what: str) -> str:
        self._pass_spaces()
        found = _WORD.match(self._text, self._at)
        if found is None or found[0] not in words:
            raise self._fault(f"write {what}: {', '.join(words)}")
        self._at = found.end()
        return found[0]

    def _name(self) -> str:
        begin, end = self._at + 1, self._text.find("]", self._at)
        if end <= begin:
            raise self._fault("write a name, as in layer[conv1]")
        self._at = end + 1
        return self._text[begin:end]

    def _expect(self, sign: str, what: str) -> None:
        if not self._is_next(sign):
            raise self._fault(f"write {what}")
        self._at += len(sign)

    def _is_next(self, sign: str) -> bool:
        self._pass_spaces()
        return self._text.startswith(sign, self._at)

    def _pass_spaces(self) -> None:
        while self._text[self._at : self._at + 1].isspace():
            self._at += 1

    def _fault(self, what: str) -> UsageError:
        before = self._text[: self._at]
        width = sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in before)
        return UsageError(f"{PREFIX}{self._text}", hint=f"{' ' * (_MARGIN + width)}^ column {self._at + 1}: {what}")
