"""Numbers and names of the processes and tracks of a trace, and the choice of a track for each slice."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(slots=True)
class _TrackGroup:
    """Tracks of one title.

    A slice that neither lies within the open slices of a track nor begins after them goes to the next track. Open
    slices of one track are all of one lane.
    """

    pid: int
    title: str
    tids: list[int] = field(default_factory=list)
    """Number of each track."""
    open_ends: list[list[int]] = field(default_factory=list)
    """Ends in ns of the open slices of each track, the innermost one last."""
    lanes: list[int] = field(default_factory=list)
    """Lane of each track's latest slice."""


class Tracks:
    """Registry of a trace's processes and tracks; both are numbered from 1."""

    def __init__(self) -> None:
        # Number 0 is special to viewers, so the first entry of each list stays empty.
        self.process_names: list[str] = [""]
        self.names: list[str] = [""]
        """Title of each track, by its number."""
        self.pids: list[int] = [0]
        """Process of each track, by the track's number."""
        # Number of each process, by its title.
        self._pids: dict[str, int] = {}
        # Tracks by the titles of their process and their own.
        self._tracks: dict[tuple[str, str], _TrackGroup] = {}

    def process(self, title: str) -> int:
        """Return the number of a process, which is a group of tracks."""
        if title not in self._pids:
            self._pids[title] = len(self.process_names)
            self.process_names.append(title)
        return self._pids[title]

    def first(self, process: str, title: str) -> int:
        """Return the number of the first track of a title in a process."""
        return self._of(process, title).tids[0]

    def take(self, process: str, title: str, start_ns: int, end_ns: int, lane: int = 0) -> int:
        """Return the track for a slice. Slices must come ordered by start, enclosing slices first."""
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
        """Return the tracks for many slices of a title, without a loop where each ends before the next begins."""
        # Slices that ended before the first one cannot enclose any, as starts only rise.
        ends = self._of(process, title).open_ends[0]
        while ends and ends[-1] <= start_ns[0]:
            ends.pop()
        if lanes is None and not ends and (start_ns[1:] >= end_ns[:-1]).all():
            return np.full(len(start_ns), self.take(process, title, int(start_ns[-1]), int(end_ns[-1])))
        slices = zip(start_ns.tolist(), end_ns.tolist(), lanes or repeat(0), strict=False)
        return np.array([self.take(process, title, *each) for each in slices], np.int64)

    def _of(self, process: str, title: str) -> _TrackGroup:
        track = self._tracks.get((process, title))
        if track is None:
            track = self._tracks[process, title] = _TrackGroup(self.process(process), title)
            self._add(track)
        return track

    def _add(self, track: _TrackGroup) -> None:
        track.tids.append(len(self.names))
        track.open_ends.append([])
        track.lanes.append(0)
        self.names.append(track.title if len(track.tids) == 1 else f"{track.title} ({len(track.tids)})")
        self.pids.append(track.pid)
