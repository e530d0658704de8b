"""A series as a line of bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["sparkline"]

BARS = "▁▂▃▄▅▆▇█"
# What varies by less of its largest value is shown as level.
LEAST_SPAN = 0.02


def sparkline(values: Sequence[float | None]) -> str:
    """A bar for each value, the lowest for the least; a space where there is none."""
    known = [value for value in values if value is not None]
    if not known:
        return " " * len(values)
    least, most = min(known), max(known)
    span = max(most - least, LEAST_SPAN * abs(most)) or 1.0
    return "".join(" " if value is None else BARS[round((value - least) / span * (len(BARS) - 1))] for value in values)
