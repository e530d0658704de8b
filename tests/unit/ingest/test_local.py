"""A JOB directory on this machine: what is listed, in which order it is read, and what is not a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagent.errors import UnsupportedBoardError, UsageError
from profagent.ingest.changes import LinkLedger
from profagent.ingest.local import LocalJob, list_job
from tests.fakes.dumps import write_files
from tests.fakes.small_job import PLAIN, SMALL_JOB


def test_a_data_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    write_files(tmp_path / "elsewhere", SMALL_JOB)
    job = write_files(tmp_path / "job", {"info.json.0": SMALL_JOB["info.json.0"]})
    (job / "data").symlink_to(tmp_path / "elsewhere" / "data")
    assert list_job(job).files == ("info.json.0",)
    assert list_job(job).others == ("data",)


@pytest.mark.parametrize("make", [lambda path: None, Path.mkdir, lambda path: path.write_bytes(b"")])
def test_what_is_no_job_is_told(tmp_path: Path, make: object) -> None:
    folder = tmp_path / "JOB"
    make(folder)  # type: ignore[operator]
    with pytest.raises(UsageError) as caught:
        list_job(folder)
    assert "-dir" in caught.value.hint or "itself" in caught.value.hint


def test_a_job_of_another_soc_is_refused_by_its_names(tmp_path: Path) -> None:
    write_files(tmp_path, {"data/aicore.0.1.1": b"", "data/aicore.0.1.1.done": b""})
    with pytest.raises(UnsupportedBoardError, match="Hi3519DV500"):
        list_job(tmp_path)


def test_a_file_that_vanishes_is_a_loss(tmp_path: Path) -> None:
    listing = list_job(write_files(tmp_path, SMALL_JOB))
    (tmp_path / PLAIN).unlink()
    changes = [change for each in LocalJob(tmp_path, listing).changes() for change in each]
    (lost,) = [change for change in changes if isinstance(change, LinkLedger)]
    assert (lost.path, lost.entry.grade, lost.entry.reason) == (PLAIN, "loss", "unreadable")
