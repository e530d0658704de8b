"""Frames of a program while it runs: joined by number, from marks in the order in which they come."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING

from profagent.limits import FRAME_DELAY_S, MOST_WAITING_MARKS
from profagent.store.frames import FrameJoin
from profagent.store.npu_work import no_work

if TYPE_CHECKING:
    from collections.abc import Iterable

    from profagent.ingest.source import Marked
    from profagent.store.frames import Frame

DELAY_NS = round(FRAME_DELAY_S * 1e9)


class LiveFrames:
    """Join of marks that come as spans end. Calls and segments come later, so that parts are spans and waits alone.

    A frame is complete when nothing of it came for FRAME_DELAY_S, by the newest mark.
    """

    def __init__(self) -> None:
        self._join = FrameJoin(no_work(), "number")
        # Marks by their begins, until all that began before have come.
        self._waiting: list[tuple[int, int, int, Marked]] = []
        self._taken = count()
        self._newest_ns = 0

    @property
    def complete_ns(self) -> int:
        """Time before which all frames that ended are complete, by the marks' clock; 0 while no mark came."""
        return max(0, self._newest_ns - 2 * DELAY_NS)

    def take(self, marks: Iterable[Marked]) -> list[Frame]:
        """Add marks of frames, and return the frames that are complete, in the order of their numbers."""
        for mark in marks:
            heapq.heappush(self._waiting, (mark.begin_ns, -mark.end_ns, next(self._taken), mark))
            self._newest_ns = max(self._newest_ns, mark.end_ns)
        # A span is written when it ends, so that an enclosing one comes last, but is to be joined first.
        released_ns = self._newest_ns - DELAY_NS
        found: list[Frame] = []
        while self._waiting and (self._waiting[0][0] <= released_ns or len(self._waiting) > MOST_WAITING_MARKS):
            found += self._join.take(heapq.heappop(self._waiting)[-1])
        # All marks up to `released_ns` are joined: a frame that ended as long before it waits for no further stage.
        return [*found, *self._join.settle(released_ns - DELAY_NS)]

    def end(self) -> list[Frame]:
        """Return the frames that are left; nothing more of them comes."""
        found = [frame for *_, mark in sorted(self._waiting) for frame in self._join.take(mark)]
        self._waiting.clear()
        return [*found, *self._join.end()]
