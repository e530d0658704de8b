"""The wire's messages say what the daemon's values say."""

from __future__ import annotations

import enum
from typing import Any

import pytest

from profagent_wire.v1 import board_pb2 as wire
from profagentd.follow import messages
from profagentd.follow.log import Chunk, Event, Loss, LossReason, StartReason
from profagentd.follow.registry import Job, JobStateTracker
from profagentd.follow.session import Following
from profagentd.follow.table import CHUNK_BYTES as LARGE_BYTES
from profagentd.follow.table import PIECE_BYTES as SMALL_BYTES
from profagentd.sources.files import Place
from profagentd.sources.source import LogKind
from profagentd.sources.state import JobState
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


def test_a_jobs_status_says_where_it_is_and_what_it_does() -> None:
    job = Job(Place(b"/r\xff", job_name().encode()), 1, 2, JobStateTracker(0.0, 60.0), is_scanned=False)
    status = messages.job_status(Following(3, job), caught_up=True).job_status
    assert (status.handle, status.name, status.caught_up, status.changed_wall_us) == (3, job_name(), True, 2)
    assert status.directory == f"/r\\xff/{job_name()}"
    assert (status.state, status.source) == (wire.JOB_STATE_OPEN, "job")


def test_a_loss_may_speak_of_names_that_are_no_text() -> None:
    assert only(Loss(0, 1, LossReason.NOT_A_FILE, "data/\udcff is no file")).loss.detail == "data/\\xff is no file"


def sizes(*events: Event, largest_bytes: int = SMALL_BYTES) -> list[int]:
    return [len(message.batch.events) for message in messages.batches(events, largest_bytes)]


@pytest.mark.parametrize("largest_bytes", [SMALL_BYTES, LARGE_BYTES])
def test_a_batch_holds_no_more_bytes_than_it_may(largest_bytes: int) -> None:
    half = Chunk(1, 1, 0, bytes(largest_bytes // 2))
    assert sizes(half, half, half, largest_bytes=largest_bytes) == [2, 1]
