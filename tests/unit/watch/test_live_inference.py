"""An inference while it is open: its figures, as far as they are known."""

from __future__ import annotations

import pytest

from profagent.formats.board_files import Done
from profagent.formats.figure_states import FigureState, Verdict
from profagent.formats.names import LogKind, LogName, parse_log_name
from profagent.watch.live_inference import LiveRecord, OpenInference, model_fields, rounded

FINAL = Verdict(FigureState.FINAL)


def _name(path: str = "data/aicore.0.m.3.0.1.6.12") -> LogName:
    name = parse_log_name(path)
    assert name is not None
    return name


def _inference(*durations: float, unit: LogKind = LogKind.AICORE) -> OpenInference:
    """Records of so many ticks, or µs on the CPU."""
    records = [LiveRecord(unit, 0, number, -1, duration, {}) for number, duration in enumerate(durations)]
    done = Done(file_len=512, start_us=5, end_us=9, cache_hit=1, cache_miss=1)
    return OpenInference(_name(), 0.0, records, done=done)


def test_figures_that_are_final_are_told() -> None:
    fields = _inference(700, 1400).fields(FINAL, 0.5, None)
    assert (fields["figures"], fields["why"]) == ("final", None)
    assert (fields["start_us"], fields["end_us"], fields["total_us"], fields["records"]) == (5, 9, 1050.0, 2)


@pytest.mark.parametrize("state", [FigureState.PENDING, FigureState.PARTIAL])
def test_figures_that_are_not_final_are_null_and_say_why(state: FigureState) -> None:
    fields = _inference(700, 1400).fields(Verdict(state, "because"), 0.5, None)
    assert (fields["figures"], fields["why"]) == (state.value, "because")
    assert [fields[name] for name in ("start_us", "end_us", "total_us", "aicpu_us")] == [None] * 4
    assert (fields["slowest"], fields["records"], fields["current_pic_count"]) == ([], 2, 12)


def test_what_ran_on_the_cpu_alone_is_timed_without_the_npu_s_clock() -> None:
    fields = _inference(40.0, 2.0, unit=LogKind.AICPU).fields(FINAL, None, None)
    assert (fields["total_us"], fields["aicpu_us"], fields["records"], fields["slowest"]) == (42.0, 42.0, 0, [])


def test_a_time_of_0_is_not_known() -> None:
    inference = _inference(700)
    inference.done = Done(file_len=256, start_us=0, end_us=0, cache_hit=1, cache_miss=1)
    fields = inference.fields(FINAL, 0.5, None)
    assert (fields["start_us"], fields["end_us"], fields["total_us"]) == (None, None, 350.0)


def test_the_three_slowest_layers_come_slowest_first() -> None:
    slowest = _inference(*range(5)).fields(FINAL, 0.5, None)["slowest"]
    assert [layer["duration_us"] for layer in slowest] == [2.0, 1.5, 1.0]
    assert slowest[0]["share"] == 0.4


def test_records_of_a_unit_that_come_anew_leave_the_others() -> None:
    inference = _inference(700)
    inference.records += _inference(40.0, unit=LogKind.AICPU).records
    inference.drop_unit(LogKind.AICORE)
    assert [record.unit for record in inference.records] == [LogKind.AICPU]


def test_fields_of_a_name() -> None:
    assert model_fields(_name()) == {
        "model": "m",
        "model_id": 0,
        "device_id": 0,
        "stream_id": 3,
        "batch_num": 1,
        "input_pic_num": 6,
        "current_pic_count": 12,
    }


def test_a_figure_that_is_no_number_is_not_known() -> None:
    assert rounded(float("nan")) is None
    assert rounded(None) is None
    assert rounded(1.23456) == 1.235
