"""Processes and tracks of a trace: their numbers and names, and which track a slice goes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(slots=True)
class _Track:
    """Tracks of one title: a slice that is not within what its track holds, nor behind it, goes to the next one.

    What a track holds at a time is of one lane.
    """

    pid: int
    title: str
    tids: list[int] = field(default_factory=list)
    open_ends: list[list[int]] = field(default_factory=list)
    lanes: list[int] = field(default_factory=list)


class Tracks:
    """Gives processes and tracks of the trace their numbers, from 1, and keeps their names."""

    def __init__(self) -> None:
        self.process_names: list[str] = [""]
        self.names: list[str] = [""]
        self.pids: list[int] = [0]
        """By a track's number, its process."""
        self._pids: dict[str, int] = {}
        self._tracks: dict[tuple[str, str], _Track] = {}

    def process(self, title: str) -> int:
        """The number of a group of tracks."""
        if title not in self._pids:
            self._pids[title] = len(self.process_names)
            self.process_names.append(title)
        return self._pids[title]

    def first(self, process: str, title: str) -> int:
        """The number of the first track of a title in a group."""
        return self._of(process, title).tids[0]

    def take(self, process: str, title: str, start_ns: int, end_ns: int, lane: int = 0) -> int:
        """The track for a slice; slices come by their start, those that hold others first."""
        track = self._of(process, title)
        places: Sequence[int] = range(len(track.tids))
        for place in sorted(places, key=lambda place: track.lanes[place] != lane) if lane else places:
            ends = track.open_ends[place]
            while ends and ends[-1] <= start_ns:
                ends.pop()
            if not ends or (end_ns <= ends[-1] and lane == track.lanes[place]):
                break
        else:
            self._add(track)
            place = -1
        track.open_ends[place].append(end_ns)
        track.lanes[place] = lane
        return track.tids[place]

    def take_all(
        self,
        process: str,
        title: str,
        start_ns: NDArray[np.int64],
        end_ns: NDArray[np.int64],
        lanes: Sequence[int] | None = None,
    ) -> NDArray[np.int64]:
        """The tracks for many slices of a title, quickly where each ends before the next begins."""
        ends = self._of(process, title).open_ends[0]
        while ends and ends[-1] <= start_ns[0]:
            ends.pop()
        if lanes is None and not ends and (start_ns[1:] >= end_ns[:-1]).all():
            return np.full(len(start_ns), self.take(process, title, int(start_ns[-1]), int(end_ns[-1])))
        slices = zip(start_ns.tolist(), end_ns.tolist(), lanes or repeat(0), strict=False)
        return np.array([self.take(process, title, *each) for each in slices], np.int64)

    def _of(self, process: str, title: str) -> _Track:
        track = self._tracks.get((process, title))
        if track is None:
            track = self._tracks[process, title] = _Track(self.process(process), title)
            self._add(track)
        return track

    def _add(self, track: _Track) -> None:
        track.tids.append(len(self.names))
        track.open_ends.append([])
        track.lanes.append(0)
        self.names.append(track.title if len(track.tids) == 1 else f"{track.title} ({len(track.tids)})")
        self.pids.append(track.pid)
