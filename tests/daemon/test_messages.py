"""The wire's messages say what the daemon's values say."""

from __future__ import annotations

import enum
from typing import Any

import pytest

from profagent_wire.v1 import board_pb2 as wire
from profagentd.follow import messages
from profagentd.follow.log import Chunk, Completed, Event, Log, Loss, LossReason, Started, StartReason
from profagentd.follow.registry import FollowedJob, JobStateTracker
from profagentd.follow.session import Following
from profagentd.limits import CHUNK_BYTES as LARGE_BYTES
from profagentd.limits import PIECE_BYTES as SMALL_BYTES
from profagentd.sources.files import FolderPlace
from profagentd.sources.source import LogMode
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
        (LogMode, wire.LogKind, "LOG_KIND_"),
        (StartReason, wire.StartReason, "START_REASON_"),
    ],
)
def test_our_enumerations_have_the_wires_numbers(ours: type[enum.Enum], theirs: Any, prefix: str) -> None:
    expected = {prefix + each.name: each.value for each in ours}
    assert expected == {name: number for name, number in theirs.items() if number}


def test_a_jobs_status_says_where_it_is_and_what_it_does() -> None:
    job = FollowedJob(FolderPlace(b"/r\xff", job_name().encode()), 1, 2, JobStateTracker(0.0, 60.0), is_scanned=False)
    status = messages.job_status(Following(3, job), caught_up=True).job_status
    assert (status.handle, status.name, status.caught_up) == (3, job_name(), True)
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


START = Started(1, 2, 3, StartReason.SAME)


def test_what_follows_the_start_of_a_log_comes_with_it() -> None:
    begun = only(START, Chunk(1, 2, 3, b"abc"), Completed(1, 2, 6, b"digest")).started
    assert (begun.generation, begun.offset, begun.data, begun.digest) == (2, 3, b"abc", b"digest")
    assert only(START, Completed(1, 2, 3, b"digest")).started.digest == b"digest"


@pytest.mark.parametrize(
    "events",
    [
        (START, Chunk(2, 2, 3, b"abc")),
        (START, Chunk(1, 2, 3, b"abc"), Chunk(1, 2, 6, b"def")),
        (START, Completed(1, 2, 3, b"digest"), Chunk(1, 2, 3, b"abc")),
        (START, Loss(1, 1, LossReason.UNREADABLE, "why")),
        (START, START),
    ],
)
def test_what_does_not_come_with_a_start_comes_after_it(events: tuple[Event, ...]) -> None:
    assert sizes(*events) == [2]


def test_logs_that_were_made_come_before_what_is_said_of_them() -> None:
    made = [Log(handle, 1, Sighting(b"data/%d" % handle, LogMode.DATA, 0, 0), 0.0) for handle in range(1, 1502)]
    said = [message.batch for message in messages.batches((START,), made=made)]
    assert [len(each.made) for each in said] == [1000, 501]
    assert [len(each.events) for each in said] == [0, 1]
    assert [log.handle for each in said for log in each.made] == list(range(1, 1502))


def test_ends_of_handles_come_in_pages() -> None:
    pages = [list(message.released.handles) for message in messages.released(range(1, 1502))]
    assert [len(page) for page in pages] == [1000, 501]
    assert [handle for page in pages for handle in page] == list(range(1, 1502))
