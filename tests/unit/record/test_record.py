"""When a capture ends, and what its view tells on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from profagent.cli.options import duration_s
from profagent.errors import UsageError
from profagent.formats.board_files import Done
from profagent.formats.names import parse_log_name
from profagent.ingest.changes import InferenceTimed, JobChanges, LinkLedger
from profagent.ledger import Entry
from profagent.link.coverage import Standing
from profagent.link.messages import JobMeasure, JobStatus, Loss, Received
from profagent.record import beginnings
from profagent.record.beginnings import ProgramJobs
from profagent.record.options import RecordingOptions, RecordOptions
from profagent.record.record import BoardRecord, RunRecording, before_line, record
from profagent.record.recording import Recording
from profagent.record.view import RecordView
from profagent.store.store import Store
from profagent.store.workspace import Workspace
from profagent.store.writer import Applied
from profagent_wire.v1 import board_pb2 as wire
from tests.fakes.malicious_board import GOOD, Script, Talk, announced, listed, malicious, welcome, whole
from tests.fakes.malicious_board import job as told
from tests.fakes.spooled import METRICS
from tests.unit.record.link import JOB, Sender
from tests.unit.watch.arriving_job import aicore_path, records

DONE = Done(file_len=256, start_us=5, end_us=9, cache_hit=1, cache_miss=1)


LOSS = Entry("loss", "removed-open", "gone")


def job_name(number: int) -> str:
    return "JOB" + "ABC"[number] * 29


class Viewed:
    """A view of a recording, and what it did."""

    def __init__(self, **options: Any) -> None:
        self.told: list[str] = []
        self.stop = asyncio.Event()
        self.view = RecordView(
            "euler", RecordOptions(("euler",), Workspace(Path("w")), **options), self.told.append, self.stop
        )

    def jobs(self, *states: tuple[str, bool]) -> bool:
        """Tell it of JOBs as (state, caught up); whether it stops."""
        jobs = [JobStatus(i, job_name(i), "/root", state, caught_up) for i, (state, caught_up) in enumerate(states)]
        self.view.jobs_changed(jobs)
        return self.stop.is_set()

    def removed(self, number: int = 0, *entries: Entry) -> bool:
        """Tell it what a JOB's removal means; whether it stops."""
        ledger = tuple(LinkLedger(None, entry) for entry in entries)
        name = job_name(number)
        batches = JobChanges(name, "/root", ledger), JobChanges(name, "/root", (), "removed")
        self.view.changed([*map(Applied, batches)])
        return self.stop.is_set()

    def inference(self, pictures: int, load: int = 0, done: Done | None = DONE) -> bool:
        """Tell it of an inference; whether it stops."""
        name = parse_log_name(aicore_path(pictures))
        assert name is not None
        self.view.changed([Applied(JobChanges(JOB, "/root", (InferenceTimed(name, load, done),)))])
        return self.stop.is_set()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("0.5s", 0.5), ("10m", 600), ("1h30m", 5400), ("1h2m3.5s", 3723.5), (" 2m ", 120)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5s", "5 s", "1d", "30m1h", "s", "1.5h", "0", "0s", "0.0s", "0h0m"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        duration_s(text)
    assert refused.value.hint == "write a time above zero, such as 90s, 10m or 1h30m"


def test_until_finished_ends_when_all_have_ended_and_come() -> None:
    viewed = Viewed(until_finished=True)
    assert not viewed.jobs()
    assert not viewed.jobs(("open", True))
    assert not viewed.jobs(("finished", False))
    assert not viewed.jobs(("finished", True), ("open", True))
    assert not viewed.jobs(("finished", True), ("quiet", True), ("removed", False))
    assert viewed.removed(2)


def test_until_finished_takes_a_job_that_was_removed_after_it_had_ended_as_over() -> None:
    viewed = Viewed(until_finished=True)
    viewed.removed()
    assert not viewed.jobs(("open", True))
    assert viewed.jobs()


def test_a_job_that_was_removed_before_it_had_ended_is_told_and_over() -> None:
    viewed = Viewed(until_finished=True)
    assert not viewed.jobs(("open", True))
    assert not viewed.jobs(("removed", True))
    assert viewed.removed(0, LOSS)
    assert viewed.told == [f"{job_name(0)} was removed from the board before it had ended"]


def test_more_inferences_than_were_asked_for_are_told() -> None:
    viewed = Viewed(inferences=2)
    for pictures in range(2):
        viewed.inference(pictures)
    viewed.view.tell_surplus()
    assert viewed.told == []
    viewed.inference(2)
    viewed.view.tell_surplus()
    assert viewed.told == ["asked for 2 inferences, got 3: what came together is kept together"]


@pytest.mark.parametrize(
    ("held", "copied", "here", "amount"),
    [
        (JobMeasure(30_000_000, 201, is_all=True), 0, 0, "201 inferences (30.0 MB)"),
        (JobMeasure(30_000_000, 201, is_all=True), 20_000_000, 200, "1 inference (10.0 MB)"),
        (JobMeasure(30_000_000, 201, is_all=False), 29_000_000, 205, "more than 0 inferences (1.0 MB)"),
    ],
)
def test_of_what_a_job_holds_that_is_said_which_is_not_here(
    held: JobMeasure, copied: int, here: int, amount: str
) -> None:
    said = f"{JOB} holds {amount} that came before: copying that first. --from-now leaves it out"
    assert before_line(JOB, held, copied, here) == said


# The JOBs of one program, and when all of them has come

MADE_JOB, OLD, LATER = ("JOB" + letter * 29 for letter in "ABC")


def status(state: str = "open", name: str = MADE_JOB, *, caught_up: bool = True, directory: str = "/out") -> JobStatus:
    return JobStatus(1, name, f"{directory}/{name}", state, caught_up)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> ProgramJobs:
    monkeypatch.setattr(beginnings, "_LOOK_S", 0.001)
    jobs = ProgramJobs("/out", {f"/out/{OLD}"})
    jobs.linked()
    jobs.begin()
    return jobs


def test_only_new_jobs_of_the_directory_are_the_programs(made: ProgramJobs) -> None:
    assert made.wants(status(), listed=False)
    assert not made.wants(status(), listed=True)
    assert not made.wants(status(name=OLD), listed=False)
    assert not made.wants(status(directory="/out/deeper"), listed=False)


async def settled(
    made: ProgramJobs, *names: str, stop: asyncio.Event | None = None, written: Collection[str] = ()
) -> tuple[bool, list[str]]:
    lines: list[str] = []

    async def written_to() -> Collection[str]:
        return written

    whole = await made.settled(names, stop or asyncio.Event(), lines.append, written_to)
    return whole, lines


async def test_a_finished_job_that_has_come_is_whole(made: ProgramJobs) -> None:
    made.jobs_changed([status("finished")])
    assert await settled(made, MADE_JOB) == (True, [])
    assert made.has_ended


@pytest.mark.parametrize("jobs", [[], [status(caught_up=False)], [status("finished", caught_up=False)]])
async def test_what_does_not_come_is_told(
    made: ProgramJobs, jobs: list[JobStatus], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beginnings, "REST_S", 0.0)
    monkeypatch.setattr(beginnings, "GONE_S", 0.02)
    made.jobs_changed(jobs)
    whole, lines = await settled(made, MADE_JOB)
    assert not whole
    assert "stays on the board" in lines[0]


async def test_a_link_that_is_away_is_waited_for(made: ProgramJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beginnings, "GONE_S", 0.0)
    made.jobs_changed([status(caught_up=False)])
    made.unlinked()
    waiting = asyncio.create_task(settled(made, MADE_JOB))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    monkeypatch.setattr(beginnings, "GONE_S", 60.0)
    made.linked()
    made.jobs_changed([status("finished")])
    assert await waiting == (True, [])


async def test_what_came_before_the_program_was_started_is_not_its_own_and_not_waited_for() -> None:
    made = ProgramJobs("/out", ())
    made.linked()
    assert not made.wants(status(name=OLD), listed=False)
    made.begin()
    assert made.wants(status(), listed=False)
    made.jobs_changed([status("finished")])
    assert await settled(made, MADE_JOB, OLD) == (True, [])


async def test_a_job_that_goes_on_growing_is_not_waited_for(made: ProgramJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beginnings, "REST_S", 0.01)
    made.jobs_changed([status(caught_up=False), status("finished", LATER)])
    assert await settled(made, MADE_JOB, LATER, written=[MADE_JOB]) == (False, [])
    assert made.growing == {MADE_JOB}


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


# What a capture claims at its end

OPEN_JOB = JobStatus(1, JOB, f"/root/{JOB}", "open", caught_up=True)
# The race of a spool that ends with its JOB: the board had not said yet that it has come.
ENDED_SPOOL = JobStatus(2, METRICS, f"/root/{METRICS}", "finished", caught_up=False, source="metrics")


async def claimed(
    folder: Path, *, has_synced: bool, standing: Standing = Standing.COVERED, has_records: bool = True, **options: Any
) -> dict[str, Any]:
    """The summary of a capture that is stopped while a JOB is open and a spool has just ended."""
    workspace = Workspace(folder)
    async with Store(workspace.database) as store:
        asked = RecordOptions(("euler",), workspace, **options)
        recorded = BoardRecord("euler", asked, store, lambda _: None)
        sender = Sender(recorded._recording)
        await sender.open()
        if has_records:
            await sender.send(aicore_path(), records(3))
        recorded._view.jobs = [OPEN_JOB, ENDED_SPOOL]
        recorded._capture.session.has_synced = has_synced
        recorded._capture.coverage.stand(standing, 2**50, detail="reset by peer")
        await recorded._end()
        return await recorded.summary()


@pytest.mark.parametrize(
    ("chosen", "why", "code"),
    [
        ({"has_synced": True}, [], 0),
        ({"has_synced": False, "standing": Standing.AWAY}, ["a part of METRICS", "the link is down since"], 4),
        (
            {"has_synced": False, "standing": Standing.SILENT},
            ["a part of METRICS", "the board has not spoken since"],
            4,
        ),
        ({"has_synced": False, "standing": Standing.PAUSED}, ["a part of METRICS", "paused since"], 4),
        ({"has_synced": True, "until_finished": True}, [f"stopped early: {JOB} had not ended"], 4),
        ({"has_synced": True, "inferences": 5}, ["stopped early: 0 of 5 inferences came"], 4),
        ({"has_synced": True, "has_records": False}, ["nothing recorded:"], 0),
        ({"has_synced": True, "has_records": False, "inferences": 1}, ["0 of 1 inference", "nothing recorded:"], 4),
    ],
    ids=["has all", "away", "silent", "paused", "not finished", "too few", "nothing", "nothing that was waited for"],
)
async def test_what_a_capture_claims_at_its_end(
    tmp_path: Path, chosen: dict[str, Any], why: list[str], code: int
) -> None:
    summary = await claimed(tmp_path, **chosen)
    assert (summary["complete"], summary["exit_code"]) == (not why, code)
    assert len(summary["incomplete"]) == len(why)
    assert all(part in text for part, text in zip(why, summary["incomplete"], strict=True))


async def test_of_a_job_that_goes_on_nothing_is_left_behind_if_the_board_says_so(tmp_path: Path) -> None:
    summary = await claimed(tmp_path, has_synced=True, until_finished=True)
    assert summary["not_copied"] == {JOB: 0}


# Boards that lie, beside one that does not


def speaking(identity: str, *jobs: wire.ServerMessage, followed: Callable[[], object] = lambda: None) -> Script:
    """A board that sends one JOB with one log, or tells of `jobs` and sends nothing of them."""

    def play(talk: Talk) -> Iterator[wire.ServerMessage]:
        talk.until("open")
        yield welcome(identity=identity)
        yield from jobs or (told(),)
        yield listed()
        if not jobs:
            talk.until("select")
            yield announced(GOOD)
            talk.until("holdings")
            yield whole()
            yield told(state=wire.JOB_STATE_FINISHED, caught_up=True)
        for _ in jobs:
            talk.until("select")
        followed()
        yield from talk.beats()

    return play


class Failing(Recording):
    """A recording that comes upon something nobody has thought of, of one of the boards."""

    async def take(self, *args: Any, **named: Any) -> Any:
        if self._identity == "other":
            raise OverflowError("Python int too large to convert to SQLite INTEGER")
        return await super().take(*args, **named)


async def test_a_fault_behind_one_board_ends_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profagent.record.record.Recording", Failing)
    lines: list[str] = []
    with malicious(speaking("good")) as good, malicious(speaking("other")) as other:
        options = RecordOptions((other.address, good.address), Workspace(tmp_path), until_finished=True)
        summary = await record(options, lines.append, asyncio.Event())
    failed, fine = summary["boards"]
    assert (fine["session"]["board"], fine["error"], fine["session"]["records"]["aicore"]) == ("good", None, 3)
    assert (failed["session"]["board"], failed["exit_code"], failed["complete"]) == ("other", 1, False)
    assert "OverflowError" in failed["error"]
    assert sum("OverflowError" in line for line in lines) == 1


async def test_a_board_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    def hung(talk: Talk) -> Iterator[wire.ServerMessage]:
        yield welcome(identity="hung")
        talk.until("what never comes")

    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def script(talk: Talk) -> Iterator[wire.ServerMessage]:
        try:
            yield from speaking("good")(talk)
        finally:  # all was taken: this host has ended the stream
            loop.call_soon_threadsafe(stop.set)

    with malicious(hung) as other, malicious(script) as good:
        options = RecordOptions((other.address, good.address), Workspace(tmp_path), until_finished=True)
        hanging, fine = (await record(options, print, stop))["boards"]
    assert (fine["session"]["board"], fine["complete"], fine["session"]["records"]["aicore"]) == ("good", True, 3)
    assert (hanging["session"]["board"], hanging["complete"], hanging["exit_code"]) == ("hung", False, 4)


async def test_many_jobs_that_were_not_copied_are_in_the_ledger_and_some_are_named(tmp_path: Path) -> None:
    many = [told("JOB" + chr(65 + number // 26) + chr(65 + number % 26) * 28, number + 1) for number in range(30)]
    lines: list[str] = []
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    with malicious(speaking("many", *many, followed=lambda: loop.call_soon_threadsafe(stop.set))) as board:
        options = RecordOptions((board.address,), Workspace(tmp_path))
        summary = await record(options, lines.append, stop)
    assert sum(line.startswith("stopped early: ") for line in lines) == 10
    assert "the same of 20 other JOBs: `profagent ledger` lists them" in lines
    assert summary["ledger"]["note"]["stopped-early"] == 30
