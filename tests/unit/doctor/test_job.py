"""Checks of a JOB: what is in it, and whether ticks fit the times of its `.done` files."""

from __future__ import annotations

import struct

import pytest

from profagent.doctor.finding import Mark
from profagent.doctor.job import Measured, job_clock, job_data, job_ticks, measure
from profagent.formats.done import Done

INFO = {"info.json.0": 42}
TABLES = {"data/yolo.0.layer.info": 9, "data/yolo.0.net.info": 9}
CALLS = {"data/acl_api.0.yolo.0": 64, "data/acl_api.0.yolo.0.done": 9}
LAYERS = {f"data/aicore.0.yolo.3.0.1.1.{pictures}": 512 for pictures in (0, 1)}


def found(files: dict[str, int]) -> list[tuple[str, Mark]]:
    return [(finding.check, finding.mark) for finding in job_data(files)]


def test_a_job_with_layers() -> None:
    assert found({**INFO, **TABLES, **CALLS, **LAYERS}) == [("job-data", Mark.GOOD)]


def test_a_job_without_data_is_of_a_model_that_is_not_built_for_profiling() -> None:
    (finding,) = job_data(INFO)
    assert finding.mark is Mark.BAD
    assert "--online_model_type=2" in finding.remedy


def test_a_model_that_is_not_built_for_profiling_is_named() -> None:
    (finding,) = job_data({**INFO, "data/acl_api.0.yolo.v1.0": 0})
    assert "'yolo.v1' (id 0)" in finding.evidence
    assert "--online_model_type=2" in finding.remedy
    assert found({**INFO, **TABLES, **LAYERS, "data/acl_api.0.other.1": 0}) == [
        ("job-data", Mark.BAD),
        ("job-data", Mark.GOOD),
    ]


@pytest.mark.parametrize(
    "calls", [{"data/acl_api.0.yolo.0": 0}, {"data/acl_api.0.x.0": 0, "data/acl_api.0.x.0.done": 9}]
)
def test_an_empty_log_of_a_model_that_profiles_says_nothing(calls: dict[str, int]) -> None:
    assert found({**TABLES, **LAYERS, **calls}) == [("job-data", Mark.GOOD)]


def test_a_model_that_profiles_and_recorded_nothing() -> None:
    for empty in ({}, dict.fromkeys(LAYERS, 0)):
        (finding,) = job_data({**INFO, **TABLES, **CALLS, **empty})
        assert finding.mark is Mark.BAD
        assert "aic_metrics" in finding.evidence


def test_only_the_first_inference_of_each_model() -> None:
    first = {path: size for path, size in LAYERS.items() if path.endswith(".0")}
    assert found({**TABLES, **first}) == [("job-data", Mark.GOOD), ("job-sampling", Mark.UNKNOWN)]


def test_the_clock() -> None:
    assert job_clock(700, "").mark is Mark.GOOD
    assert "info.json.0" in job_clock(None, "").evidence
    assert job_clock(None, "byte 3: no JSON").evidence == "byte 3: no JSON"


def records(*ticks: int) -> bytes:
    return b"".join(struct.pack("<II248x", number, each) for number, each in enumerate(ticks))


def done(file_len: int, duration_us: int = 100) -> Done:
    return Done(file_len, 1_000, 1_000 + duration_us)


def test_ticks_are_measured_by_the_clock() -> None:
    measured = measure("log", records(350, 350), done(512), 700, has_cpu_part=False)
    assert measured == Measured("log", 100.0, 100, may_have_cpu_part=False)


def test_between_several_nets_the_cpu_may_have_been_at_work_unrecorded() -> None:
    two_nets = records(350) + struct.pack("<II244xI", 0, 350, 2)
    measured = measure("log", two_nets, done(512, 1_000), 700, has_cpu_part=False)
    assert measured == Measured("log", 100.0, 1_000, may_have_cpu_part=True)


def test_only_the_part_that_the_done_is_about_counts() -> None:
    measured = measure("log", records(9_999, 350, 350), done(512), 700, has_cpu_part=False)
    assert measured is not None
    assert measured.layers_us == 100.0


@pytest.mark.parametrize("file_len", [0, 513])
def test_a_done_that_announces_more_than_there_is_or_nothing_is_not_compared(file_len: int) -> None:
    assert measure("log", records(350, 350), done(file_len), 700, has_cpu_part=False) is None


@pytest.mark.parametrize(
    ("layers_us", "window_us", "has_cpu_part", "mark", "why"),
    [
        (95.0, 100, False, Mark.GOOD, ""),
        (103.0, 100, False, Mark.GOOD, ""),
        (110.0, 100, False, Mark.BAD, "too long"),
        (26.0, 100, False, Mark.GOOD, ""),
        (20.0, 100, False, Mark.UNKNOWN, "the NPU idled, or a tick is longer"),
        (20.0, 100, True, Mark.GOOD, ""),
        (1.0, 0, False, Mark.GOOD, ""),
        (5.0, 0, False, Mark.BAD, "the inference took 0 us by its .done: the layers are too long"),
        (5.0, -1, False, Mark.BAD, "ended before it began"),
    ],
)
def test_ticks_that_fit_and_that_do_not(
    layers_us: float, window_us: int, has_cpu_part: bool, mark: Mark, why: str
) -> None:
    fine = Measured("fine", 90.0, 100, may_have_cpu_part=False)
    finding = job_ticks([fine, Measured("data/log", layers_us, window_us, has_cpu_part)], 7)
    assert finding.mark is mark
    assert why in finding.evidence
    assert "2 of 7 inferences looked at" in finding.evidence
    assert ("data/log" in finding.evidence) == bool(why)


def test_nothing_to_compare_is_not_known() -> None:
    assert job_ticks([], 0).mark is Mark.UNKNOWN
    assert job_ticks([Measured("log", 1.0, 0, may_have_cpu_part=False)], 1).mark is Mark.UNKNOWN
