"""Frames as objectives judge them: their latencies, stages and rate, of each process that has frames."""

from __future__ import annotations

from array import array
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from profagent.store.frame_times import FrameTimes
from profagent.tables.slo import NOTHING, JudgedSeries
from profagent.units import NS_PER_US

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from numpy.typing import NDArray

    from profagent.store.frames import Frame, JoinedBy
    from profagent.tables.slo import Objective

_UNDIVIDED = "a flight recorder thinned inferences, and without their records calls have no parts"


class FrameSeries:
    """JudgedSeries of frames, which are added in pages."""

    def __init__(self, joined_by: JoinedBy = "number", of_calls: Collection[str] = ()) -> None:
        """Set how frames are joined.

        `of_calls` are the names of parts that are known of some frames only, after a flight recorder: they are judged
        by no objective, and the guilty part is that of the frames whose calls are divided.
        """
        self._joined_by, self._of_calls = joined_by, of_calls
        self._times = FrameTimes()
        # Ends of the frames in ns. Threads whose frames are joined by order run side by side: they have one rate.
        self._ends: dict[tuple[int, int], array[int]] = defaultdict(lambda: array("q"))

    def add(self, frames: Iterable[Frame]) -> None:
        """Add frames."""
        known = [frame for frame in frames if frame.parts]
        self._times.add(known)
        for frame in known:
            self._ends[frame.process, frame.stream if self._joined_by == "number" else 0].append(frame.end_ns)

    def of(self, objective: Objective) -> Iterator[JudgedSeries]:
        """Yield the series of frames, or of their stages, that an objective is about, each with its parts."""
        of_process, matrix, us = self._times.process, self._times.matrix(), self._times.us
        parts = self._times.part_names()
        names = [part.name for part in parts]
        why = "" if self._joined_by == "number" else f"frames are joined by the order of {self._joined_by}"
        processes = np.unique(of_process).tolist()
        for process in processes:
            ours, about = of_process == process, f"process {process}" if len(processes) > 1 else ""
            if objective.subject == "frame":
                whole = ours & ((self._times.undivided == 0) | (not self._of_calls))
                of_frames = np.concatenate([us[whole], us[ours & ~whole]])
                yield JudgedSeries(about, of_frames, *self._steps(process), names, matrix[whole], why)
                continue
            for place, part in enumerate(parts):
                if objective.name == part.name or (objective.name is None and not part.is_wait):
                    times = matrix[ours, place]
                    of = f"{part.name}, {about}" if about else part.name
                    if part.name in self._of_calls:
                        yield JudgedSeries(of, NOTHING, why=_UNDIVIDED)
                        continue
                    yield JudgedSeries(of, np.where(times > 0, times, np.nan), why=why)

    def _steps(self, process: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        ends = [np.diff(np.sort(np.array(found))) for (of, _), found in self._ends.items() if of == process]
        step_us = np.concatenate(ends) / NS_PER_US
        step_us = step_us[step_us > 0]
        return step_us, np.ones(len(step_us))
