"""Frames: marks, calls and segments joined by number or by order, and cut into parts that sum to the frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from profagent.ingest.source import Marked
from profagent.store.frames import Frame, FrameJoin, JoinedBy, lost_numbers
from profagent.store.npu_work import ExecuteCalls, NpuWork, WorkSegments

US = 1000
MODELS = {1: "yolo", 2: "resnet", 3: "yolo"}
# Of a call: begin, end, process, thread, model. Of a segment: begin, end, model, call, inference. Times are µs.
Call = tuple[int, int, int, int, int]
Segment = tuple[int, int, int, int, int]


def work(calls: Sequence[Call] = (), segments: Sequence[Segment] = (), cpu: frozenset[int] = frozenset()) -> NpuWork:
    """The calls by their ends, the segments by their starts; the segments at the places `cpu` are of the CPU."""
    begin, end, process, thread, model = np.array(calls, np.int64).reshape(-1, 5).T
    of_calls = ExecuteCalls(begin * US, end * US, process, thread, model)
    start, stop, of_model, call, inference = np.array(segments, np.int64).reshape(-1, 5).T
    is_cpu = np.array([place in cpu for place in range(len(segments))], np.bool_)
    return NpuWork(of_calls, WorkSegments(start * US, stop * US, is_cpu, of_model, call * 0, call, inference), MODELS)


def span(name: str, begin: int, end: int, frame: int | None = None, **values: Any) -> Marked:
    fields = {"process": 1, "thread": 1, "lane": 0, "is_mark": False, **values}
    return Marked(name=name, begin_ns=begin * US, end_ns=end * US, frame=frame, **fields)


def joined(
    marks: Sequence[Marked], of: NpuWork | None = None, by: JoinedBy = "number", lost: Sequence[tuple[int, int]] = ()
) -> list[Frame]:
    join = FrameJoin(of or work(), by, {1: lost})
    ordered = sorted(marks, key=lambda each: (each.begin_ns, -each.end_ns))
    return [*(frame for mark in ordered for frame in join.take(mark)), *join.end()]


def parts(frame: Frame) -> list[tuple[str, float]]:
    return [(part.name, part.us) for part in frame.parts]


def test_a_frame_is_its_stages_and_what_it_waits_for() -> None:
    # In the call the other model had the NPU until 280, then its own segment ran, then one on the CPU.
    calls = [(200, 500, 1, 1, 1), (150, 290, 9, 9, 2)][::-1]
    segments = [(160, 280, 2, 0, 70), (285, 400, 1, 1, 71), (400, 450, 1, 1, 71)]
    of = work(calls, segments, frozenset({2}))
    marks = [span("pre", 0, 100, 7), span("infer", 190, 510, 7), span("post", 600, 650, 7), span("resize", 10, 50, 7)]
    (frame,) = joined(marks, of)
    assert (frame.process, frame.number, frame.us, frame.inferences) == (1, 7, 650, (71,))
    assert parts(frame) == [
        ("pre", 100),
        ("wait before infer", 90),
        ("infer", 10),
        ("wait for resnet", 80),
        ("call yolo", 5),
        ("NPU yolo", 115),
        ("CPU yolo", 50),
        ("call yolo", 50),
        ("infer", 10),
        ("wait before post", 90),
        ("post", 50),
    ]
    assert frame.times()["infer", False] == 20
    assert frame.times()["wait for resnet", True] == 80
    # Once its own segments have begun, the other call waits for nobody.
    (waited,) = of.contention()
    assert waited == ("yolo", 1, "resnet", 9, 1, 1, 80, 300)


def test_two_processes_with_one_model_are_told_apart() -> None:
    of = work([(0, 100, 1, 1, 1), (0, 200, 9, 9, 3)], [(10, 90, 1, 0, 1), (90, 190, 3, 1, 2)])
    frames = joined([span("infer", 0, 100, 1), span("infer", 0, 200, 1, process=9, thread=9)], of)
    assert [name for name, _ in parts(frames[0])] == [
        "call yolo",
        "wait for yolo of another process",
        "NPU yolo",
        "call yolo",
    ]


def test_a_call_that_works_on_the_cpu_does_not_wait() -> None:
    segments = [(0, 50, 1, 0, 1), (40, 100, 2, 1, 2), (50, 80, 1, 0, 1), (100, 120, 1, 0, 1)]
    of = work([(0, 130, 1, 1, 1), (40, 130, 1, 2, 2)], segments, frozenset({2}))
    assert [(row.model, row.for_model, row.waited_us) for row in of.contention()] == [("yolo", "resnet", 20)]


def test_the_latest_begun_stage_has_the_time() -> None:
    # Two threads work at the same frame; a span around a whole frame is none of its stages.
    (frame,) = joined([span("left", 0, 100, 1), span("right", 40, 60, 1, thread=2)])
    assert parts(frame) == [("left", 40), ("right", 20), ("left", 40)]
    (frame,) = joined([span("frame", 0, 100, 1), span("pre", 10, 40), span("post", 40, 90)])
    assert parts(frame) == [("frame", 10), ("pre", 30), ("post", 50), ("frame", 10)]


def test_calls_of_an_executor_belong_to_the_span_that_waits_for_them() -> None:
    # Two tasks of one thread wait for calls in a thread of their own: each span ends right after its call.
    marks = [span("infer", 0, 110, 1, lane=5), span("infer", 5, 210, 2, lane=6)]
    frames = joined(marks, work([(10, 100, 1, 8, 1), (100, 200, 1, 8, 1)], [(20, 90, 1, 0, 1), (110, 190, 1, 1, 2)]))
    assert [frame.inferences for frame in frames] == [(1,), (2,)]
    # A task whose span ends in the same instant began before, so that it is none that made the call.
    marks = [span("pre", 0, 100, 2, lane=6), span("infer", 10, 100, 1, lane=5)]
    frames = joined(marks, work([(10, 100, 1, 1, 1)], [(20, 90, 1, 0, 1)]))
    assert [frame.inferences for frame in frames] == [(1,), ()]


def test_a_call_in_no_span_belongs_to_the_frame_around_it() -> None:
    (frame,) = joined([span("pre", 0, 50, 1), span("post", 200, 250, 1)], work([(60, 190, 1, 1, 1)]))
    assert parts(frame) == [
        ("pre", 50),
        ("wait before call yolo", 10),
        ("call yolo", 130),
        ("wait before post", 10),
        ("post", 50),
    ]


def test_age_is_known_where_the_program_tells_the_capture() -> None:
    captured = span("captured", 5, 5, 1, is_mark=True)
    assert [frame.age_us for frame in joined([captured, span("pre", 20, 50, 1)])] == [45]
    assert [frame.us for frame in joined([captured, span("pre", 20, 50, 1)])] == [30]
    told = span("pre", 20, 50, 1, captured_ns=10 * US)
    # A mark within the frame is no capture, and a time of another clock is none either.
    unknown = [
        span("pre", 20, 50, 2),
        span("seen", 30, 30, 2, is_mark=True),
        span("pre", 5_000_000_000, 5_000_000_001, 3, captured_ns=0),
    ]
    assert [frame.age_us for frame in joined([told, *unknown])] == [40, None, None]


def test_missing_numbers_are_drops_unless_marks_were_lost() -> None:
    marks = [span("pre", 10 * n, 10 * n + 5, n, number=n) for n in (1, 2, 5, 6, 9, 3)]
    assert [(frame.number, frame.missing, frame.lost) for frame in joined(marks)] == [
        *((1, 0, 0), (2, 0, 0), (3, 0, 0), (5, 1, 0), (6, 0, 0), (9, 2, 0))
    ]
    assert sum(frame.lost for frame in joined(marks, lost=[(6, 9)])) == 2
    assert lost_numbers([(1, 0, 0, 6, 0, 0), (1, 0, 9, 9, 0, 2)]) == {1: [(6, 9)]}


def test_numbers_that_begin_anew_are_no_drops() -> None:
    marks = [
        span(name, 100 * at + 10 * n + begin, 100 * at + 10 * n + begin + 15, n)
        for at in (0, 1)
        for n in range(9)
        for name, begin in (("pre", 0), ("post", 15))
    ]
    frames = joined(marks)
    assert [(frame.stream, frame.number) for frame in frames] == [(at, n) for at in (0, 1) for n in range(9)]
    assert {(frame.us, frame.missing) for frame in frames} == {(30, 0)}


def test_without_numbers_the_stages_of_a_thread_are_joined_by_order() -> None:
    marks = [
        span(name, 100 * n + begin, 100 * n + begin + 20)
        for n in range(3)
        for name, begin in (("pre", 0), ("post", 30))
    ]
    frames = joined([*marks, span("resize", 5, 10), span("pre", 0, 40, thread=2)], by="spans")
    assert [(frame.stream, frame.number, parts(frame)) for frame in frames] == [
        *((1, n, [("pre", 20), ("wait before post", 10), ("post", 20)]) for n in (1, 2, 3)),
        (2, 1, [("pre", 40)]),
    ]


TIMES = st.integers(0, 300)
MARKS = st.builds(
    lambda name, begin, us, frame, thread, lane, is_mark: span(
        name, begin, begin if is_mark else begin + us, frame, thread=thread, lane=lane, is_mark=is_mark
    ),
    *(st.sampled_from("abc"), TIMES, st.integers(0, 80), st.none() | st.integers(0, 4)),
    *(st.integers(1, 2), st.integers(0, 1), st.booleans()),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(MARKS, max_size=14),
    st.lists(st.tuples(TIMES, st.integers(1, 60), st.integers(1, 2), st.integers(1, 3)), max_size=5),
    st.lists(st.tuples(TIMES, st.integers(1, 60), st.integers(1, 3), st.integers(-1, 4)), max_size=6),
    st.sampled_from(["number", "spans"]),
)
def test_parts_sum_to_their_frame_exactly(
    marks: list[Marked], calls: list[tuple[int, ...]], segments: list[tuple[int, ...]], by: JoinedBy
) -> None:
    ended = sorted((begin + us, begin, thread, model) for begin, us, thread, model in calls)
    of = work(
        [(begin, end, 1, thread, model) for end, begin, thread, model in ended],
        [(begin, begin + us, model, min(call, len(calls) - 1), 1) for begin, us, model, call in sorted(segments)],
    )
    frames = joined(marks, of, by)
    for frame in frames:
        bounds = [frame.begin_ns, *(part.end_ns for part in frame.parts)]
        assert [part.begin_ns for part in frame.parts] == bounds[:-1]
        assert bounds[-1] == frame.end_ns
        assert all(part.begin_ns < part.end_ns for part in frame.parts)
    taken = [mark for mark in marks if (mark.frame is not None if by == "number" else not mark.is_mark)]
    assert bool(frames) >= bool(taken)
