"""Finding changes by looking at a directory again."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from profagentd.follow import scan as module
from profagentd.follow.scan import SLACK_NS, DirectoryScan, JobScan
from profagentd.sources.job import Place
from tests.daemon.daemon_process import make_job


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def scan(directory: Path) -> DirectoryScan:
    """A scan that has looked once, at one old file."""
    (directory / "old").write_bytes(b"x")
    rest()
    made = DirectoryScan(Place(os.fsencode(directory), b""))
    made.scan()
    return made


def rest() -> None:
    """Longer than the slack: a file's ctime cannot be set, so this waits for the file system's clock."""
    time.sleep(SLACK_NS / 1e9 + 0.02)


def names(scan: DirectoryScan) -> set[bytes]:
    return set(scan.scan().touches)


def test_the_first_look_tells_nothing(directory: Path) -> None:
    (directory / "a").write_bytes(b"x")
    scan = DirectoryScan(Place(os.fsencode(directory), b""))
    assert scan.scan() == module.Scanned({})


def test_nothing_changed_gives_nothing(scan: DirectoryScan) -> None:
    assert scan.scan() == module.Scanned({})


def test_a_new_file_is_told_once(scan: DirectoryScan, directory: Path) -> None:
    (directory / "new").write_bytes(b"x")
    scanned = scan.scan()
    assert set(scanned.touches) == {b"new"}
    assert scanned.names_changed
    assert names(scan) == set()


def test_a_file_that_grows_is_told_each_time(scan: DirectoryScan, directory: Path) -> None:
    for _ in range(3):
        with (directory / "old").open("ab") as file:
            file.write(b"x")
        scanned = scan.scan()
        assert set(scanned.touches) == {b"old"}
        assert not scanned.names_changed


def test_a_file_that_changed_long_after_another_is_told_alone(scan: DirectoryScan, directory: Path) -> None:
    (directory / "new").write_bytes(b"x")
    names(scan)
    rest()
    (directory / "old").write_bytes(b"xyz")
    assert names(scan) == {b"old"}


def test_a_removed_name_is_noticed_by_its_directory(scan: DirectoryScan, directory: Path) -> None:
    (directory / "old").unlink()
    scanned = scan.scan()
    assert scanned.touches == {}
    assert scanned.names_changed


def test_links_and_directories_are_told_like_files(scan: DirectoryScan, directory: Path) -> None:
    (directory / "link").symlink_to("nowhere")
    (directory / "deeper").mkdir()
    assert names(scan) == {b"link", b"deeper"}


def test_when_the_directorys_clock_goes_back_anything_may_have_changed(scan: DirectoryScan, directory: Path) -> None:
    os.utime(directory, ns=(1, 1))
    scanned = scan.scan()
    assert scanned.is_all
    assert scanned.touches == {}
    assert names(scan) == set()


def test_very_many_changes_are_told_as_everything(
    scan: DirectoryScan, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NAMES_LIMIT", 5)
    for number in range(6):
        (directory / str(number)).write_bytes(b"x")
    scanned = scan.scan()
    assert scanned.is_all
    assert scanned.touches == {}


def test_a_directory_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DirectoryScan(Place(os.fsencode(tmp_path), b"missing")).scan()


# A JOB


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return make_job(tmp_path)


@pytest.fixture
def job_scan(job: Path) -> JobScan:
    made = JobScan(Place(os.fsencode(job.parent), os.fsencode(job.name)))
    made.scan()
    return made


def test_both_directories_of_a_job_are_looked_at(job: Path, job_scan: JobScan) -> None:
    (job / "a").write_bytes(b"x")
    (job / "data" / "b").write_bytes(b"x")
    scanned = job_scan.scan()
    assert set(scanned.touches) == {b"a", b"data/b"}
    assert not scanned.is_all
    assert scanned.names_changed
    assert scanned.cpu_s > 0


def test_a_data_directory_that_comes_later_may_hold_anything(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    (job / "data").rmdir()
    scan = JobScan(Place(os.fsencode(tmp_path), os.fsencode(job.name)))
    scan.scan()
    (job / "data").mkdir()
    (job / "data" / "b").write_bytes(b"x")
    assert scan.scan().is_all
    assert not scan.scan().is_all


def test_a_data_directory_that_goes_may_have_held_anything(job: Path, job_scan: JobScan) -> None:
    (job / "data").rmdir()
    assert job_scan.scan().is_all
    assert not job_scan.scan().is_all


def test_a_directory_named_data_inside_the_data_directory_is_told(job: Path, job_scan: JobScan) -> None:
    (job / "data" / "data").mkdir()
    assert set(job_scan.scan().touches) == {b"data/data"}
