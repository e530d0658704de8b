"""Any text in Markdown."""

from __future__ import annotations

from profagent.export.table import printable

__all__ = ["markdown"]

# What means something in Markdown, and how it is written there.
_MARKDOWN = str.maketrans({**{sign: "\\" + sign for sign in "|\\`*_"}, "<": "&lt;", ">": "&gt;"})


def markdown(text: str) -> str:
    """A line or a cell of Markdown that shows the text as it is."""
    return printable(text).translate(_MARKDOWN)
