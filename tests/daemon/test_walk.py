"""Walking through a JOB directory in pages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profagentd.sources.files import Place
from profagentd.sources.job import JobSource
from profagentd.sources.walk import Page, Walk, look
from tests.daemon.daemon_process import make_job
from tests.daemon.privileges import public_directory, without_privileges

JOB = JobSource()


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return make_job(tmp_path)


def place(job: Path) -> Place:
    return Place(os.fsencode(job.parent), os.fsencode(job.name))


def pages(walk: Walk, limit: int) -> list[Page]:
    found = [walk.page(limit)]
    while not found[-1].is_last:
        found.append(walk.page(limit, paths(found)))
    return found


def paths(found: list[Page]) -> list[bytes]:
    return [each.path for page in found for each in page.logs]


def fill(job: Path, files: int) -> set[bytes]:
    for number in range(files):
        (job / "data" / f"aicore.0.m.3.0.1.1.{number}").write_bytes(b"x" * number)
        (job / "data" / f"aicore.0.m.3.0.1.1.{number}.done").write_bytes(b"")
    names = {f"data/aicore.0.m.3.0.1.1.{number}" for number in range(files)}
    return {name.encode() for name in names | {f"{name}.done" for name in names}} | {b"info.json.0"}


@pytest.mark.parametrize("limit", [1, 3, 7, 1000])
def test_every_file_comes_once(job: Path, limit: int) -> None:
    expected = fill(job, 10)
    found = pages(Walk(place(job), JOB), limit)
    assert sorted(paths(found)) == sorted(expected)
    assert all(len(page.logs) <= limit + 3 for page in found)


def test_tables_that_are_made_behind_the_walks_back_come_before_their_data(job: Path) -> None:
    walk = Walk(place(job), JOB)
    assert paths([walk.page(1)]) == [b"info.json.0"]
    for name in ("m.0.net.info", "m.0.layer.info", "aicore.0.m.3.0.1.1.0"):
        (job / "data" / name).write_bytes(b"x")
    rest = paths([walk.page(1000, [b"info.json.0"])])
    assert sorted(rest[:2]) == [b"data/m.0.layer.info", b"data/m.0.net.info"]
    assert rest[2:] == [b"data/aicore.0.m.3.0.1.1.0"]


def test_a_look_brings_what_must_be_announced_before(job: Path) -> None:
    core, cpu = (f"data/{unit}.0.m.3.0.1.1.0".encode() for unit in ("aicore", "aicpu"))
    for path in (core, cpu, core + b".done"):
        (job / path.decode()).write_bytes(b"")
    page = look(place(job), JOB, [core + b".done"])
    assert paths([page]) == [b"info.json.0", core, cpu, core + b".done"]
    assert paths([look(place(job), JOB, [core + b".done"], announced=None)]) == [core + b".done"]
    assert paths([look(place(job), JOB, [core + b".done"], announced={core, b"info.json.0"})]) == [cpu, core + b".done"]


def test_what_is_no_file_wants_look_and_the_data_directory_is_not(job: Path) -> None:
    (job / "deeper").mkdir()
    (job / "data" / "deeper").mkdir()
    (job / "data" / "data").mkdir()
    (job / "data" / "link").symlink_to("/etc/passwd")
    (page,) = pages(Walk(place(job), JOB), 100)
    assert sorted(page.odd) == [b"data/data", b"data/deeper", b"data/link", b"deeper"]


def test_of_a_job_that_is_gone_nothing_is_known(job: Path) -> None:
    fill(job, 10)
    walk = Walk(place(job), JOB)
    walk.page(2)
    job.rename(job.parent / "elsewhere")
    assert walk.page(2).is_job_gone


def test_a_job_that_may_not_be_read_says_so() -> None:
    with public_directory() as root:
        job = make_job(root)
        job.chmod(0)
        with without_privileges():
            (page,) = pages(Walk(place(job), JOB), 10)
        job.chmod(0o700)
    assert page.unreadable == "Permission denied"
    assert page.is_last
