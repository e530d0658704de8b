"""Frames of programs while their marks come. Calls are no parts of them: these may come later than the marks."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from profagent.ingest.marks import MarkKind
from profagent.ingest.source import Marked
from profagent.limits import FRAME_SETTLED_S, OPEN_FRAMES, REMEMBERED_SPANS
from profagent.store.frames import Frame, FrameJoin
from profagent.store.npu_work import ExecuteCalls, NpuWork, WorkSegments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NS_PER_S = 1_000_000_000


def _no_work() -> NpuWork:
    nothing = np.empty(0, np.int64)
    calls = ExecuteCalls(nothing, nothing, nothing, nothing, nothing)
    return NpuWork(calls, WorkSegments(nothing, nothing, nothing > 0, nothing, nothing, nothing, nothing), {})


class LiveFrames:
    """Marks with a frame's number, until FRAME_SETTLED_S have passed without a further one of their frame."""

    def __init__(self) -> None:
        self._work = _no_work()
        # Marks by process and frame, and when the last of them ended.
        self._open: dict[tuple[int, int], list[Marked]] = {}
        self._ended_ns: dict[tuple[int, int], int] = {}
        # Spans without a number: they are of the frame whose span encloses them.
        self._unnumbered: deque[Marked] = deque(maxlen=REMEMBERED_SPANS)
        self.newest_ns = 0

    def take(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Take rows of marks, spans and ranges."""
        for _, kind, text, attributes, process, thread, begin_ns, end_ns, number, lane in rows:
            if kind == MarkKind.STEP.value or end_ns < begin_ns:
                continue
            frame = json.loads(attributes).get("frame") if attributes != "{}" else None
            is_numbered = isinstance(frame, int) and not isinstance(frame, bool)
            is_mark = kind == MarkKind.MARK.value
            marked = Marked(
                process, thread, lane, is_mark, text, begin_ns, end_ns, number, frame if is_numbered else None
            )
            self.newest_ns = max(self.newest_ns, end_ns)
            if marked.frame is None:
                self._unnumbered.append(marked)
                continue
            key = process, marked.frame
            self._open.setdefault(key, []).append(marked)
            self._ended_ns[key] = max(end_ns, self._ended_ns.get(key, 0))

    def settled(self, now_ns: float) -> Iterator[Frame]:
        """Yield the frames of which no further mark is expected, by a time of the board."""
        surplus = len(self._open) - OPEN_FRAMES
        for place, key in enumerate([*self._open]):
            if place < surplus or self._ended_ns[key] < now_ns - FRAME_SETTLED_S * NS_PER_S:
                del self._ended_ns[key]
                yield from self._joined(self._open.pop(key))

    def _joined(self, marks: list[Marked]) -> Iterator[Frame]:
        spans = [each for each in marks if not each.is_mark]
        threads = {each[:3] for each in spans}
        begin_ns = min((each.begin_ns for each in spans), default=0)
        end_ns = max((each.end_ns for each in spans), default=0)
        within = [
            each
            for each in self._unnumbered
            if not each.is_mark and each[:3] in threads and begin_ns <= each.begin_ns and each.end_ns <= end_ns
        ]
        join = FrameJoin(self._work, "number")
        for each in sorted([*marks, *within], key=lambda one: (one.begin_ns, -one.end_ns)):
            yield from join.take(each)
        yield from join.end()
