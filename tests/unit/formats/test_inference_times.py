"""Latency, layers and shares, by columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from profagent.formats.inference_times import (
    UNUSED,
    Calls,
    InferencePace,
    LatencyFrom,
    Parts,
    Spans,
    completed,
    latency_of,
    layer_times,
    pace_of,
    record_counts,
    recorded_text,
    time_in_inference,
    whole_spans,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAN = float("nan")
LOAD, EXECUTE, ASYNC, SYNCHRONIZE, AICPU = 0, 2, 3, 4, 5


def _spans(*pairs: tuple[float, float]) -> Spans:
    begin, end = np.array(pairs, np.float64).reshape(-1, 2).T
    return Spans(begin, end)


def _calls(*rows: tuple[int, int, int]) -> Calls:
    api, begin, end = np.array(rows, np.uint64).reshape(-1, 3).T
    return Calls(api.astype(np.uint32), begin, end)


def _of(calls: Calls, *pairs: tuple[float, float]) -> list[tuple[float, float]]:
    found = calls.spans(_spans(*pairs))
    return list(zip(found.begin_us.tolist(), found.end_us.tolist(), strict=True))


NONE = pytest.approx((NAN, NAN), nan_ok=True)


def test_records_last_from_the_first_begin_to_the_last_end_on_both_processors() -> None:
    npu = _spans((10, 20), (30, 35), UNUSED, (50, 60), UNUSED)
    cpu = _spans((20, 29), UNUSED, (40, 47), (NAN, NAN), UNUSED)
    whole = whole_spans([npu, cpu])
    assert whole.us.tolist() == pytest.approx([19, 5, 7, NAN, NAN], nan_ok=True)
    # What ran on no processor has no call.
    assert np.isnan(_calls((EXECUTE, 5, 100)).spans(whole).begin_us).tolist() == [False] * 3 + [True] * 2


def test_a_clock_that_was_set_back_between_begin_and_end_gives_no_time() -> None:
    assert np.isnan(_spans((20, 10)).us).all()


def test_an_inference_has_the_execute_call_that_contains_it() -> None:
    calls = _calls((LOAD, 1, 1000), (EXECUTE, 100, 200), (EXECUTE, 210, 300), (AICPU, 120, 130))
    assert _of(calls, (110, 190), (210, 300), (205, 250), (NAN, NAN)) == [(100, 200), (210, 300), NONE, NONE]
    assert _of(_calls(), (110, 190)) == [NONE]


def test_of_the_calls_of_several_threads_it_is_the_one_that_returned_first() -> None:
    # Each waits for the one before it; one that failed at once lies behind the first inference.
    calls = _calls((EXECUTE, 10, 20), (EXECUTE, 12, 40), (EXECUTE, 13, 60), (EXECUTE, 19, 20))
    assert _of(calls, (11, 18), (20, 39), (40, 59)) == [(10, 20), (12, 40), (13, 60)]


def test_a_call_that_began_before_profiling_is_no_inferences() -> None:
    assert _of(_calls((EXECUTE, 0, 200)), (110, 190)) == [NONE]


def test_an_asynchronous_call_lasts_until_the_synchronize_that_waited_for_the_inference() -> None:
    calls = _calls((ASYNC, 100, 101), (SYNCHRONIZE, 150, 200), (ASYNC, 300, 301), (SYNCHRONIZE, 301, 400))
    assert _of(calls, (110, 190), (310, 399), (450, 460)) == [(100, 200), (300, 400), NONE]
    assert _of(_calls((ASYNC, 100, 101)), (110, 190)) == [NONE]


def test_of_several_asynchronous_calls_that_wait_nobody_knows_which_it_is() -> None:
    calls = _calls((ASYNC, 100, 101), (ASYNC, 102, 103), (SYNCHRONIZE, 104, 200))
    assert _of(calls, (110, 150), (150, 199)) == [NONE, NONE]


def _latency(whole: Spans, calls: Spans) -> tuple[Any, LatencyFrom | None]:
    found = latency_of(whole, calls)
    return found.us.tolist(), found.origin


def test_latencies_that_are_compared_are_of_one_origin() -> None:
    whole = _spans((10, 20), (30, 40), (50, 60))
    most = _spans((8, 21), (NAN, NAN), (49, 61))
    few = _spans((8, 21), (NAN, NAN), (NAN, NAN))
    assert _latency(whole, most) == (pytest.approx([13, NAN, 12], nan_ok=True), LatencyFrom.CALL)
    assert _latency(whole, few) == ([10, 10, 10], LatencyFrom.RECORDS)
    assert _latency(_spans((NAN, NAN)), _spans((NAN, NAN))) == (pytest.approx([NAN], nan_ok=True), None)


def test_the_pace_counts_inferences_that_were_not_sampled() -> None:
    # Two loads: every second inference is sampled, at 100 us each, of which the inference takes 60.
    begins = np.array([0.0, 200.0, 400.0])
    load = (Spans(begins, begins + 60), np.array([0, 2, 4]))
    later = (Spans(begins[:2] + 10_000, begins[:2] + 10_060), np.array([0, 2]))
    assert pace_of([load, later]) == pytest.approx(InferencePace(10_000.0, 40.0))
    assert pace_of([(Spans(begins[:1], begins[:1] + 60), np.array([0]))]) == InferencePace(None, None)


def _times() -> NDArray[np.float64]:
    """Two layers in three inferences; the second has no record in the last, and two in the first."""
    inference, layer = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 1, 0, 1, 0])
    counts = record_counts(inference, layer, (3, 2))
    return layer_times(inference, layer, np.array([4.0, 1.0, 1.0, 6.0, 4.0, 8.0]), counts)


def test_records_of_one_layer_in_an_inference_are_added_up() -> None:
    assert _times() == pytest.approx(np.array([[4, 2], [6, 4], [8, NAN]]), nan_ok=True)


def test_an_inference_that_lacks_a_record_is_not_faster() -> None:
    assert completed(_times()).tolist() == [[4, 2], [6, 4], [8, 3]]
    assert time_in_inference(np.array([18.0, 6.0]), np.array([3, 2]), 3).tolist() == [6.0, 3.0]


def test_a_layer_that_few_inferences_run_takes_the_others_no_time() -> None:
    assert completed(np.array([[9.0], [NAN], [NAN]])).tolist() == [[9], [0], [0]]
    assert time_in_inference(np.array([9.0, 0.0]), np.array([1, 0]), 3).tolist() == [3.0, 0.0]


def test_the_parts_of_an_inference_sum_to_its_latency() -> None:
    parts = Parts(9.0, 12.0)
    assert (parts.rest_us, parts.is_too_much) == (3.0, False)
    assert [parts.share(us) for us in (6.0, 3.0, 3.0)] == [50.0, 25.0, 25.0]


def test_layers_that_take_more_than_the_latency_leave_no_rest() -> None:
    assert (Parts(16.0, 12.0).rest_us, Parts(16.0, 12.0).is_too_much) == (None, True)
    # The ends of a span are whole microseconds.
    assert (Parts(12.5, 12.0).rest_us, Parts(12.5, 12.0).is_too_much) == (0.0, False)


def test_without_latency_the_layers_are_the_whole() -> None:
    parts = Parts(8.0, None)
    assert (parts.rest_us, parts.is_too_much, parts.share(2.0)) == (None, False, 25.0)
    assert Parts(0.0, None).share(0.0) is None


def test_how_many_layers_were_recorded_is_said_beside_how_many_there_are() -> None:
    assert recorded_text(83, 88) == "83 of 88 layers recorded"
    assert recorded_text(None, None) == "how many of its layers were recorded is not known"
