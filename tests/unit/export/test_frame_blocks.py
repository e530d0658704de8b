"""Frames in a trace: a slice for each, its parts within it, and frames that overlap on tracks of their own."""

from __future__ import annotations

from profagent.export.blocks import TraceClock
from profagent.export.frame_blocks import frame_slices
from profagent.export.tracks import Tracks
from profagent.store.frames import Frame, FramePart

US = 1000


def _frame(number: int, begin: int, *parts: tuple[str, int]) -> Frame:
    found, at = [], begin * US
    for name, us in parts:
        found.append(FramePart(name, name.startswith("wait"), at, at + us * US))
        at += us * US
    return Frame(5, 0, number, begin * US, at, tuple(found), captured_ns=(begin - 10) * US, missing=number - 7)


def test_a_frame_is_a_slice_with_its_parts_in_it() -> None:
    frames = [
        _frame(7, 100, ("pre", 20), ("wait before post", 30), ("post", 50), ("later", 50)),
        _frame(8, 110, ("pre", 20)),
    ]
    tracks = Tracks()
    found = frame_slices(frames, (0, 190 * US), lambda what: f"{what} (board)", TraceClock(100), tracks)
    labels = [found.labels[place] for place in found.label.tolist()]
    times = zip(found.start_ns.tolist(), found.end_ns.tolist(), strict=True)
    assert [(label.name, label.category, *each) for label, each in zip(labels, times, strict=True)] == [
        ("frame 7", "frame", 0, 150_000),
        ("pre", "stage", 0, 20_000),
        ("frame 8", "frame", 10_000, 30_000),
        ("pre", "stage", 10_000, 30_000),
        ("wait before post", "wait", 20_000, 50_000),
        ("post", "stage", 50_000, 100_000),
    ]
    assert [label.args for label in labels if label.category == "frame"] == [
        '{"age_us":160.0}',
        '{"age_us":30.0,"dropped_before":1}',
    ]
    first, second = (tracks.names[track] for track in dict.fromkeys(found.track.tolist()))
    assert (first, second) == ("frames", "frames (2)")
