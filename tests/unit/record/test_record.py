"""When a capture ends, and what its view tells on the way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from profagent.cli.options import duration_s
from profagent.errors import UsageError
from profagent.formats.board_files import Done
from profagent.formats.names import parse_log_name
from profagent.ingest.changes import Entry, InferenceTimed, JobChanges, LinkLedger
from profagent.link.messages import JobStatus
from profagent.record.options import RecordOptions
from profagent.record.view import RecordView
from profagent.store.workspace import Workspace
from tests.unit.record.link import JOB
from tests.unit.watch.arriving_job import aicore_path

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
            "euler",
            RecordOptions(("euler",), Workspace(Path("w")), **options),
            self.told.append,
            self.stop,
        )

    def jobs(self, *states: tuple[str, bool]) -> bool:
        """Tell it of JOBs as (state, caught up); whether it stops."""
        jobs = [JobStatus(i, job_name(i), "/root", state, caught_up) for i, (state, caught_up) in enumerate(states)]
        self.view.jobs_changed(jobs)
        return self.stop.is_set()

    def removed(self, number: int = 0, *entries: Entry) -> bool:
        """Tell it what a JOB's removal means; whether it stops."""
        ledger = tuple(LinkLedger(None, entry) for entry in entries)
        self.view.changed(
            [JobChanges(job_name(number), "/root", ledger), JobChanges(job_name(number), "/root", (), "removed")]
        )
        return self.stop.is_set()

    def inference(self, pictures: int, load: int = 0, done: Done | None = DONE) -> bool:
        """Tell it of an inference; whether it stops."""
        name = parse_log_name(aicore_path(pictures))
        assert name is not None
        self.view.changed([JobChanges(JOB, "/root", (InferenceTimed(name, load, done),))])
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
    assert refused.value.hint == "write more than nothing, like 90s, 10m or 1h30m"


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
