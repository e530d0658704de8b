"""The wire's messages say what the daemon's values say."""

from __future__ import annotations

import enum
from typing import Any

import pytest

from profagent_wire.v1 import board_pb2 as wire
from profagentd.examine import IdentitySource
from profagentd.follow import messages
from profagentd.follow.log import Chunk, Event, Log, Loss, LossReason, Removed, StartReason
from profagentd.follow.registry import Job, JobStateTracker
from profagentd.follow.session import Following
from profagentd.follow.table import CHUNK_BYTES as LARGE_BYTES
from profagentd.follow.table import PIECE_BYTES as SMALL_BYTES
from profagentd.sources.files import Place
from profagentd.sources.source import LogKind
from profagentd.sources.state import JobState
from profagentd.sources.walk import Sighting
from tests.daemon.daemon_process import job_name


def only(*events: Event) -> wire.Event:
    (batch,) = (message.batch for message in messages.batches(events, SMALL_BYTES))
    (event,) = batch.events
    return event


@pytest.mark.parametrize(
    ("ours", "theirs", "prefix"),
    [
        (JobState, wire.JobState, "JOB_STATE_"),
        (LogKind, wire.LogKind, "LOG_KIND_"),
        (StartReason, wire.StartReason, "START_REASON_"),
    ],
)
def test_our_enumerations_have_the_wires_numbers(ours: type[enum.Enum], theirs: Any, prefix: str) -> None:
    expected = {prefix + each.name: each.value for each in ours}
    assert expected == {name: number for name, number in theirs.items() if number}


def test_identity_sources_have_the_wires_numbers() -> None:
    assert [each.value for each in IdentitySource] == sorted(wire.IdentitySource.values())


def test_a_jobs_status_says_where_it_is_and_what_it_does() -> None:
    job = Job(Place(b"/r\xff", job_name().encode()), 1, 2, JobStateTracker(0.0, 60.0), is_scanned=False)
    status = messages.job_status(Following(3, job), caught_up=True).job_status
    assert (status.handle, status.name, status.caught_up, status.changed_wall_us) == (3, job_name(), True, 2)
    assert status.directory == f"/r\\xff/{job_name()}"
    assert (status.state, status.source) == (wire.JOB_STATE_OPEN, "job")


def test_an_announced_log_has_its_bytes_for_a_name() -> None:
    (said,) = messages.announced([Log(5, 2, Sighting(b"data/\xff", LogKind.SNAPSHOT, 9, 0), 0.0)])
    (log,) = said.announced.logs
    assert log == wire.AnnouncedLog(handle=5, job=2, path=b"data/\xff", kind=wire.LOG_KIND_SNAPSHOT, size=9)


def test_a_loss_may_speak_of_names_that_are_no_text() -> None:
    assert only(Loss(0, 1, LossReason.NOT_A_FILE, "data/\udcff is no file")).loss.detail == "data/\\xff is no file"


def sizes(*events: Event, largest_bytes: int = SMALL_BYTES) -> list[int]:
    return [len(message.batch.events) for message in messages.batches(events, largest_bytes)]


@pytest.mark.parametrize("largest_bytes", [SMALL_BYTES, LARGE_BYTES])
def test_a_batch_holds_no_more_bytes_than_it_may(largest_bytes: int) -> None:
    half = Chunk(1, 1, 0, bytes(largest_bytes // 2))
    assert sizes(half, half, half, largest_bytes=largest_bytes) == [2, 1]


def test_a_batch_holds_a_thousand_events_at_most() -> None:
    assert sizes(*[Removed(1, 1, 1, 1)] * 2001) == [1000, 1000, 1]


@pytest.mark.parametrize(("path", "text"), [(b"/a", "/a"), ("/ä漢".encode(), "/ä漢"), (b"/\xff", "/\\xff")])
def test_paths_are_written_for_people(path: bytes, text: str) -> None:
    assert messages.text(path) == text
