"""Segments are placed one behind the other; what the board measured itself is kept."""

from __future__ import annotations

from profagent.formats.segments import AicoreSegment, AicpuSegment, place


def test_the_first_segment_starts_with_the_inference() -> None:
    assert place(1000, [AicoreSegment(0, 0, 50.5)], []) == [1000]


def test_a_segment_starts_where_the_one_before_it_ended() -> None:
    assert place(1000, [AicoreSegment(0, 0, 50.5), AicoreSegment(1, 1, 10.0), AicoreSegment(2, 2, 1.0)], []) == [
        1000,
        1050.5,
        1060.5,
    ]


def test_an_aicpu_segment_between_keeps_its_times() -> None:
    aicore = [AicoreSegment(0, 0, 50.5), AicoreSegment(2, 1, 10.0)]
    assert place(1000, aicore, [AicpuSegment(1, 0, 1100, 1200)]) == [1000, 1200]


def test_segments_run_in_the_order_of_their_nets() -> None:
    aicore = [AicoreSegment(2, 1, 10.0), AicoreSegment(0, 0, 50.0), AicoreSegment(0, 2, 5.0)]
    assert place(1000, aicore, []) == [1055, 1000, 1050]


def test_the_inference_starts_with_its_first_aicore_segment() -> None:
    aicore = [AicoreSegment(1, 0, 10.0), AicoreSegment(2, 1, 10.0)]
    assert place(1000, aicore, [AicpuSegment(0, 0, 900, 990)]) == [1000, 1010]


def test_without_a_start_only_what_follows_a_known_end_is_placed() -> None:
    aicore = [AicoreSegment(0, 0, 50.0), AicoreSegment(2, 1, 10.0), AicoreSegment(3, 2, 10.0)]
    assert place(None, aicore, []) == [None, None, None]
    assert place(None, aicore, [AicpuSegment(1, 0, 1100, 1200)]) == [None, 1200, 1210]


def test_nothing_is_clamped_to_the_inference() -> None:
    assert place(0, [AicoreSegment(0, 0, 1e12), AicoreSegment(1, 1, 1.0)], []) == [0, 1e12]


def test_no_segments_have_no_starts() -> None:
    assert place(1000, [], [AicpuSegment(0, 0, 1, 2)]) == []
