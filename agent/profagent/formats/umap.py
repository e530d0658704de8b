"""Reads the NPU's node of /proc/umap (format page 7): values by the names of their columns.

Layouts differ between SDKs: columns come in any order, some have more, sections may be missing.
"""

from __future__ import annotations

import re

__all__ = ["parse_umap"]

_SECTION = re.compile(r"-{3,}.*")
_TITLE = re.compile(r"[A-Za-z_]\w*(?:\(.*\))?")


def parse_umap(text: str) -> dict[str, tuple[str, ...]]:
    """The values of each column, of all sections that have it, in the order of the text.

    A line of titles is followed by lines of as many values. Units in a title, as in `hw_utilization(%)`, are left out.
    """
    columns: dict[str, tuple[str, ...]] = {}
    titles: list[str] = []
    has_row = False
    for line in text.splitlines():
        words = line.split()
        if not words or _SECTION.match(line.strip()):
            titles = []
        elif len(words) == len(titles) and not (has_row and _are_titles(words)):
            has_row = True
            for title, value in zip(titles, words, strict=True):
                columns[title] = (*columns.get(title, ()), value)
        else:
            titles, has_row = _titles(words), False
    return columns


def _are_titles(words: list[str]) -> bool:
    return all(_TITLE.fullmatch(word) for word in words)


def _titles(words: list[str]) -> list[str]:
    return [word.partition("(")[0] for word in words] if _are_titles(words) else []
