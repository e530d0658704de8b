r"""Texts in cells of a CSV file, so that no spreadsheet takes one for a formula, and none controls a terminal.

A text that begins with `=`, `+`, `-` or `@` gets a `'` before it, unless it is a number, or this one sign alone; so
does a text that begins with `'` and then in that way. A control character, and one that reverses text, is written as
`\x1b` or `\u202e`, and a backslash before anything that looks like such an escape as `\x5c`.
"""

from __future__ import annotations

import re

_CONTROLS = r"\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"
_ESCAPE = r"x(?:[01][0-9a-f]|[789][0-9a-f]|5c)|u(?:200[ef]|202[89a-e]|206[6-9]|feff)"
_UNSAFE = re.compile(rf"[{_CONTROLS}]|\\(?={_ESCAPE})")
_ESCAPED = re.compile(rf"\\(?:{_ESCAPE})")
_FORMULA = re.compile(r"'*[=+\-@].", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def cell_of(text: str) -> str:
    """Return the content of a cell for a text."""
    if _UNSAFE.search(text):
        text = _UNSAFE.sub(_escaped, text)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def text_of(cell: str) -> str:
    """Return the text of a cell that `cell_of` made; for another program's cell this is nearly always the cell."""
    if cell.startswith("'") and _FORMULA.match(cell, 1):
        cell = cell[1:]
    return _ESCAPED.sub(_meant, cell) if "\\" in cell else cell


def _escaped(found: re.Match[str]) -> str:
    code = f"{ord(found[0]):02x}"
    return f"\\x{code}" if len(code) == len("ff") else f"\\u{code}"


def _meant(found: re.Match[str]) -> str:
    return found[0].encode().decode("unicode_escape")
