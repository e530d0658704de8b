"""An inference while it is open: when it is whole, and its figures."""

from __future__ import annotations

from profagent.export.live_inference import Layer, OpenInference, model_fields, rounded
from profagent.formats.done import Done
from profagent.formats.names import LogKind, LogName, parse_log_name


def _name(path: str = "data/aicore.0.m.3.0.1.6.12") -> LogName:
    name = parse_log_name(path)
    assert name is not None
    return name


def _done(file_len: int) -> Done:
    return Done(file_len=file_len, start_us=5, end_us=9, cache_hit=1, cache_miss=1)


def test_an_inference_is_whole_with_its_done_and_as_many_bytes() -> None:
    inference = OpenInference(_name(), layers=[Layer("a", "b", 1.0)] * 2)
    assert not inference.is_whole(with_aicpu=False)
    inference.done = _done(768)
    assert not inference.is_whole(with_aicpu=False)
    inference.done = _done(512)
    assert inference.is_whole(with_aicpu=False)


def test_a_part_that_is_expected_on_the_cpu_is_missing_until_it_comes() -> None:
    inference = OpenInference(_name(), layers=[Layer("a", "b", 1.0)], done=_done(256))
    assert not inference.is_whole(with_aicpu=True)
    inference.of_unit(LogKind.AICPU).append(Layer("c", "d", 2.0))
    assert inference.is_whole(with_aicpu=True)


def test_what_the_board_vouches_for_is_whole_whatever_its_done_announces() -> None:
    inference = OpenInference(_name(), layers=[Layer("a", "b", 1.0)], done=_done(0), is_vouched=True)
    assert inference.is_whole(with_aicpu=True)


def test_times_that_are_not_known_are_left_out_of_the_sum() -> None:
    fields = OpenInference(_name(), layers=[Layer("a", "t", None), Layer("b", "t", 2.0)]).fields()
    assert (fields["total_us"], fields["records"]) == (2.0, 2)
    assert [layer["layer_name"] for layer in fields["slowest"]] == ["b"]
    assert (fields["start_us"], fields["end_us"]) == (None, None)


def test_the_three_slowest_layers_come_slowest_first() -> None:
    layers = [Layer(f"l{number}", "t", float(number)) for number in range(5)]
    slowest = OpenInference(_name(), layers=layers).fields()["slowest"]
    assert [layer["layer_name"] for layer in slowest] == ["l4", "l3", "l2"]
    assert slowest[0]["share"] == 0.4


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
