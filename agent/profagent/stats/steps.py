"""Steps of a program, and the time of the ranges in them.

A step is what a Profiler calls one; beside these, a span or range that no other of its thread holds.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.stats.figures import figures_of
from profagent.store.database import pages

if TYPE_CHECKING:
    import aiosqlite

    from profagent.stats.figures import Figures

Key = tuple[str, str]

_RANGES = (
    "SELECT process, thread, lane, kind = 'step', name, start_us, end_us, duration_us FROM ranges"
    " WHERE session = ? AND kind <> 'mark' AND duration_us IS NOT NULL"
    " ORDER BY process, start_us, end_us DESC, kind <> 'step'"
)


class _Range(NamedTuple):
    process: int
    thread: int
    lane: int
    is_step: int
    name: str
    start_us: float
    end_us: float
    duration_us: float


class _Steps:
    """Durations by step and range; ranges come by process and start, those that hold others first."""

    def __init__(self) -> None:
        self.durations: dict[Key, list[float]] = defaultdict(list)
        self._process = 0
        # Of a process, the last step of its Profiler; of a thread and lane, the last outermost range.
        self._open: dict[tuple[int, int] | None, _Range] = {}

    def take(self, found: _Range) -> None:
        """A range is a step, or is in one."""
        if found.process != self._process:
            self._process = found.process
            self._open.clear()
        own = None if found.is_step else (found.thread, found.lane)
        for key in (None, own, (found.thread, 0)):
            holder = self._open.get(key)
            if holder is not None and found.end_us <= holder.end_us and not found.is_step:
                self.durations[holder.name, found.name].append(found.duration_us)
                return
        self._open[own] = found
        # What has ended holds no other.
        self._open = {key: each for key, each in self._open.items() if each.end_us > found.start_us}
        self.durations[found.name, ""].append(found.duration_us)


async def step_figures(connection: aiosqlite.Connection, session: int) -> list[tuple[Key, Figures, float | None]]:
    """For each step's name, then its ranges: the figures, and the share of all steps, or of that step."""
    steps = _Steps()
    async for page in pages(connection, _RANGES, (session,)):
        for row in page:
            steps.take(_Range._make(row))
    figures = {key: figures_of(np.array(found)) for key, found in steps.durations.items()}
    totals = {step: row.total or 0.0 for (step, name), row in figures.items() if not name}
    all_time = sum(totals.values())
    rows = []
    for (step, name), row in figures.items():
        whole = totals[step] if name else all_time
        rows.append(((step, name), row, (row.total or 0.0) / whole * 100 if whole else None))
    return sorted(rows, key=lambda row: (-totals[row[0][0]], row[0][0], row[0][1] != "", -(row[1].total or 0.0)))
