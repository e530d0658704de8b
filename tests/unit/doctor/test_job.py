"""What doctor finds in real JOB directories: data, times, acl.json files beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagent.doctor.cli import job_sections
from profagent.doctor.finding import Finding, Mark
from profagent.doctor.job import job_data
from profagent.errors import UsageError
from tests.integration.board import simulated

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


def looked_at(job: Path) -> dict[str, Finding]:
    return {finding.check: finding for finding in job_sections(job)[0].findings}


def test_a_job_in_good_order_and_one_with_another_clock_or_none(tmp_path: Path) -> None:
    job = simulated(tmp_path, 5)
    assert {check: each.mark for check, each in looked_at(job).items()} == dict.fromkeys(
        ("job-data", "job-clock"), Mark.GOOD
    )
    assert job_sections(job)[0].about == f"{job} [simulated]"
    assert all(section.is_good for section in job_sections(job))
    (job / "info.json.0").write_text('{"DeviceInfo": [{"aic_frequency": "70"}]}')
    ticks = job_sections(job)[-1].findings[0]
    assert (ticks.check, ticks.mark) == ("tick-unit", Mark.BAD)
    assert ticks.evidence.startswith("refutes 100-cycles")
    (job / "info.json.0").write_text("{}")
    assert looked_at(job)["job-clock"].mark is Mark.BAD


def test_what_is_no_job(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no JOB directory"):
        job_sections(tmp_path)
