"""Files of a JOB are opened without following links, and only regular ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from profagentd.sources.files import Gone, NotAFile, OpenJob, Place, Unreadable, open_directory
from profagentd.sources.job import JobSource
from tests.daemon.daemon_process import AICORE_DONE, make_job
from tests.daemon.privileges import without_privileges

NAME = b"data/aicore.0.model.3.0.1.1.0"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return make_job(tmp_path / "app")


@pytest.fixture
def files(job: Path, tmp_path: Path) -> Iterator[OpenJob]:
    with OpenJob(place_of(job, tmp_path)) as opened:
        yield opened


def place_of(job: Path, root: Path) -> Place:
    return Place(os.fsencode(root), os.fsencode(job.relative_to(root)))


def read(files: OpenJob, path: bytes) -> bytes:
    descriptor = files.open(path).descriptor
    try:
        return os.read(descriptor, 100)
    finally:
        os.close(descriptor)


def test_files_of_both_directories_are_read(files: OpenJob, job: Path) -> None:
    (job / os.fsdecode(NAME)).write_bytes(b"abc")
    assert read(files, NAME) == b"abc"
    assert read(files, b"info.json.0").startswith(b"{")
    assert files.status(NAME).st_size == 3


def test_a_link_is_no_file(files: OpenJob, job: Path) -> None:
    (job / os.fsdecode(NAME)).symlink_to("/etc/passwd")
    with pytest.raises(NotAFile):
        read(files, NAME)
    with pytest.raises(NotAFile):
        files.status(NAME)


def test_a_fifo_is_no_file_and_blocks_nobody(files: OpenJob, job: Path) -> None:
    os.mkfifo(job / os.fsdecode(NAME))
    with pytest.raises(NotAFile):
        read(files, NAME)


def test_a_data_directory_that_is_a_link_is_not_entered(files: OpenJob, job: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x").write_bytes(b"secret")
    (job / "data").rmdir()
    (job / "data").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Gone):
        read(files, b"data/x")


def test_a_job_reached_through_a_link_is_not_entered(job: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(job.parent)
    with pytest.raises(OSError, match="irectory"):
        open_directory(Place(os.fsencode(tmp_path), b"link/" + os.fsencode(job.name)))


def test_a_file_that_may_not_be_read_says_why(files: OpenJob, job: Path) -> None:
    (job / os.fsdecode(NAME)).write_bytes(b"abc")
    (job / os.fsdecode(NAME)).chmod(0)
    files.status(NAME)
    with without_privileges(), pytest.raises(Unreadable, match="denied"):
        read(files, NAME)


@pytest.mark.parametrize(("text", "length"), [(None, None), (b"", None), (b"file_len:1", None), (AICORE_DONE % 5, 5)])
def test_a_done_counts_when_it_parses(files: OpenJob, job: Path, text: bytes | None, length: int | None) -> None:
    if text is not None:
        (job / os.fsdecode(NAME + b".done")).write_bytes(text)
    assert files.announced_length(JobSource(), NAME) == length
