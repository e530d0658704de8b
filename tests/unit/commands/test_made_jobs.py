"""The JOBs of one program, and when all of them has come."""

from __future__ import annotations

import asyncio

import pytest

from profagent.commands import made_jobs
from profagent.commands.made_jobs import MadeJobs
from profagent.link.messages import JobStatus

JOB, OLD = "JOB" + "A" * 29, "JOB" + "B" * 29


def status(state: str = "open", name: str = JOB, *, caught_up: bool = True, directory: str = "/out") -> JobStatus:
    return JobStatus(1, name, f"{directory}/{name}", state, caught_up)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> MadeJobs:
    monkeypatch.setattr(made_jobs, "_LOOK_S", 0.001)
    jobs = MadeJobs("/out", {OLD})
    jobs.linked()
    return jobs


def test_only_new_jobs_of_the_directory_are_the_programs() -> None:
    made = MadeJobs("/out", {OLD})
    assert made.wants(status(), listed=False)
    assert not made.wants(status(), listed=True)
    assert not made.wants(status(name=OLD), listed=False)
    assert not made.wants(status(directory="/out/deeper"), listed=False)


async def test_a_program_waits_until_the_board_has_listed_its_jobs(made: MadeJobs) -> None:
    waiting = asyncio.create_task(made.ready())
    await asyncio.sleep(0)
    assert not waiting.done()
    made.jobs_changed([])
    await waiting


async def settled(made: MadeJobs, *names: str, stop: asyncio.Event | None = None) -> tuple[bool, list[str]]:
    lines: list[str] = []
    whole = await made.settled(names, stop or asyncio.Event(), lines.append)
    return whole, lines


async def test_a_finished_job_that_has_come_is_whole(made: MadeJobs) -> None:
    made.jobs_changed([status("finished")])
    assert await settled(made, JOB) == (True, [])
    assert made.has_ended


async def test_without_a_job_nothing_is_waited_for(made: MadeJobs) -> None:
    assert await settled(made) == (True, [])


async def test_an_open_job_is_whole_when_it_rests(made: MadeJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_jobs, "REST_S", 0.01)
    made.jobs_changed([status()])
    assert await settled(made, JOB) == (True, [])


@pytest.mark.parametrize("jobs", [[], [status(caught_up=False)], [status("finished", caught_up=False)]])
async def test_what_does_not_come_is_told(
    made: MadeJobs, jobs: list[JobStatus], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made_jobs, "REST_S", 0.0)
    monkeypatch.setattr(made_jobs, "SILENCE_S", 0.02)
    made.jobs_changed(jobs)
    whole, lines = await settled(made, JOB)
    assert not whole
    assert "stays on the board" in lines[0]


async def test_a_link_that_is_away_is_waited_for(made: MadeJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_jobs, "SILENCE_S", 0.0)
    made.jobs_changed([status(caught_up=False)])
    made.unlinked()
    waiting = asyncio.create_task(settled(made, JOB))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    monkeypatch.setattr(made_jobs, "SILENCE_S", 60.0)
    made.linked()
    made.jobs_changed([status("finished")])
    assert await waiting == (True, [])


async def test_a_stop_ends_the_wait(made: MadeJobs) -> None:
    stop = asyncio.Event()
    stop.set()
    assert await settled(made, JOB, stop=stop) == (False, [])
