"""How much a JOB holds: counted in slices, on a real daemon, and of a root that does not answer."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, cast

import grpc
import grpc.aio
import pytest

from profagent_wire.v1 import board_pb2 as wire
from profagent_wire.v1.board_pb2_grpc import BoardStub
from profagentd.errors import Refusal
from profagentd.follow.registry import Job
from profagentd.loop import SystemClock
from profagentd.sources import measure
from profagentd.sources.job import DirectoryId, Place, directory_id
from profagentd.sources.measure import LOOK_S, Measure, Measurer
from profagentd.sources.state import JobStateTracker
from tests.daemon.clocks import FakeClock
from tests.daemon.daemon_process import job_name, make_job
from tests.daemon.own_daemon import own_daemon
from tests.daemon.privileges import public_directory, without_privileges
from tests.daemon.test_opening import open_descriptors

if TYPE_CHECKING:
    from profagent_wire.v1.board_pb2_grpc import BoardAsyncStub

# Three inferences: of one unit each, and of both.
NAMES = [f"aicore.0.m.3.0.1.1.{number}" for number in (0, 2)] + [f"AAcpu.0.m.3.0.1.1.{number}" for number in (1, 2)]
NAMES += [
    "aicpu.0.m.3.0.1.1.2",
    "aicore.0.m.3.0.1.1.2.done",
    "acl_api.0.m.0",
    "m.0.net.info",
    "aicpu.0.m.3.0.1.1.9.done",
]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A JOB of 10 files and 4 inferences; what is no file does not count."""
    made = make_job(tmp_path / "root")
    for name in NAMES:
        (made / "data" / name).write_bytes(b"abc")
    (made / "data" / "deeper").mkdir()
    (made / "data" / "aicore.0.m.3.0.1.1.7").symlink_to("/etc/passwd")
    return made


def holds(job: Path) -> tuple[int, int, int]:
    return len(NAMES) + 1, 3 * len(NAMES) + (job / "info.json.0").stat().st_size, 4


def known(job: Path, directory: DirectoryId | None = None) -> Job:
    place = Place(os.fsencode(job.parent), os.fsencode(job.name))
    return Job(place, 1, 1, JobStateTracker(0.0, 60.0), is_scanned=False, directory=directory)


@pytest.mark.parametrize("files", [1, 3, 1000])
def test_a_job_is_counted_in_slices(job: Path, files: int) -> None:
    before = open_descriptors()
    found = Measure(known(job).place)
    while not found.is_all:
        found.look(files)
    assert (found.logs, found.bytes, found.inferences) == holds(job)
    assert open_descriptors() == before


def test_a_measure_that_is_given_up_leaves_nothing_open(job: Path) -> None:
    before = open_descriptors()
    found = Measure(known(job).place)
    found.look(3)
    assert not found.is_all
    assert open_descriptors() > before
    del found
    assert open_descriptors() == before


def test_a_job_without_data_yet_has_its_own_files(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    (job / "data").rmdir()
    found = Measure(known(job).place)
    found.look(10)
    assert (found.logs, found.inferences, found.is_all) == (1, 0, True)


async def test_counting_ends_in_time(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(measure, "SLICE_FILES", 2)
    look = Measure.look

    def look_for_long(self: Measure, files: int) -> None:
        look(self, files)
        clock.now += LOOK_S / 2

    monkeypatch.setattr(Measure, "look", look_for_long)
    found = await Measurer(clock).measure(known(job))
    assert (found.logs <= 4, found.is_all) == (True, False)


async def test_a_root_that_does_not_answer_is_waited_for_once(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, looks = threading.Event(), []

    def hang(_self: Measure, files: int) -> None:
        looks.append(files)
        go_on.wait()

    monkeypatch.setattr(Measure, "look", hang)
    measurer = Measurer(SystemClock())
    monkeypatch.setattr(measure, "PATIENCE_S", 0.01)
    try:
        assert [(await measurer.measure(known(job))).is_all for _ in range(2)] == [False, False]
        assert len(looks) <= 1
    finally:
        go_on.set()


def replaced(job: Path) -> DirectoryId:
    """Another JOB takes its place; what it was."""
    directory = directory_id(job.stat())
    job.rename(job.with_name("elsewhere"))
    make_job(job.parent)
    return directory


async def test_a_job_that_is_gone_is_not_measured(job: Path) -> None:
    directory = replaced(job)
    with pytest.raises(Refusal, match="gone"):
        await Measurer(SystemClock()).measure(known(job, directory))


async def test_a_job_that_cannot_be_read_may_hold_more() -> None:
    with public_directory() as root:
        job = make_job(root)
        (job / "data").chmod(0)
        with without_privileges():
            found = await Measurer(SystemClock()).measure(known(job))
        (job / "data").chmod(0o700)
    assert (found.logs, found.is_all) == (1, False)


async def test_a_daemon_measures_the_jobs_that_it_knows(job: Path) -> None:
    async with own_daemon(job.parent) as (address, _), grpc.aio.insecure_channel(address) as channel:
        stub = cast("BoardAsyncStub", BoardStub(channel))
        requests = [wire.MeasureJobRequest(name=job.name)] * 3
        for found in await asyncio.gather(*map(stub.MeasureJob, requests)):
            assert (found.logs, found.bytes, found.inferences) == holds(job)
            assert found.is_all
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.MeasureJob(wire.MeasureJobRequest(name=job_name(7)))
        assert raised.value.code() is grpc.StatusCode.NOT_FOUND
