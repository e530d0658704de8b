"""The JOBs of one program, and when all of them has come."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest

from profagent.link.messages import JobStatus, Loss, Received
from profagent.record import beginnings
from profagent.record.beginnings import MadeJobs
from profagent.record.options import RecordingOptions
from profagent.record.record import RunRecording
from profagent.store.store import Store
from profagent.store.workspace import Workspace
from tests.unit.record.link import Sender

JOB, OLD, LATER = ("JOB" + letter * 29 for letter in "ABC")


def status(state: str = "open", name: str = JOB, *, caught_up: bool = True, directory: str = "/out") -> JobStatus:
    return JobStatus(1, name, f"{directory}/{name}", state, caught_up)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> MadeJobs:
    monkeypatch.setattr(beginnings, "_LOOK_S", 0.001)
    jobs = MadeJobs("/out", {f"/out/{OLD}"})
    jobs.linked()
    jobs.begin()
    return jobs


def test_only_new_jobs_of_the_directory_are_the_programs(made: MadeJobs) -> None:
    assert made.wants(status(), listed=False)
    assert not made.wants(status(), listed=True)
    assert not made.wants(status(name=OLD), listed=False)
    assert not made.wants(status(directory="/out/deeper"), listed=False)


async def settled(
    made: MadeJobs, *names: str, stop: asyncio.Event | None = None, written: Collection[str] = ()
) -> tuple[bool, list[str]]:
    lines: list[str] = []

    async def written_to() -> Collection[str]:
        return written

    whole = await made.settled(names, stop or asyncio.Event(), lines.append, written_to)
    return whole, lines


async def test_a_finished_job_that_has_come_is_whole(made: MadeJobs) -> None:
    made.jobs_changed([status("finished")])
    assert await settled(made, JOB) == (True, [])
    assert made.has_ended


@pytest.mark.parametrize("jobs", [[], [status(caught_up=False)], [status("finished", caught_up=False)]])
async def test_what_does_not_come_is_told(
    made: MadeJobs, jobs: list[JobStatus], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beginnings, "REST_S", 0.0)
    monkeypatch.setattr(beginnings, "SILENCE_S", 0.02)
    made.jobs_changed(jobs)
    whole, lines = await settled(made, JOB)
    assert not whole
    assert "stays on the board" in lines[0]


async def test_a_link_that_is_away_is_waited_for(made: MadeJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beginnings, "SILENCE_S", 0.0)
    made.jobs_changed([status(caught_up=False)])
    made.unlinked()
    waiting = asyncio.create_task(settled(made, JOB))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    monkeypatch.setattr(beginnings, "SILENCE_S", 60.0)
    made.linked()
    made.jobs_changed([status("finished")])
    assert await waiting == (True, [])


async def test_what_came_before_the_program_was_started_is_not_its_own_and_not_waited_for() -> None:
    made = MadeJobs("/out", ())
    made.linked()
    assert not made.wants(status(name=OLD), listed=False)
    made.begin()
    assert made.wants(status(), listed=False)
    made.jobs_changed([status("finished")])
    assert await settled(made, JOB, OLD) == (True, [])


async def test_a_job_that_goes_on_growing_is_not_waited_for(made: MadeJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beginnings, "REST_S", 0.01)
    made.jobs_changed([status(caught_up=False), status("finished", LATER)])
    assert await settled(made, JOB, LATER, written=[JOB]) == (False, [])
    assert made.growing == {JOB}


async def test_losses_that_the_board_keeps_of_other_jobs_are_left_to_the_next_session(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    with workspace.locked():
        async with Store(workspace.database) as store:
            recording = RunRecording(workspace, store, RecordingOptions(lambda: 1, source="collect", always_new=True))
            sender = Sender(recording)
            await sender.open()
            for number, job in enumerate((OLD, sender.job), 1):
                loss = Loss(0, 0, "disk-full", "no space", 0, number, job, 10, 20)
                await sender.happen(Received("", None, loss))
            told = (await recording.session.summary())["kept_losses"]
            assert [loss["job"] for loss in told] == [sender.job]
