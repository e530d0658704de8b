"""Frames of programs as slices of a trace: each frame, and its stages and waits within it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.export.blocks import Label, Labels, Slices, args_text, integers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from profagent.export.blocks import TraceClock
    from profagent.export.tracks import Tracks
    from profagent.store.frames import Frame


def frame_slices(
    frames: Sequence[Frame],
    time_ns: tuple[int, int],
    process: Callable[[str], str],
    clock: TraceClock,
    tracks: Tracks,
) -> Slices:
    """Return the slices of frames that are in the order of their begins; of their parts those that touch the time.

    `time_ns` is the first and the last ns of that, by the board's clock. Frames that overlap lie on tracks of their
    own; `process` makes the title of a process.
    """
    labels = Labels()
    rows: list[tuple[int, int, int, int]] = []
    for place, frame in enumerate(frames):
        begin, end = _ns(clock, frame.begin_ns), _ns(clock, frame.end_ns)
        # Each is a lane of its own: a short frame within a long one is no part of that.
        track = tracks.take(process(f"process {frame.process}"), "frames", begin, end, place + 1)
        rows.append((labels.of(_label(frame)), track, begin, end))
        for part in (each for each in frame.parts if each.end_ns >= time_ns[0] and each.begin_ns <= time_ns[1]):
            of_part = labels.of(Label(part.name, "wait" if part.is_wait else "stage"))
            rows.append((of_part, track, _ns(clock, part.begin_ns), _ns(clock, part.end_ns)))
    rows.sort(key=lambda row: (row[2], -row[3]))
    label, of_track, starts, ends = (integers(column) for column in zip(*rows, strict=True))
    return Slices(labels.all, label, of_track, starts, ends)


def _label(frame: Frame) -> Label:
    told = {"age_us": frame.age_us, "dropped_before": frame.missing or None, "lost_before": frame.lost or None}
    args = {name: value for name, value in told.items() if value is not None}
    return Label(f"frame {frame.number}", "frame", args_text(args))


def _ns(clock: TraceClock, time_ns: int) -> int:
    whole_us, rest_ns = divmod(time_ns, 1000)
    return clock.ns(whole_us) + rest_ns
