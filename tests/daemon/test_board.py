"""The board's JOBs, their states and those who are told; the clock is turned, the files are real."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from profagentd.follow import registry as module
from profagentd.follow.log import FileEvent
from profagentd.follow.registry import Job, JobRegistry
from profagentd.sources.job import Place
from profagentd.sources.state import JobState, since_boot_us
from tests.daemon.clocks import WALL_US, FakeClock
from tests.daemon.daemon_process import API_DONE, make_job
from tests.daemon.waiting import run_until

QUIET_S = 60.0
YEAR_NS = 365 * 86_400 * 1_000_000_000


class Listening:
    """What was told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []

    def job_changed_state(self, job: Job) -> None:
        self.told.append(("state", job.state))

    def names_changed(self, job: Job, touches: Mapping[bytes, FileEvent]) -> None:
        self.told.append(("names", dict(touches)))

    def names_removed(self, job: Job) -> None:
        self.told.append(("removed", job.name))

    def anything_changed(self, job: Job) -> None:
        self.told.append(("anything", job.name))


class Bench:
    """A board below one root, told of JOBs by hand, and what it says of them."""

    def __init__(self, root: Path) -> None:
        self.clock = FakeClock()
        self.board = JobRegistry(self.clock, QUIET_S)
        self.listening = Listening()
        self.board.add_listener(self.listening)
        self.root = root

    def find(self, number: int = 0, *, age_s: float = 0.0, is_scanned: bool = False, ended: bool = False) -> Job:
        """A JOB whose newest name is so old."""
        path = make_job(self.root, number)
        if ended:
            (path / "data" / "acl_api.0.m.0").write_bytes(b"x")
            (path / "data" / "acl_api.0.m.0.done").write_bytes(API_DONE % 1)
        place = Place(os.fsencode(self.root), os.fsencode(path.name))
        changed = WALL_US - round(age_s * 1_000_000)
        self.board.found(place, changed, changed, is_scanned=is_scanned)
        return next(job for job in self.board.jobs if job.name == path.name)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Let time pass until it is so."""
        await run_until(self.board.keep_states(), is_so)


@pytest.fixture
async def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_a_found_job_is_told_and_open(bench: Bench) -> None:
    job = bench.find()
    assert bench.listening.told == [("state", JobState.OPEN)]
    assert bench.board.has(job.place)
    assert job.changed_wall_us == WALL_US


async def test_a_job_that_was_at_rest_before_it_was_found_is_quiet_at_once(bench: Bench) -> None:
    assert bench.find(age_s=QUIET_S).state is JobState.QUIET


async def test_jobs_come_oldest_first(bench: Bench) -> None:
    young, old = bench.find(0, age_s=1.0), bench.find(1, age_s=2.0)
    assert bench.board.jobs == [old, young]


async def test_a_job_that_has_ended_is_finished_after_two_seconds(bench: Bench) -> None:
    job = bench.find(ended=True)
    await bench.until(lambda: job.state is JobState.FINISHED)
    assert bench.clock.now - 100.0 >= 2.0


async def test_a_job_that_has_not_ended_is_quiet_after_its_time(bench: Bench) -> None:
    job = bench.find()
    await bench.until(lambda: job.state is JobState.QUIET)
    assert QUIET_S <= bench.clock.now - 100.0 < QUIET_S + 5.0
    assert bench.listening.told == [("state", JobState.OPEN), ("state", JobState.QUIET)]


async def test_a_change_that_waits_to_be_told_keeps_a_job_open(bench: Bench) -> None:
    """Time has passed while the daemon stood still, and the kernel's notices are not taken yet."""
    job = bench.find(ended=True)
    waiting = [{b"a": FileEvent.WRITTEN}]

    def catch_up() -> None:
        if waiting:
            bench.board.changed(job.place, waiting.pop())

    bench.board.catch_up = catch_up
    bench.clock.advance(5.0)
    await bench.until(lambda: job.state is JobState.FINISHED)
    assert bench.listening.told == [
        ("state", JobState.OPEN),
        ("names", {b"a": FileEvent.WRITTEN}),
        ("state", JobState.FINISHED),
    ]
    assert bench.clock.now - 105.0 >= 2.0


async def test_a_change_opens_it_and_is_told(bench: Bench) -> None:
    job = bench.find(age_s=QUIET_S)
    bench.clock.advance(5.0)
    bench.listening.told.clear()
    bench.board.changed(job.place, {b"a": FileEvent.WRITTEN})
    assert bench.listening.told == [("state", JobState.OPEN), ("names", {b"a": FileEvent.WRITTEN})]
    assert job.changed_wall_us == WALL_US + 5_000_000


async def test_names_that_go_are_told_and_are_no_sign_of_work(bench: Bench) -> None:
    job = bench.find(ended=True)
    await bench.until(lambda: job.state is JobState.FINISHED)
    bench.listening.told.clear()
    bench.board.changed(job.place, {b"a": FileEvent.DELETED, b"b": FileEvent.MOVED})
    bench.board.names_removed(job.place)
    assert bench.listening.told == [("names", {b"a": FileEvent.DELETED, b"b": FileEvent.MOVED}), ("removed", job.name)]
    bench.board.changed(job.place, {b"a": FileEvent.DELETED | FileEvent.MADE})
    assert bench.listening.told[2] == ("state", JobState.OPEN)


async def test_doubt_and_removal_are_told(bench: Bench) -> None:
    job = bench.find()
    bench.listening.told.clear()
    bench.board.unsure(job.place)
    bench.board.names_removed(job.place)
    assert bench.listening.told == [("anything", job.name), ("removed", job.name)]


async def test_a_job_that_is_gone_is_told_and_forgotten(bench: Bench) -> None:
    job = bench.find()
    bench.board.gone(job.place)
    bench.board.gone(job.place)
    assert bench.listening.told == [("state", JobState.OPEN), ("state", JobState.REMOVED)]
    assert bench.board.jobs == []
    assert not bench.board.has(job.place)


async def test_what_is_told_of_an_unknown_job_is_passed_over(bench: Bench) -> None:
    place = Place(b"/r", b"JOB")
    for tell in (bench.board.unsure, bench.board.names_removed, bench.board.gone):
        tell(place)
    bench.board.changed(place, {})
    bench.board.seen(place, 5.0)
    assert bench.listening.told == []


async def test_a_listener_that_left_is_told_nothing(bench: Bench) -> None:
    bench.board.remove_listener(bench.listening)
    bench.find()
    assert bench.listening.told == []


async def test_a_job_that_is_looked_at_rests_only_as_far_as_it_was_seen(bench: Bench) -> None:
    scanned, noticed = bench.find(0, is_scanned=True), bench.find(1)
    await bench.until(lambda: noticed.state is JobState.QUIET)
    assert scanned.state is JobState.OPEN
    bench.board.seen(scanned.place, 100.0 + QUIET_S)
    await bench.until(lambda: scanned.state is JobState.QUIET)


async def test_a_program_with_the_npu_open_keeps_a_job_open(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [True, True, False]
    monkeypatch.setattr(module, "is_npu_open", lambda _before: answers.pop(0))
    job = bench.find()
    await bench.until(lambda: job.state is JobState.QUIET)
    assert answers == []
    assert bench.clock.now - 100.0 >= QUIET_S + 10.0


async def test_a_clock_that_is_set_makes_no_program_younger_than_its_job(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def is_open(before_us: int) -> bool:
        asked.append(before_us)
        return False

    monkeypatch.setattr(module, "is_npu_open", is_open)
    job, other = bench.find(0), bench.find(1)
    expected = since_boot_us(WALL_US)
    now_ns = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now_ns + YEAR_NS)
    await bench.until(lambda: job.state is other.state is JobState.QUIET)
    assert asked == [pytest.approx(expected, abs=1_000_000, rel=0)] * 2


async def test_a_client_waits_until_all_jobs_were_looked_at(bench: Bench) -> None:
    await asyncio.wait_for(bench.board.know_all(), 1.0)
    job = bench.find(age_s=5.0, ended=True)
    known = asyncio.ensure_future(bench.board.know_all())
    await asyncio.sleep(0)
    assert not known.done()
    await bench.until(known.done)
    assert job.state is JobState.FINISHED


async def test_a_client_does_not_wait_for_ever(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KNOW_ALL_S", 0.01)
    bench.find()
    await asyncio.wait_for(bench.board.know_all(), 5.0)


async def test_a_job_that_goes_before_it_was_looked_at_keeps_nobody_waiting(bench: Bench) -> None:
    bench.board.gone(bench.find().place)
    await asyncio.wait_for(bench.board.know_all(), 1.0)
