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
    """Frames, which are added in pages: their `times`, how they were `joined_by`, and JudgedSeries of them."""

    def __init__(self, joined_by: JoinedBy = "number", of_calls: Collection[str] = ()) -> None:
        """Set how frames are joined.

        `of_calls` are the names of parts that are known of some frames only, after a flight recorder: they are judged
        by no objective, and the guilty part is that of the frames whose calls are divided.
        """
        self.joined_by, self._of_calls = joined_by, of_calls
        self.times = FrameTimes()
        # Ends of the frames in ns. Threads whose frames are joined by order run side by side: they have one rate.
        self._ends: dict[tuple[int, int], array[int]] = defaultdict(lambda: array("q"))

    def add(self, frames: Iterable[Frame]) -> None:
        """Add frames."""
        found = [*frames]
        self.times.add(found)
        for frame in found:
            if frame.parts:
                self._ends[frame.process, frame.stream if self.joined_by == "number" else 0].append(frame.end_ns)

    def of(self, objective: Objective) -> Iterator[JudgedSeries]:
        """Yield the series of frames, or of their stages, that an objective is about, each with its parts."""
        is_known = ~np.isnan(self.times.us)
        times = self.times.process, self.times.matrix(), self.times.us, self.times.undivided == 0
        of_process, matrix, us, is_divided = (each[is_known] for each in times)
        parts = self.times.part_names()
        names = [part.name for part in parts]
        why = "" if self.joined_by == "number" else f"frames are joined by the order of {self.joined_by}"
        processes = np.unique(of_process).tolist()
        for process in processes:
            ours, about = of_process == process, f"process {process}" if len(processes) > 1 else ""
            if objective.subject == "frame":
                compared = ours & (is_divided == self._compares_divided(is_divided[ours]))
                of_frames = np.concatenate([us[compared], us[ours & ~compared]])
                yield JudgedSeries(about, of_frames, *self._steps(process), names, matrix[compared], why)
                continue
            for place, part in enumerate(parts):
                if objective.name == part.name or (objective.name is None and not part.is_wait):
                    times = matrix[ours, place]
                    of = f"{part.name}, {about}" if about else part.name
                    if part.name in self._of_calls:
                        yield JudgedSeries(of, NOTHING, why=_UNDIVIDED)
                        continue
                    yield JudgedSeries(of, np.where(times > 0, times, np.nan), why=why)

    def _compares_divided(self, is_divided: NDArray[np.bool_]) -> bool:
        """Return True if the frames whose calls are all divided are compared with each other, not the others.

        The same call has other parts in the others, where its inference was not sampled. The larger group is compared.
        After a flight recorder, frames that are not divided are those that nothing happened in.
        """
        return bool(self._of_calls) or 2 * int(is_divided.sum()) >= len(is_divided)

    def _steps(self, process: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        ends = [np.diff(np.sort(np.array(found))) for (of, _), found in self._ends.items() if of == process]
        step_us = np.concatenate(ends) / NS_PER_US
        step_us = step_us[step_us > 0]
        return step_us, np.ones(len(step_us))
