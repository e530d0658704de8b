"""Frames while their program runs: marks come as spans end, and a frame is complete when nothing more comes."""

from __future__ import annotations

from profagent.ingest.source import Marked
from profagent.store.live_frames import DELAY_NS, LiveFrames

MS = 1_000_000


def _frame(number: int, at: int) -> list[Marked]:
    """The stages of a frame in the order of their ends; `stage` lies in `whole`."""
    times = (("stage", 10, 20), ("whole", 0, 30), ("post", 40, 50))
    return [
        Marked(1, 1, 0, False, name, at + begin * MS, at + end * MS, 3 * number + place, number)
        for place, (name, begin, end) in enumerate(times)
    ]


def test_a_frame_is_told_once_and_whole() -> None:
    live = LiveFrames()
    found = [frame for number in (1, 2, 3, 6, 7, 8, 9) for frame in live.take(_frame(number, number * DELAY_NS // 2))]
    assert [(frame.number, frame.us, frame.missing) for frame in found] == [
        *((number, 50_000, 2 * (number == 6)) for number in (1, 2, 3))
    ]
    (frame, _) = live.take(_frame(12, 6 * DELAY_NS))
    assert (frame.number, frame.missing) == (6, 2)
    assert [(part.name, part.us) for part in frame.parts] == [
        *(("whole", 30_000), ("wait before post", 10_000), ("post", 10_000))
    ]
