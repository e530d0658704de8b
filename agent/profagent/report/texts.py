"""The texts of reports in other languages than English: one table for each language, by the English text."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from profagent.advise.rules import Language

HTML_LANGUAGES: Mapping[Language, str] = {"en": "en", "zh": "zh-CN"}
# Texts of the parts of a line are separated by this, in every language: the page takes lines apart with it.
PARTS = "; "
_FIELD = re.compile(r"\{(\w+)\}")
_NUMBER = r"[-+]?(?:[\d.,]+|N/A)"
_COUNTED = ("inference", "segment")
_LANES = ("inferences", "NPU segments", "NPU layers", "CPU segments", "CPU layers", "calls", "ranges", "operators")


class TextTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Texts of one language: of the page and of lines by their English form, of the ledger's reasons by name.

    In the English form of a line `{n_…}` stands for a number, `{line…}` for a text that is translated itself, any other
    name for text that stays; `(s)` is an ending that may be missing.
    """

    page: dict[str, str] = {}
    lines: dict[str, str] = {}
    reasons: dict[str, str] = {}


class Texts:
    """Texts in one language; a text without a translation stays English, as names and log texts do."""

    def __init__(self, language: Language, table: TextTable) -> None:
        self.html_language = HTML_LANGUAGES[language]
        # The page's texts by their English form, for its scripts as well.
        self.page = table.page
        self._reasons = table.reasons
        self._lines = [(_pattern(english), text) for english, text in table.lines.items()]

    @staticmethod
    @cache
    def of_language(language: Language) -> Texts:
        """Return the texts of a language."""
        return Texts(language, table_of(language))

    def text(self, english: str, **values: object) -> str:
        """Return a text of the page, filled with the values."""
        return self.page.get(english, english).format(**values)

    def reason(self, name: str, english: str) -> str:
        """Return the meaning of a reason of the ledger."""
        return self._reasons.get(name, english)

    def line(self, english: str) -> str:
        """Return a line that another part of profagent wrote, translated whole or part by part.

        Patterns are tried in the order of the language's file: the first that matches wins.
        """
        if not self._lines:
            return english
        for pattern, text in self._lines:
            if found := pattern.fullmatch(english):
                return text.format(**{name: self._value(name, value) for name, value in found.groupdict().items()})
        head, separator, tail = english.partition(PARTS)
        if separator:
            return f"{self.line(head)}{PARTS}{self.line(tail)}"
        # A name may stand before a line about it.
        head, separator, tail = english.partition(": ")
        return f"{head}{separator}{self.line(tail)}" if separator else english

    def lane(self, english: str) -> str:
        """Return the name of a lane of the timeline: its kind is translated, the name behind it stays."""
        kind = next((kind for kind in _LANES if english == kind or english.startswith(f"{kind} ")), "")
        return self.text(kind) + english.removeprefix(kind)

    def span(self, english: str) -> str:
        """Return the name of a span of the timeline: those of layers and calls stay."""
        kind, _, number = english.rpartition(" ")
        return f"{self.text(kind)} {number}" if kind in _COUNTED and number.isdecimal() else english

    def _value(self, name: str, value: str) -> str:
        return self.line(value) if name.startswith("line") else value


def table_of(language: Language) -> TextTable:
    """Return the table of a language; that of English is empty."""
    if language == "en":
        return TextTable()
    return msgspec.toml.decode(
        resources.files("profagent.report").joinpath(f"{language}.toml").read_bytes(), type=TextTable
    )


def translated(shown: dict[str, Any], texts: Texts) -> dict[str, Any]:
    """Return the document of a report with every line in the language of the texts; figures and names stay."""
    about, advice, timeline, compared = (shown[name] for name in ("session", "advice", "timeline", "comparison"))

    def lines(found: Iterable[str]) -> list[str]:
        return [texts.line(each) for each in found]

    return {
        **shown,
        "session": {
            **about,
            **{name: about[name] and texts.line(about[name]) for name in ("covered", "coverage", "sampled")},
            "incomplete": lines(about["incomplete"]),
            "ledger": [
                {**row, "meaning": texts.reason(row["reason"], row["meaning"]), "detail": texts.line(row["detail"])}
                for row in about["ledger"]
            ],
        },
        "advice": advice
        and {**advice, "cannot_tell": [{**each, "why": texts.line(each["why"])} for each in advice["cannot_tell"]]},
        "models": [{**each, "about": lines(each["about"])} for each in shown["models"]],
        "timeline": {
            **timeline,
            "lane_names": [texts.lane(lane) for lane in timeline["lanes"]],
            "names": [texts.span(name) for name in timeline["names"]],
            "rules": lines(timeline["rules"]),
            "nothing": texts.line(timeline["nothing"]),
        },
        "comparison": compared and _compared(compared, texts),
        "slo_lines": [*map(lines, shown["slo_lines"])],
        "caveats": lines(shown["caveats"]),
        "history": [
            {
                "charts": [(texts.line(title), chart) for title, chart in each["charts"]],
                "lines": lines(each["lines"]),
            }
            for each in shown["history"]
        ],
    }


def _compared(found: dict[str, Any], texts: Texts) -> dict[str, Any]:
    differences = [{**each, "text": texts.line(each["text"])} for each in found["comparability"]["differences"]]
    return {
        **found,
        "verdict": texts.line(found["verdict"]),
        "comparability": {**found["comparability"], "differences": differences},
        "remarks": [texts.line(each) for each in found["remarks"]],
    }


def _pattern(english: str) -> re.Pattern[str]:
    parts = _FIELD.split(english)
    fixed = [re.escape(part).replace(r"\(s\)", "s?") for part in parts[::2]]
    fields = [f"(?P<{name}>{_field(name)})" for name in parts[1::2]]
    # One field fewer than fixed parts.
    return re.compile("".join(part for pair in zip(fixed, [*fields, ""], strict=True) for part in pair), re.DOTALL)


def _field(name: str) -> str:
    if name.startswith("n_"):
        return _NUMBER
    # A name ends where the next part of a line begins.
    return ".+?" if name.startswith("line") else f"(?:(?!{PARTS}).)+?"
