"""The pure parts of the merged trace: tracks on which slices nest, and the line through clock samples."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profagent.errors import ProfagentError
from profagent.export.blocks import Label, Slices, TraceClock, integers
from profagent.export.json_trace import JsonTrace
from profagent.export.merged import clock_line
from profagent.export.tracks import Tracks
from profagent.watch.lines import line_of


def test_what_does_not_nest_goes_to_another_track() -> None:
    tracks = Tracks()
    spans = [(0, 100), (10, 50), (50, 90), (60, 120), (100, 110), (130, 140)]
    places = [tracks.take("board", "thread 1", *span) for span in spans]
    assert places == [1, 1, 1, 2, 1, 1]
    assert (tracks.process_names[1:], tracks.names[1:]) == (["board"], ["thread 1", "thread 1 (2)"])
    starts, ends = (integers(column) for column in zip(*spans, strict=True))
    assert Tracks().take_all("board", "thread 1", starts, ends).tolist() == places
    in_a_row = integers([0, 10, 10, 30]), integers([10, 10, 20, 31])
    assert tracks.take_all("board", "thread 2", *in_a_row).tolist() == [3, 3, 3, 3]


def test_what_a_lane_holds_stays_together() -> None:
    tracks = Tracks()
    tasks = [(0, 30, 7), (1, 50, 8), (2, 70, 9), (10, 20, 8), (31, 90, 6), (40, 45, 8), (60, 65, 9)]
    starts, ends, lanes = zip(*tasks, strict=True)
    places = tracks.take_all("program", "tasks", integers(starts), integers(ends), lanes)
    assert places.tolist() == [1, 2, 3, 2, 1, 2, 3]


def test_what_a_lane_holds_stays_together_across_pages() -> None:
    tracks = Tracks()
    starts, ends, lanes = integers([0, 10, 20, 40]), integers([5, 100, 30, 50]), [1, 7, 7, 8]
    pages = [slice(0, 2), slice(2, 4)]
    places = [tracks.take_all("program", "tasks", starts[page], ends[page], lanes[page]).tolist() for page in pages]
    assert places == [[1, 1], [1, 2]]


def test_the_clock_line_follows_a_drift_and_tells_how_sure_it_is() -> None:
    samples = [(second * 1_000_000, 500 + 10 * second, 40) for second in range(100)]
    line = clock_line([*samples, (50_000_000, 90_000, 9_000)])
    assert line is not None
    assert line.offset_at(10_000_000 + 600) == pytest.approx(600, abs=0.1)
    assert line.uncertainty_us == pytest.approx(20, abs=0.1)
    assert clock_line([]) is None
    single = clock_line([(1_000, 5, 8)])
    assert single is not None
    assert (single.offset_at(99_999_999), single.uncertainty_us) == (5, 4)
    close = clock_line([(0, 100, 200), (1_000_000, 200, 200)])
    assert close is not None
    assert (close.offset_at(3_600_000_000), close.uncertainty_us) == (150, 150)
    clock = TraceClock(1_795_230_382_000_000, lambda _: 5.0)
    assert clock.ns(1_795_230_382_000_005.25) == 250


def test_each_part_can_be_opened_by_itself(tmp_path: Path) -> None:
    tracks = Tracks()
    metadata = {"clock": "board"}
    starts = np.arange(9)
    columns = np.zeros(9, np.int64), tracks.take_all("board", "t", starts, starts + 1), starts, starts + 1
    with JsonTrace(tmp_path / "trace.json", tracks, metadata, 400) as parts:
        parts.write(Slices([Label("a", "c")], *columns))
        parts.end(metadata)
    found = [json.loads(file.read_text()) for file in parts.files]
    assert len(found) > 1
    for number, part in enumerate(found, 1):
        assert [event["name"] for event in part["traceEvents"][:3]] == [
            "process_name",
            "process_sort_index",
            "thread_name",
        ]
        following = None if number == len(found) else f"trace.{number + 1}.json"
        assert part["metadata"] == {"clock": "board", "part": number, "goes_on_in": following}
    assert sum(event["ph"] == "X" for part in found for event in part["traceEvents"]) == 9
    assert sorted(tmp_path.iterdir()) == sorted(parts.files)
    # What a shorter one finds of it goes; another trace stays, and what is none.
    others = [tmp_path / f"trace.{len(found)}.json", tmp_path / f"trace.{len(found) + 1}.json"]
    shutil.copy(parts.files[0], others[0])
    others[1].write_text("mine")
    with JsonTrace(tmp_path / "trace.json", tracks, metadata) as short:
        short.write(Slices([Label("a", "c")], *columns))
        short.end(metadata)
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "trace.json", *others])


def test_nothing_stays_of_a_trace_that_cannot_be_written(tmp_path: Path) -> None:
    tracks = Tracks()
    starts = np.arange(9)
    columns = np.zeros(9, np.int64), tracks.take_all("board", "t", starts, starts + 1), starts, starts + 1

    def write() -> None:
        with JsonTrace(tmp_path / "trace.json", tracks, {}, 400) as parts:
            parts.write(Slices([Label("a", "c")], *columns))
            assert len(parts.files) > 1
            raise OSError(errno.ENOSPC, "")

    with pytest.raises(ProfagentError, match="No space"):
        write()
    assert [*tmp_path.iterdir()] == []


# Live events as lines

INFERENCE: dict[str, Any] = {
    "event": "inference",
    "job": "JOBA",
    "model": "yolo",
    "model_id": 2,
    "current_pic_count": 6,
    "start_us": 1_795_230_382_123_456,
    "latency_us": 3479.4,
    "latency_from": "call",
    "layers_us": 3412.4,
    "recorded": 83,
    "of_layers": 88,
    "records": 83,
    "figures": "final",
    "why": None,
    "slowest": [
        {"layer_name": "conv+relu+mul", "layer_type": "x", "unit": "aicore", "duration_us": 202.0, "share": 0.058},
        {"layer_name": None, "layer_type": None, "unit": "aicpu", "duration_us": 100.0, "share": None},
    ],
    "ledger": [{"grade": "note", "reason": "sequence-jump", "count": 2}],
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
    "counters": {},
    "simulated": False,
}


def test_an_inference_is_one_line() -> None:
    assert line_of(INFERENCE) == (
        "03:06:22.123  yolo.2 inference 6  3.479 ms  83 of 88 layers  conv+2 0.202 ms 5.8%  N/A (cpu) 0.100 ms N/A"
        "  note: sequence-jump (2)"
    )


def test_a_latency_without_its_call_is_marked_as_the_least_that_it_is() -> None:
    assert "  ≥3.454 ms  83 of 88 " in line_of({**INFERENCE, "latency_us": 3454.0, "latency_from": "records"})


@pytest.mark.parametrize("start_us", [None, 2**62])
def test_a_time_that_is_none_or_none_of_this_world_is_shown_as_unknown(start_us: int | None) -> None:
    line = line_of({**INFERENCE, "start_us": start_us, "latency_us": None, "slowest": [], "ledger": []})
    assert line == "--:--:--.---  yolo.2 inference 6  N/A  83 of 88 layers"


@pytest.mark.parametrize("state", ["pending", "partial"])
def test_an_inference_says_why_its_figures_are_not_known(state: str) -> None:
    unknown: dict[str, Any] = {
        "start_us": None,
        "latency_us": None,
        "recorded": None,
        "slowest": [],
        "figures": state,
        "why": "the log is torn",
    }
    assert line_of({**INFERENCE, **unknown}) == (
        f"--:--:--.---  yolo.2 inference 6  N/A  83 records  figures are {state}: the log is torn"
        "  note: sequence-jump (2)"
    )


def test_an_inference_says_when_samples_before_it_never_came() -> None:
    assert "N/A  captured 96 of 100 due  note:" in line_of({**INFERENCE, "sampled": 96, "due": 100})
    assert "due" not in line_of({**INFERENCE, "due": None})


def test_a_record_is_one_line() -> None:
    assert line_of(RECORD) == "yolo.0 inference 1  aicore 2.5  conv (Convolution)  12.500 us"


def test_a_record_with_counters_shows_how_busy_the_unit_was() -> None:
    line = line_of({**RECORD, "counters": {"mac_busy": 0.832, "vec_busy": None}})
    assert line.endswith("12.500 us  mac 83.2%  vec N/A")


def test_with_a_counter_map_each_layer_says_what_bounds_it() -> None:
    slowest = [{**layer, "bound_by": word} for layer, word in zip(INFERENCE["slowest"], ("DLD", None), strict=True)]
    line = line_of({**INFERENCE, "slowest": slowest})
    assert "conv+2 0.202 ms 5.8% DLD  N/A (cpu) 0.100 ms N/A N/A  note:" in line
    assert line_of({**RECORD, "counters": {"mac_busy": 0.832}, "bound_by": "cube"}).endswith(
        "  mac 83.2%  bound by cube"
    )


def test_what_rests_on_a_counter_that_is_not_certain_is_marked() -> None:
    known = {**RECORD, "counters": {"mac_busy": 0.832, "vec_busy": 0.1}, "bound_by": "cube"}
    assert line_of({**known, "likely": ["vec_busy"]}).endswith("  mac 83.2%  vec 10.0%?  bound by cube?")
    assert line_of({**known, "likely": ["ddr_read_bytes"]}).endswith("  mac 83.2%  vec 10.0%  bound by cube")
    assert line_of({**known, "bound_by": None, "likely": ["dld"]}).endswith("bound by N/A")


def test_a_record_of_no_known_layer() -> None:
    line = line_of({**RECORD, "layer_name": None, "layer_type": None, "duration_us": None})
    assert line.endswith("N/A (N/A)  N/A")


def test_a_call_is_one_line() -> None:
    call = {
        "event": "call",
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
        "left_out_records": 1,
    }
    told = (
        "2 inferences, captured 2 of 3 due (interval 10, inferred); records: 3 aicore, 0 aicpu; ledger: 0 loss, 1 note"
    )
    gap = "; the runtime left out 1 record of layers (sequence-gap)"
    assert line_of({**summary, "simulated": True}) == f"{told}{gap} [simulated]"
    assert line_of({**summary, "left_out_records": 0, "simulated": False}) == told
