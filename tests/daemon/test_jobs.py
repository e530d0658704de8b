"""JOB directories are found under a root, to a depth, and nothing else is entered."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from profagentd.follow.registry import NPU_LOOK_S, JobStateTracker
from profagentd.sources import source_of
from profagentd.sources.files import FolderPlace
from profagentd.sources.state import DEVICE, JobState, is_npu_open
from profagentd.sources.walk import find_jobs, job_times
from tests.daemon.daemon_process import job_name, make_job
from tests.daemon.privileges import public_directory, without_privileges

DEPTH = 4


def root(tmp_path: Path) -> FolderPlace:
    return FolderPlace(os.fsencode(tmp_path), b"")


def found(start: FolderPlace, depth: int = DEPTH) -> set[bytes]:
    return {place.path for place in find_jobs(start, depth).jobs}


def path(job: Path, tmp_path: Path) -> bytes:
    return os.fsencode(job.relative_to(tmp_path))


@pytest.mark.parametrize("name", [b"JOB" + b"A" * 29, job_name(5).encode()])
def test_a_job_has_its_name(name: bytes) -> None:
    assert source_of(name)


@pytest.mark.parametrize(
    "name",
    [
        b"JOB" + b"A" * 28,
        b"JOB" + b"A" * 30,
        b"job" + b"A" * 29,
        b"JOB" + b"a" * 29,
        b"JOB" + b"A" * 28 + b"1",
        b"JOB" + b"A" * 29 + b"\n",
        b"xJOB" + b"A" * 29,
        b"",
    ],
)
def test_other_names_are_no_jobs(name: bytes) -> None:
    assert not source_of(name)


@pytest.mark.parametrize("below", ["", "a", "a/b", "a/b/c"])
def test_jobs_are_found_down_to_the_depth(tmp_path: Path, below: str) -> None:
    job = make_job(tmp_path / below)
    assert found(root(tmp_path)) == {path(job, tmp_path)}


def test_a_job_in_a_job_is_none(tmp_path: Path) -> None:
    job = make_job(tmp_path, 1)
    make_job(job / "data", 2)
    assert found(root(tmp_path)) == {path(job, tmp_path)}


@pytest.mark.parametrize("name", [".git", ".cache", "node_modules", "__pycache__", "lost+found"])
def test_hidden_and_large_trees_are_not_searched(tmp_path: Path, name: str) -> None:
    make_job(tmp_path / name)
    assert found(root(tmp_path)) == set()


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    job = make_job(outside)
    inside.mkdir()
    (inside / "link").symlink_to(outside)
    (inside / job.name).symlink_to(job)
    assert found(root(inside)) == set()


def test_what_cannot_be_read_is_listed_and_the_rest_is_found() -> None:
    with public_directory() as directory:
        job = make_job(directory / "open")
        (directory / "closed").mkdir(mode=0)
        with without_privileges():
            result = find_jobs(root(directory), DEPTH)
        assert [each.path for each in result.unreadable] == [b"closed"]
        assert [each.path for each in result.jobs] == [path(job, directory)]


def test_a_job_is_as_old_as_its_directory_and_as_new_as_its_newest_name(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    os.utime(job / "data", ns=(9_000_000, 9_000_000))
    os.utime(job, ns=(5_000_000, 5_000_000))
    assert job_times(FolderPlace(os.fsencode(tmp_path), os.fsencode(job.name))) == (5_000, 9_000)


# Who has the NPU open, by a made-up /proc and by the real one

HZ = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def proc() -> Iterator[Path]:
    with public_directory() as directory:
        (directory / "self").mkdir()
        yield directory


def process(proc: Path, number: int, started_s: float, *targets: str) -> Path:
    """A process that started so long after the boot, with these files open."""
    directory = proc / str(number)
    (directory / "fd").mkdir(parents=True)
    fields = ["S", *["0"] * 18, str(int(started_s * HZ)), "0", "0"]
    (directory / "stat").write_text(f"{number} (a) program) {' '.join(fields)}\n")
    for descriptor, target in enumerate(targets):
        (directory / "fd" / str(descriptor)).symlink_to(target)
    return directory


def after_boot(seconds: float) -> int:
    return int(seconds * 1_000_000)


def test_a_process_from_before_the_job_counts(proc: Path) -> None:
    process(proc, 7, 100.0, "/dev/null", DEVICE)
    assert is_npu_open(after_boot(100.5), proc) is True


def test_a_process_from_after_the_job_does_not_count(proc: Path) -> None:
    process(proc, 7, 100.0, DEVICE)
    assert is_npu_open(after_boot(99.5), proc) is False


def test_a_process_that_may_not_be_seen_leaves_it_open(proc: Path) -> None:
    hidden = process(proc, 7, 1.0, "/dev/null")
    (hidden / "fd").chmod(0)
    with without_privileges():
        assert is_npu_open(after_boot(100.0), proc) is None
    (hidden / "fd").chmod(0o755)


def test_the_real_proc_shows_what_this_process_has_open(tmp_path: Path) -> None:
    path = tmp_path / "device"
    now_us = 2**62
    with path.open("wb"):
        assert is_npu_open(now_us, device=str(path)) is True
    assert is_npu_open(now_us, device=str(path)) is not True


# Open, finished, quiet: by the monotonic clock, and reversible

QUIET_S = 60.0


@pytest.fixture
def activity() -> JobStateTracker:
    """A JOB that changed at 100."""
    return JobStateTracker(100.0, QUIET_S)


def state(activity: JobStateTracker) -> JobState:
    """Its state now; a property read twice looks the same to a type checker."""
    return activity.state


def test_it_is_finished_when_all_is_complete(activity: JobStateTracker) -> None:
    activity.note_seen_until(102.0)
    activity.note_survey(complete=True, begun=102.0)
    assert state(activity) is JobState.FINISHED
    assert activity.is_settled


def test_a_survey_that_began_before_a_change_says_nothing(activity: JobStateTracker) -> None:
    activity.note_seen_until(102.0)
    activity.note_change(102.5)
    activity.note_survey(complete=True, begun=102.0)
    activity.note_seen_until(105.0)
    assert state(activity) is JobState.OPEN
    assert activity.wants_survey


def test_it_is_quiet_after_its_time(activity: JobStateTracker) -> None:
    activity.note_seen_until(100.0 + QUIET_S)
    assert state(activity) is JobState.QUIET
    assert not activity.is_settled  # a survey may still find it finished
    activity.note_survey(complete=False, begun=160.0)
    assert activity.is_settled


@pytest.mark.parametrize("complete", [True, False])
def test_a_change_makes_it_open_again(activity: JobStateTracker, complete: bool) -> None:
    activity.note_seen_until(200.0)
    activity.note_survey(complete=complete, begun=200.0)
    assert state(activity) is not JobState.OPEN
    activity.note_change(201.0)
    assert state(activity) is JobState.OPEN
    activity.note_seen_until(203.0)
    assert activity.wants_survey


def test_a_program_with_the_npu_open_keeps_it_from_being_quiet(activity: JobStateTracker) -> None:
    activity.note_seen_until(100.0 + QUIET_S)
    assert activity.wants_npu(160.0)
    activity.note_npu(is_open=True, at=160.0)
    assert state(activity) is JobState.OPEN
    assert not activity.wants_npu(160.0 + NPU_LOOK_S - 0.1)
    assert activity.wants_npu(160.0 + NPU_LOOK_S)
    activity.note_npu(is_open=False, at=165.0)
    assert state(activity) is JobState.QUIET


def test_a_removed_job_stays_removed(activity: JobStateTracker) -> None:
    activity.mark_removed()
    activity.note_change(101.0)
    activity.note_seen_until(500.0)
    assert state(activity) is JobState.REMOVED
    assert activity.is_settled
    assert not activity.wants_survey
    assert not activity.wants_npu(500.0)


def test_names_that_go_finish_what_waited_for_them_and_open_nothing(activity: JobStateTracker) -> None:
    activity.note_seen_until(102.0)
    activity.note_survey(complete=False, begun=102.0)
    activity.note_removed_names()
    assert activity.wants_survey
    activity.note_survey(complete=True, begun=102.0)
    activity.note_removed_names()
    assert state(activity) is JobState.FINISHED
    assert not activity.wants_survey
