"""Times of frames and of their parts as columns, gathered from pages of frames; pure."""

from __future__ import annotations

from array import array
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from profagent.store.frames import Frame


class PartName(NamedTuple):
    """Name of a part of frames; a stage and a wait may have the same."""

    name: str
    is_wait: bool


class _Column:
    """Times of one part: the frames that have it, and how long it took in each, in µs."""

    def __init__(self) -> None:
        self.frames, self.us = array("q"), array("d")


class FrameTimes:
    """Times of frames in µs, in the order in which they were added; some twenty bytes a part."""

    def __init__(self) -> None:
        self._us, self._age_us, self._process = array("d"), array("d"), array("q")
        self._missing, self._lost, self._undivided = array("q"), array("q"), array("q")
        self._parts: dict[PartName, _Column] = defaultdict(_Column)
        # Of each stream of a process: number of frames, first and last end in ns.
        self._streams: dict[tuple[int, int], tuple[int, int, int]] = {}

    def add(self, frames: Iterable[Frame]) -> None:
        """Add the frames of a page."""
        for frame in frames:
            number = len(self._us)
            age_us = frame.age_us
            self._us.append(frame.us if frame.parts else np.nan)
            self._age_us.append(np.nan if age_us is None else age_us)
            self._process.append(frame.process)
            self._missing.append(frame.missing)
            self._lost.append(frame.lost)
            self._undivided.append(frame.undivided)
            for key, us in frame.times().items():
                column = self._parts[PartName(*key)]
                column.frames.append(number)
                column.us.append(us)
            stream = (frame.process, frame.stream)
            count, first, last = self._streams.get(stream, (0, frame.end_ns, frame.end_ns))
            self._streams[stream] = count + 1, min(first, frame.end_ns), max(last, frame.end_ns)

    def __len__(self) -> int:
        return len(self._us)

    @property
    def us(self) -> NDArray[np.float64]:
        """Latency of each frame in µs; NaN for one that is known by a single mark."""
        return np.array(self._us)

    @property
    def age_us(self) -> NDArray[np.float64]:
        """Age of each frame at its end in µs; NaN where its capture is not known."""
        return np.array(self._age_us)

    @property
    def process(self) -> NDArray[np.int64]:
        """Process of each frame."""
        return np.array(self._process)

    @property
    def missing(self) -> NDArray[np.int64]:
        """How many numbers the program left out before each frame."""
        return np.array(self._missing)

    @property
    def lost(self) -> NDArray[np.int64]:
        """How many numbers before each frame are not here while marks were lost."""
        return np.array(self._lost)

    @property
    def undivided(self) -> NDArray[np.int64]:
        """How many calls of each frame have no records."""
        return np.array(self._undivided)

    def part_names(self) -> list[PartName]:
        """Return the names of all parts, in the order in which they came first."""
        return [*self._parts]

    def part_us(self, part: PartName) -> NDArray[np.float64]:
        """Return how long a part took in the frames that have it, in µs."""
        return np.array(self._parts[part].us)

    def matrix(self) -> NDArray[np.float64]:
        """Return the times of all parts in µs, shape (frames, parts) as `part_names`; 0 where a frame has none."""
        found = np.zeros((len(self), len(self._parts)))
        for place, column in enumerate(self._parts.values()):
            found[np.array(column.frames), place] = column.us
        return found

    def per_second(self, process: int | None = None) -> float | None:
        """Return how many frames of a process, or of all, ended in a second; None where that is not known.

        Streams of a process follow each other, or are threads: the time is that in which any of them ran.
        """
        rates = defaultdict(list)
        for (of_process, _), (count, first, last) in self._streams.items():
            if count > 1 and last > first and process in (None, of_process):
                rates[of_process].append((first, last, count - 1))
        if not rates:
            return None
        return sum(_rate(streams) for streams in rates.values())


def _rate(streams: list[tuple[int, int, int]]) -> float:
    busy, until = 0, 0
    for first, last, _ in sorted(streams):
        busy += max(last - max(first, until), 0)
        until = max(until, last)
    return sum(count for *_, count in streams) / busy * 1e9
