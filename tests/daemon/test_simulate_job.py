"""The files of a JOB directory as the simulated library makes them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from profagentd.simulate import SimulationOptions, write_job
from profagentd.simulate.npu import JobWriter, job_name
from tests.daemon.simulated_job import FileEvents
from tests.fakes.small_disk import small_disk


@pytest.fixture
def umask_of_a_root_service() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def test_a_job_is_named_by_29_letters_and_has_a_data_folder(tmp_path: Path) -> None:
    job = JobWriter.create(tmp_path, Random(1))
    assert re.fullmatch("JOB[A-Z]{29}", job.directory.name)
    assert [path.name for path in job.directory.iterdir()] == ["data"]


def test_a_name_that_is_taken_is_drawn_again(tmp_path: Path) -> None:
    (tmp_path / job_name(Random(1))).mkdir()
    job = JobWriter.create(tmp_path, Random(1))
    assert len(list(tmp_path.iterdir())) == 2
    assert job.directory.name != job_name(Random(1))


def test_a_root_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        JobWriter.create(tmp_path / "absent", Random(1))


@pytest.mark.usefixtures("umask_of_a_root_service")
def test_modes_are_the_librarys_reduced_by_the_umask(tmp_path: Path) -> None:
    job = JobWriter.create(tmp_path, Random(1))
    job.append("aicore", b"x")
    job.rewrite("aicore.done", b"x")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (job.directory / "data").iterdir()}
    assert modes == {"aicore": 0o640, "aicore.done": 0o640}
    assert stat.S_IMODE((job.directory / "data").stat().st_mode) == 0o750


def test_appended_content_grows_and_rewritten_content_is_replaced(tmp_path: Path) -> None:
    job = JobWriter.create(tmp_path, Random(1))
    for content in (b"one", b"", b"three"):
        job.append("data", content)
        job.rewrite("small", content)
    job.rewrite_beside("info", b"{}")
    assert (job.directory / "data" / "data").read_bytes() == b"onethree"
    assert (job.directory / "data" / "small").read_bytes() == b"three"
    assert (job.directory / "info").read_bytes() == b"{}"


def test_a_file_is_closed_before_the_next_one_is_opened(tmp_path: Path) -> None:
    job = JobWriter.create(tmp_path, Random(1))
    events = FileEvents(job.directory / "data")
    job.append("aicore", b"x")
    job.rewrite("aicore.done", b"x")
    assert events.read() == [
        ("aicore", "created"),
        ("aicore", "closed"),
        ("aicore.done", "created"),
        ("aicore.done", "closed"),
    ]


def test_a_full_disk_loses_what_has_no_room_and_the_done_announces_it_all_the_same(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 256 * 1024) as disk:
        job = write_job(disk, SimulationOptions(layers=100), 30)
        data = [each for each in (job / "data").glob("aicore*") if each.suffix != ".done"]
        sizes = {each: each.stat().st_size for each in data}
        assert len(data) == 30
        assert sorted(sizes.values())[:3] == [0, 0, 0]
        whole = max(sizes, key=lambda each: sizes[each])
        assert f"file_len:{sizes[whole]}\n" in Path(f"{whole}.done").read_text("ascii")


def test_what_had_no_room_is_counted(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 64 * 1024) as disk:
        writer = JobWriter.create(disk, Random(1))
        for number in range(4):
            writer.append(f"aicore.{number}", bytes(32 * 1024))
        written = sum(file.stat().st_size for file in disk.rglob("aicore*"))
        assert writer.lost_bytes == 4 * 32 * 1024 - written > 0
