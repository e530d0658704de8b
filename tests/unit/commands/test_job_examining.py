"""What doctor reads of real JOB directories and files of this machine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from profagent.doctor import job_examining
from profagent.doctor.finding import Finding, Mark
from profagent.doctor.job_examining import acl_json_file, job_sections
from profagent.errors import UsageError
from tests.integration.board import sample, simulated


def looked_at(job: Path) -> dict[str, Finding]:
    return {finding.check: finding for finding in job_sections(job)[0].findings}


def test_a_job_in_good_order(tmp_path: Path) -> None:
    job = simulated(tmp_path, 5)
    assert {check: each.mark for check, each in looked_at(job).items()} == dict.fromkeys(
        ("job-data", "job-clock", "job-ticks"), Mark.GOOD
    )
    assert "5 of 5 inferences looked at" in looked_at(job)["job-ticks"].evidence
    assert job_sections(job)[0].about == f"{job} [simulated]"


def test_ticks_of_another_clock_do_not_fit(tmp_path: Path) -> None:
    job = simulated(tmp_path, 5)
    (job / "info.json.0").write_text('{"DeviceInfo": [{"aic_frequency": "70"}]}')
    found = looked_at(job)["job-ticks"]
    assert found.mark is Mark.BAD
    assert "too long" in found.evidence
    assert "5 are so" in found.evidence


def test_of_very_many_logs_some_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_examining, "LOGS", 2)
    assert "2 of 5 inferences looked at" in looked_at(simulated(tmp_path, 5))["job-ticks"].evidence


def test_dones_that_are_broken_and_logs_that_are_too_large_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = simulated(tmp_path, 5)
    next(job.glob("data/aicore.*.done")).write_text("file_len:x")
    assert "4 of 5" in looked_at(job)["job-ticks"].evidence
    monkeypatch.setattr(job_examining, "LARGEST_LOG_BYTES", 1)
    assert looked_at(job)["job-ticks"].mark is Mark.UNKNOWN


def test_a_job_without_data(tmp_path: Path) -> None:
    job = simulated(tmp_path, 1)
    shutil.rmtree(job / "data")
    (job / "data").mkdir()
    found = looked_at(job)
    assert found["job-data"].mark is Mark.BAD
    assert "--online_model_type=2" in found["job-data"].remedy


def test_models_of_the_runtime_library_that_do_not_profile(tmp_path: Path) -> None:
    """It left empty logs of calls for models of the types 0 and 1, and of one without a name."""
    named = [finding.evidence for finding in job_sections(sample(tmp_path, "runtime-misc"))[0].findings]
    assert [text.split(" left")[0] for text in named if "not built" in text] == [
        "model '' (id 1)",
        "model 'type0' (id 1)",
        "model 'type1' (id 1)",
    ]


@pytest.mark.parametrize(("content", "told"), [(None, "no info.json.0"), ("{}", "aic_frequency")])
def test_a_job_without_a_clock(tmp_path: Path, content: str | None, told: str) -> None:
    job = simulated(tmp_path, 1)
    (job / "info.json.0").unlink()
    if content is not None:
        (job / "info.json.0").write_text(content)
    found = looked_at(job)
    assert found["job-clock"].mark is Mark.BAD
    assert told in found["job-clock"].evidence
    assert found["job-ticks"].mark is Mark.UNKNOWN


def test_acl_json_beside_a_job_is_looked_at_too(tmp_path: Path) -> None:
    job = simulated(tmp_path / "app" / "profiling", 1)
    (tmp_path / "app" / "src").mkdir()
    for path in (tmp_path / "app/src/acl.json", tmp_path / "app/profiling/acl.json"):
        path.write_text(json.dumps({"profiler": {"switch": "off", "output": "/opt"}}))
    sections = job_sections(job)[1:]
    assert [section.about for section in sections] == [
        str(tmp_path / "app/profiling/acl.json"),
        str(tmp_path / "app/src/acl.json"),
    ]
    assert all(not section.is_good and section.corrected for section in sections)


def test_what_is_no_job_or_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no JOB directory"):
        job_sections(tmp_path)
    with pytest.raises(UsageError, match="cannot read"):
        acl_json_file(tmp_path / "none.json")
