"""Live events as lines."""

from __future__ import annotations

from typing import Any

import pytest

from profagent.watch.lines import line_of

INFERENCE: dict[str, Any] = {
    "event": "inference",
    "job": "JOBA",
    "model": "yolo",
    "model_id": 2,
    "current_pic_count": 6,
    "start_us": 1_795_230_382_123_456,
    "total_us": 3412.4,
    "records": 83,
    "figures": "final",
    "why": None,
    "slowest": [
        {"layer_name": "conv+relu+mul", "layer_type": "x", "duration_us": 202.0, "share": 0.064},
        {"layer_name": None, "layer_type": None, "duration_us": 100.0, "share": None},
    ],
    "ledger": [{"grade": "note", "reason": "sequence-gap", "count": 2}],
    "sampled": 4,
    "due": 4,
    "simulated": False,
}
RECORD: dict[str, Any] = {
    "event": "record",
    "unit": "aicore",
    "model": "yolo",
    "model_id": 0,
    "current_pic_count": 1,
    "segment": 2,
    "sequence": 5,
    "layer_name": "conv",
    "layer_type": "Convolution",
    "duration_us": 12.5,
    "simulated": False,
}


def test_an_inference_is_one_line() -> None:
    assert line_of(INFERENCE) == (
        "03:06:22.123  yolo.2 inference 6  3.412 ms  83 records  conv+2 0.202 ms 6.4%  N/A 0.100 ms N/A"
        "  note: sequence-gap (2)"
    )


@pytest.mark.parametrize("start_us", [None, 2**62])
def test_a_time_that_is_none_or_none_of_this_world_is_shown_as_unknown(start_us: int | None) -> None:
    line = line_of({**INFERENCE, "start_us": start_us, "total_us": None, "slowest": [], "ledger": []})
    assert line == "--:--:--.---  yolo.2 inference 6  N/A  83 records"


@pytest.mark.parametrize("state", ["pending", "partial"])
def test_an_inference_says_why_its_figures_are_not_known(state: str) -> None:
    unknown: dict[str, Any] = {
        "start_us": None,
        "total_us": None,
        "slowest": [],
        "figures": state,
        "why": "the log is torn",
    }
    assert line_of({**INFERENCE, **unknown}) == (
        f"--:--:--.---  yolo.2 inference 6  N/A  83 records  figures are {state}: the log is torn"
        "  note: sequence-gap (2)"
    )


def test_an_inference_says_when_samples_before_it_never_came() -> None:
    assert "N/A  captured 96 of 100 due  note:" in line_of({**INFERENCE, "sampled": 96, "due": 100})
    assert "due" not in line_of({**INFERENCE, "due": None})


def test_a_record_is_one_line() -> None:
    assert line_of(RECORD) == "yolo.0 inference 1  aicore 2.5  conv (Convolution)  12.500 us"


def test_a_record_with_counters_shows_how_busy_the_unit_was() -> None:
    line = line_of({**RECORD, "mac_busy": 0.832, "vec_busy": None})
    assert line.endswith("12.500 us  mac 83.2%  vec N/A")


def test_with_a_counter_map_each_layer_says_what_bounds_it() -> None:
    slowest = [{**layer, "bound_by": word} for layer, word in zip(INFERENCE["slowest"], ("DLD", None), strict=True)]
    line = line_of({**INFERENCE, "slowest": slowest})
    assert "conv+2 0.202 ms 6.4% DLD  N/A 0.100 ms N/A N/A  note:" in line
    assert line_of({**RECORD, "mac_busy": 0.832, "bound_by": "cube"}).endswith("  mac 83.2%  bound by cube")


def test_what_rests_on_a_counter_that_is_not_certain_is_marked() -> None:
    known = {**RECORD, "mac_busy": 0.832, "vec_busy": 0.1, "bound_by": "cube"}
    assert line_of({**known, "likely": ["vec_busy"]}).endswith("  mac 83.2%  vec 10.0%?  bound by cube?")
    assert line_of({**known, "likely": ["ddr_read_bytes"]}).endswith("  mac 83.2%  vec 10.0%  bound by cube")
    assert line_of({**known, "bound_by": None, "likely": ["dld"]}).endswith("bound by N/A")


def test_a_record_of_no_known_layer() -> None:
    line = line_of({**RECORD, "layer_name": None, "layer_type": None, "duration_us": None})
    assert line.endswith("N/A (N/A)  N/A")


def test_a_call_is_one_line() -> None:
    call = {
        "event": "record",
        "unit": "acl_api",
        "name": "svp_acl_mdl_execute",
        "begin_us": 1_795_230_382_123_456,
        "duration_us": 500,
        "tid": 8,
        "simulated": False,
    }
    assert line_of(call) == "03:06:22.123  svp_acl_mdl_execute  500.000 us  thread 8"


@pytest.mark.parametrize(
    ("log", "job", "where"), [("data/x", "JOBA", "data/x"), (None, "JOBA", "JOBA"), (None, "", "board")]
)
def test_a_ledger_entry_names_its_place(log: str | None, job: str, where: str) -> None:
    entry = {"grade": "loss", "reason": "removed", "detail": "gone", "count": 4}
    line = line_of({"event": "ledger", "job": job, "log": log, **entry, "simulated": False})
    assert line == f"loss: {where}: removed: gone (count 4)"


def test_states_and_the_summary() -> None:
    assert line_of({"event": "job", "job": "JOBA", "state": "open", "simulated": False}) == "JOBA is open"
    summary = {
        "event": "summary",
        "inferences": 2,
        "records": {"aicore": 3, "aicpu": 0},
        "sampling": {"sampled": 2, "due": 3, "late": 0, "interval": 10, "interval_from": "inferred"},
        "ledger": {"loss": 0, "note": 1},
    }
    assert line_of({**summary, "simulated": True}) == (
        "2 inferences, captured 2 of 3 due (interval 10, inferred); records: 3 aicore, 0 aicpu;"
        " ledger: 0 loss, 1 note [simulated]"
    )
