"""What doctor finds in real JOB directories: data, times, counters, acl.json files beside them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace as changed

from profagent.doctor import examining
from profagent.doctor.examining import acl_json_file, job_sections
from profagent.doctor.finding import Finding, Mark, Section
from profagent.doctor.job import Inference, job_data, job_ticks
from profagent.errors import UsageError
from profagent.store.counter_maps import BUILT_IN, CounterMaps, simulated_map
from tests.integration.board import sample, simulated

INFO = {"info.json.0": 42}
TABLES = {"data/yolo.0.layer.info": 9, "data/yolo.0.net.info": 9}
CALLS = {"data/acl_api.0.yolo.0": 64, "data/acl_api.0.yolo.0.done": 9}
LAYERS = {f"data/aicore.0.yolo.3.0.1.1.{pictures}": 512 for pictures in (0, 1)}
FIRST = {path: size for path, size in LAYERS.items() if path.endswith(".0")}
BUILD = "--online_model_type=2"


@pytest.mark.parametrize(
    ("files", "found", "told"),
    [
        ({**INFO, **TABLES, **CALLS, **LAYERS}, [("job-data", Mark.GOOD)], ""),
        (INFO, [("job-data", Mark.BAD)], BUILD),
        ({**INFO, "data/acl_api.0.yolo.v1.0": 0}, [("job-data", Mark.BAD)], "'yolo.v1' (id 0)"),
        (
            {**INFO, **TABLES, **LAYERS, "data/acl_api.0.other.1": 0},
            [("job-data", Mark.BAD), ("job-data", Mark.GOOD)],
            BUILD,
        ),
        ({**TABLES, **LAYERS, "data/acl_api.0.yolo.0": 0}, [("job-data", Mark.GOOD)], ""),
        ({**INFO, **TABLES, **CALLS, **dict.fromkeys(LAYERS, 0)}, [("job-data", Mark.BAD)], "aic_metrics"),
        ({**TABLES, **FIRST}, [("job-data", Mark.GOOD), ("job-sampling", Mark.UNKNOWN)], ""),
    ],
)
def test_what_a_job_has(files: dict[str, int], found: list[tuple[str, Mark]], told: str) -> None:
    findings = list(job_data(files))
    assert [(each.check, each.mark) for each in findings] == found
    assert told in f"{findings[0].evidence} {findings[0].remedy}"


@pytest.mark.parametrize(
    ("ticks", "window_us", "may_have_cpu_part", "mark", "why"),
    [
        (665, 100, False, Mark.GOOD, ""),
        (770, 100, False, Mark.BAD, "too long"),
        (140, 100, False, Mark.UNKNOWN, "the NPU idled, or a tick is longer"),
        (140, 100, True, Mark.GOOD, ""),
        (7, 0, False, Mark.GOOD, ""),
        (35, 0, False, Mark.BAD, "the inference took 0 us by its .done: the layers are too long"),
    ],
)
def test_ticks_that_fit_and_that_do_not(
    ticks: int, window_us: int, may_have_cpu_part: bool, mark: Mark, why: str
) -> None:
    finding = job_ticks([Inference("fine", 630, 100), Inference("data/log", ticks, window_us, may_have_cpu_part)], 700)
    assert finding.mark is mark
    assert why in finding.evidence
    assert ("data/log" in finding.evidence) == bool(why)
    assert job_ticks([], 700).mark is Mark.UNKNOWN


def sections(job: Path, maps: CounterMaps = BUILT_IN) -> list[Section]:
    return job_sections(job, maps)


def looked_at(job: Path) -> dict[str, Finding]:
    return {finding.check: finding for finding in sections(job)[0].findings}


def test_a_job_in_good_order_and_one_with_another_clock_or_none(tmp_path: Path) -> None:
    job = simulated(tmp_path, 5)
    assert {check: each.mark for check, each in looked_at(job).items()} == dict.fromkeys(
        ("job-data", "job-clock", "job-ticks"), Mark.GOOD
    )
    assert sections(job)[0].about == f"{job} [simulated]"
    next(job.glob("data/aicore.*.done")).write_text("file_len:x")
    assert "; 4 looked at" in looked_at(job)["job-ticks"].evidence
    (job / "info.json.0").write_text('{"DeviceInfo": [{"aic_frequency": "70"}]}')
    found = looked_at(job)["job-ticks"]
    assert found.mark is Mark.BAD
    assert "too long; 4 of 4 inferences are so" in found.evidence
    (job / "info.json.0").write_text("{}")
    assert looked_at(job)["job-clock"].mark is Mark.BAD


def test_a_job_without_data(tmp_path: Path) -> None:
    job = simulated(tmp_path, 1)
    shutil.rmtree(job / "data")
    (job / "data").mkdir()
    assert looked_at(job)["job-data"].mark is Mark.BAD
    assert BUILD in looked_at(job)["job-data"].remedy


def test_models_of_the_runtime_library_that_do_not_profile(tmp_path: Path) -> None:
    """It left empty logs of calls for models of the types 0 and 1, and of one without a name."""
    named = [finding.evidence for finding in sections(sample(tmp_path, "runtime-misc"))[0].findings]
    assert [text.split(" left")[0] for text in named if "not built" in text] == [
        "model '' (id 1)",
        "model 'type0' (id 1)",
        "model 'type1' (id 1)",
    ]


def test_acl_json_beside_a_job_is_looked_at_too(tmp_path: Path) -> None:
    job = simulated(tmp_path / "app" / "profiling", 1)
    (tmp_path / "app" / "src").mkdir()
    files = [tmp_path / "app/profiling/acl.json", tmp_path / "app/src/acl.json"]
    for path in files:
        path.write_text(json.dumps({"profiler": {"switch": "off", "output": "/opt"}}))
    found = sections(job)[1:3]
    assert [section.about for section in found] == [str(path) for path in files]
    assert all(not section.is_good for section in found)


def test_what_is_no_job_or_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no JOB directory"):
        sections(tmp_path)
    with pytest.raises(UsageError, match="cannot read"):
        acl_json_file(tmp_path / "none.json")


def test_counters_by_a_right_map_a_wrong_one_and_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examining, "INFERENCES", 3)
    job = simulated(tmp_path, 5)
    *_, right = sections(job)
    assert len(right.findings) == 12
    assert {finding.mark for finding in right.findings} == {Mark.GOOD}
    assert all("3 of 5 inferences" in finding.evidence for finding in right.findings)
    counters = {name: changed(each, scale=9e3) for name, each in simulated_map().counters.items()}
    *_, wrong = sections(job, CounterMaps(changed(simulated_map(), counters=counters)))
    found = {finding.check: finding for finding in wrong.findings}
    assert found["mac_busy <= 1"].mark is Mark.BAD
    assert "GB/s, and 34.1 can be" in found["ddr_read_bytes rate"].evidence
    (job / "simulated").unlink()
    (finding,) = sections(job)[-1].findings
    assert (finding.mark, "--counter-map" in finding.remedy) == (Mark.UNKNOWN, True)
