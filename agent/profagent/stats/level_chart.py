"""Chart of a trend as SVG: the value of each night, and the levels as lines."""

from __future__ import annotations

from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from profagent.tables.table import counted, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from profagent.stats.levels import LevelChange
    from profagent.stats.trend import TrendChange

WIDTH, HEIGHT = 1000, 120
_RADIUS = 4


def level_chart(
    title: str, values: Sequence[float | None], changes: Sequence[tuple[int, LevelChange | TrendChange]]
) -> str:
    """Return the SVG of a chart; `changes` are those of the values, each with the place of its night.

    Nights without a value have no point. The scale does not begin at 0: a change of some percent must be visible.
    """
    known = [value for value in values if value is not None]
    if not known:
        return ""
    least, most = min(known), max(known)
    step, span = WIDTH / max(1, len(values) - 1), most - least or 1.0

    def y(value: float) -> float:
        return HEIGHT * (1 - (min(max(value, least), most) - least) / span)

    points = "".join(
        f'<circle cx="{place * step:.1f}" cy="{y(value):.1f}" r="{_RADIUS}" style="fill: var(--accent)"/>'
        for place, value in enumerate(values)
        if value is not None
    )
    lines = "".join(
        f'<line x1="{start * step:.1f}" y1="{y(level):.1f}" x2="{end * step:.1f}" y2="{y(level):.1f}"'
        f' style="stroke: var(--medium); stroke-width: 3"/>'
        for start, end, level in _levels(len(values), changes)
    )
    about = escape(printable(title))
    box = f"{-_RADIUS} {-_RADIUS} {WIDTH + 2 * _RADIUS} {HEIGHT + 2 * _RADIUS}"
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img" aria-label="{about}">'
    return f"{start}{lines}{points}</svg>"


def chart_title(name: str, unit: str, values: Sequence[float | None]) -> str:
    """Return the title of a chart: its name, the number of values, and their range."""
    known = [value for value in values if value is not None] or [0.0]
    return f"{name}: {counted(len(known), 'night')}, from {min(known):,.1f} to {max(known):,.1f} {unit}"


def _levels(nights: int, changes: Sequence[tuple[int, LevelChange | TrendChange]]) -> Iterator[tuple[int, int, float]]:
    """Yield the first and last night of each level, and the level; a series without a change shows none."""
    if changes:
        edges = [0, *(place for place, _ in changes), nights]
        levels = [changes[0][1].before, *(change.after for _, change in changes)]
        yield from ((start, end - 1, level) for (start, end), level in zip(pairwise(edges), levels, strict=True))
