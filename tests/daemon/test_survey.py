"""Whether a JOB has ended, by what the runtime leaves behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profagentd.follow.registry import Survey
from profagentd.sources.job import Place
from tests.daemon.daemon_process import AICORE_DONE, API_DONE, make_job

JOBS = Path(__file__).parents[1] / "data" / "jobs"
AICORE = "aicore.0.m.3.0.1.1.0"
API = "acl_api.0.m.0"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a JOB that has ended."""
    directory = make_job(tmp_path) / "data"
    (directory / "m.0.net.info").write_bytes(b"x")
    for name, done in ((AICORE, AICORE_DONE), (API, API_DONE), ("aicpu.0.m.3.0.1.1.0", AICORE_DONE)):
        (directory / name).write_bytes(b"x")
        (directory / f"{name}.done").write_bytes(done % 1)
    return directory


def has_ended(job: Path, slice_names: int = 1000) -> bool:
    survey = Survey(Place(os.fsencode(job.parent), os.fsencode(job.name)))
    verdict = None
    while verdict is None:
        verdict = survey.look(slice_names)
    return verdict


@pytest.mark.parametrize("slice_names", [1, 2, 1000])
def test_a_job_with_every_end_has_ended(data: Path, slice_names: int) -> None:
    assert has_ended(data.parent, slice_names)


def test_a_survey_goes_in_slices(data: Path) -> None:
    survey = Survey(Place(os.fsencode(data.parents[1]), os.fsencode(data.parent.name)))
    assert survey.look(3) is None


@pytest.mark.parametrize("name", [f"{AICORE}.done", f"{API}.done", "aicpu.0.m.3.0.1.1.0.done"])
def test_a_missing_end_is_waited_for(data: Path, name: str) -> None:
    (data / name).unlink()
    assert not has_ended(data.parent)


@pytest.mark.parametrize("name", [f"{AICORE}.done", f"{API}.done"])
def test_a_torn_end_is_waited_for(data: Path, name: str) -> None:
    (data / name).write_bytes(b"file_len:1\nstart")
    assert not has_ended(data.parent)


def test_an_empty_log_is_not_waited_for(data: Path) -> None:
    (data / "aicore.0.m.3.0.1.1.1").write_bytes(b"")
    assert has_ended(data.parent)


def test_an_empty_acl_api_of_a_model_that_does_not_profile_is_not_waited_for(data: Path) -> None:
    (data / "acl_api.0.plain.name.1").write_bytes(b"")
    assert has_ended(data.parent)


def test_an_empty_acl_api_of_a_model_that_profiles_is_waited_for(data: Path) -> None:
    (data / "acl_api.0.other.1").write_bytes(b"")
    (data / "other.1.net.info").write_bytes(b"x")
    assert not has_ended(data.parent)


def test_an_acl_api_with_calls_is_waited_for(data: Path) -> None:
    (data / "acl_api.0.other.1").write_bytes(b"x")
    assert not has_ended(data.parent)


def test_a_job_without_any_acl_api_has_no_end_that_can_be_seen(data: Path) -> None:
    (data / API).unlink()
    (data / f"{API}.done").unlink()
    assert not has_ended(data.parent)


def test_foreign_files_are_not_waited_for(data: Path) -> None:
    (data / "notes").write_bytes(b"x")
    (data / "deeper").mkdir()
    assert has_ended(data.parent)


def test_a_job_without_data_has_not_ended(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    assert not has_ended(job)
    (job / "data").rmdir()
    assert not has_ended(job)


@pytest.mark.parametrize(("folder", "ended"), [("runtime-json", True), ("runtime-api", False), ("runtime-edge", False)])
def test_jobs_of_the_runtime(folder: str, ended: bool) -> None:
    (job,) = (JOBS / folder).glob("JOB*")
    assert has_ended(job) is ended
