"""Tables of /proc/umap: a line of names, a line of values under it. Columns and sections are found by name alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?%?")
_SECTION = re.compile(r"-{3,}\s*(.*?)\s*-{3,}")
_TOTAL = re.compile(r"total size=(\d+)KB.*?used=(\d+)KB.*?remain=(\d+)KB")


def tables(text: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Each row of values with its section's name (`runtime info`) and its columns (`hw_utilization` → 12.0).

    Long tables are wrapped: names and values then stand in several pairs of lines, of which each is a row here.
    """
    section, names = "", list[str]()
    for line in text.splitlines():
        title = _SECTION.fullmatch(line.strip())
        words = line.split()
        if title:
            section, names = re.sub(r"^svp_(npu|nnn) ", "", title.group(1)), []
        elif words and all(_NUMBER.fullmatch(each) for each in words):
            if len(words) == len(names):
                yield section, {name: float(value.rstrip("%")) for name, value in zip(names, words)}
        else:
            names = words


def media_memory(text: str) -> dict[str, float]:
    """Bytes of the MMZ zones in all, by the last summary line: `total`, `used`, `free`; empty without one."""
    found = _TOTAL.findall(text)
    if not found:
        return {}
    total, used, free = (1024.0 * int(each) for each in found[-1])
    return {"total": total, "used": used, "free": free}
