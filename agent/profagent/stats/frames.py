"""`stats --by frame`: where the time of a program's frames goes, stage by stage and wait by wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.formats.inference_times import share_within
from profagent.stats.figures import DurationFigures, figures_of
from profagent.stats.session_figures import Row
from profagent.store.frame_times import FrameTimes
from profagent.store.frames import frames_of
from profagent.tables.table import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from profagent.store.database import Running
    from profagent.store.frames import JoinedBy

STAGE, WAIT = "stage", "wait"


class FrameFigures(NamedTuple):
    """Figures of the frames of one process, times in µs.

    `missing` numbers were left out by the program; of the `lost` ones nobody knows, because marks were lost there. Of
    `undivided` frames some call has no records.
    """

    process: int
    joined_by: JoinedBy
    frames: int
    latency: DurationFigures
    age: DurationFigures
    per_second: float | None
    missing: int
    lost: int
    undivided: int

    def document(self) -> dict[str, Any]:
        """Return the figures as values of JSON."""
        return {**self._asdict(), "latency": self.latency._asdict(), "age": self.age._asdict()}

    @classmethod
    def of_document(cls, found: dict[str, Any]) -> FrameFigures:
        """Return the figures of what `document` returned."""
        times = {name: DurationFigures(**found[name]) for name in ("latency", "age")}
        # Figures of an earlier version do not say how many calls have no records.
        return cls(**{"undivided": 0, **found, **times})


async def frame_times(connection: Running, session: int) -> tuple[FrameTimes, JoinedBy]:
    """Return the times of a session's frames, and how the frames were joined."""
    found = await frames_of(connection, session)
    times = FrameTimes()
    async for page in found.pages():
        times.add(page)
    return times, found.joined_by


def frame_rows(times: FrameTimes) -> list[Row]:
    """Return a row for each stage and wait, by its total; the share is of the time of all frames."""
    whole_us = float(np.nansum(times.us))
    rows = []
    for part in times.part_names():
        figures = figures_of(times.part_us(part))
        key = (part.name, WAIT if part.is_wait else STAGE)
        rows.append(Row(key, figures, share_within(figures.total or 0.0, whole_us), None))
    return sorted(rows, key=lambda row: (-(row.figures.total or 0.0), row.key))


def frame_figures(times: FrameTimes, joined_by: JoinedBy) -> list[FrameFigures]:
    """Return the figures of the frames of each process, the one with the most frames first."""
    us, age_us, process, missing, lost = times.us, times.age_us, times.process, times.missing, times.lost
    found = []
    for number in np.unique(process).tolist():
        ours = process == number
        latency, age = (figures_of(_known(column[ours])) for column in (us, age_us))
        rate = times.per_second(number)
        # Numbers may be as large as an integer of the database: their sums may be larger.
        sums = sum(missing[ours].tolist()), sum(lost[ours].tolist()), int((times.undivided[ours] > 0).sum())
        found.append(FrameFigures(number, joined_by, int(ours.sum()), latency, age, rate, *sums))
    return sorted(found, key=lambda each: -each.frames)


def _known(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[~np.isnan(values)]


_JOINED = {
    "number": "",
    "spans": ", joined by order, as no mark has a frame's number: one ends where its first stage comes again",
    "calls": ", joined by order, as the program marks nothing: one ends where its first model comes again",
}


def frame_lines(found: FrameFigures) -> Iterator[str]:
    """Yield lines on the frames of a process: how many, their latency, age and pace, and what is missing."""
    about = f"process {found.process}"
    yield f"{about}: {counted(found.frames, 'frame')}{_JOINED[found.joined_by]}"
    yield f"{about}: latency of a frame: {_times(found.latency)}"
    yield f"{about}: age at its end: {_times(found.age, 'N/A, for no mark tells when a frame was captured')}"
    rate = "N/A" if found.per_second is None else f"{found.per_second:,.2f}"
    drops = "N/A" if found.joined_by != "number" else f"{found.missing:,}"
    yield f"{about}: {rate} frames a second; dropped (numbers that are missing): {drops}"
    if 0 < found.undivided < found.frames:
        yield (
            f"{about}: in {found.undivided:,} of {counted(found.frames, 'frame')} a call has no records and counts as a"
            " whole: parts of calls (NPU, CPU, waits for a model) are those of the rest"
        )
    if found.lost:
        yield f"{about}: {found.lost:,} more numbers are missing where marks were lost: nobody knows if they ran"


def _times(figures: DurationFigures, unknown: str = "N/A") -> str:
    if figures.median is None:
        return unknown
    named = {"median": figures.median, "p95": figures.p95, "p99": figures.p99, "max": figures.max}
    return ", ".join(f"{name} {value:,.3f}" for name, value in named.items()) + " us"
