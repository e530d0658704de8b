"""The stream's rules: what a board may send, and what ends the stream."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from profagent.errors import ProtocolError
from profagent.link.messages import (
    Announced,
    Completed,
    Heartbeat,
    Holding,
    JobsListed,
    JobStatus,
    Loss,
    Released,
    Removed,
    Started,
    Welcome,
)
from profagent.link.session import (
    LARGEST_CHUNK_BYTES,
    LARGEST_KEPT_LOSSES,
    LARGEST_LOGS,
    Announcement,
    Happened,
    Session,
)
from tests.unit.link.board import BOARD, JOB, STATUS, batch, chunk, listed, log, started, unasked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.link.messages import LogEvent, ServerMessage
    from profagent.link.session import SessionEvent


def test_an_announced_log_is_given_with_its_jobs_name() -> None:
    [event] = listed().receive(Announced((log(), log(8, b"info.json.0", snapshot=True))))
    assert isinstance(event, Announcement)
    assert [(each.handle, each.job, each.path, each.snapshot) for each in event.logs] == [
        (7, JOB, b"data/acl_api.0.m.0", False),
        (8, JOB, b"info.json.0", True),
    ]


def test_chunks_move_the_logs_offset() -> None:
    events = started().receive(batch(chunk(b"abc"), chunk(b"de", 3)))
    assert [event.log.offset for event in events if isinstance(event, Happened) and event.log] == [3, 5]


def test_a_log_goes_on_from_what_is_held() -> None:
    [event] = started(offset=100, generation=4).receive(batch(chunk(b"x", 100, generation=4)))
    assert isinstance(event, Happened)
    assert event.log is not None
    assert (event.log.generation, event.log.offset) == (4, 101)


def test_a_new_generation_begins_at_zero() -> None:
    session = started()
    session.receive(batch(chunk(b"abc")))
    [_, event] = session.receive(batch(Started(7, 2, 0, "recreated"), chunk(b"z", generation=2)))
    assert isinstance(event, Happened)
    assert event.log is not None
    assert (event.log.generation, event.log.offset) == (2, 1)


def test_a_removed_log_is_no_longer_known() -> None:
    session = started()
    session.receive(batch(Removed(7, 1, 0, 10)))
    with pytest.raises(ProtocolError, match="unknown log handle 7"):
        session.receive(batch(chunk(b"a")))


def test_a_released_or_skipped_handle_can_be_given_away() -> None:
    session = started()
    session.receive(Released((7,)))
    session.receive(Announced((log(),)))
    session.hold(Holding(7, skip=True))
    session.receive(Announced((log(),)))


def test_a_loss_about_no_log_names_its_job() -> None:
    [event] = listed().receive(batch(Loss(0, 1, "unreadable", "no permission", 0)))
    assert isinstance(event, Happened)
    assert (event.job, event.log) == (JOB, None)


def test_messages_about_no_log_pass() -> None:
    session = listed()
    beat = Heartbeat(BOARD.clocks, 1, 2, (3,), 4)
    assert session.receive(beat) == [beat]
    assert session.receive(JobsListed()) == [JobsListed()]


def test_another_minor_version_is_welcome() -> None:
    assert listed(protocol=(1, 9)).board is not None


def test_another_major_version_is_refused_with_both() -> None:
    with pytest.raises(ProtocolError, match=r"protocol 2\.3, this profagent 1\.0"):
        listed(protocol=(2, 3))


def test_the_first_message_is_welcome() -> None:
    with pytest.raises(ProtocolError, match="JobStatus came before Welcome"):
        Session().receive(STATUS)


@pytest.mark.parametrize(
    "message",
    [
        Welcome(BOARD, 0),
        replace(STATUS, name="JOB" + "B" * 29),
        Announced((log(8, job=9),)),
        Announced((log(0),)),
        Announced((log(8), log(8))),
        Announced((log(8, b"x" * 1025),)),
        Announced(tuple(log(handle) for handle in range(100, 100 + LARGEST_LOGS))),
        batch(*(Loss(0, 1, "disk-full", "", 0, number) for number in range(1, LARGEST_KEPT_LOSSES + 2))),
    ],
    ids=[
        "welcome twice",
        "another name",
        "unknown JOB",
        "no handle",
        "twice",
        "long path",
        "many logs",
        "many kept losses",
    ],
)
def test_a_message_that_breaks_the_contract_is_refused(message: ServerMessage) -> None:
    with pytest.raises(ProtocolError):
        listed().receive(message)


def test_more_logs_than_the_contract_allows_are_refused() -> None:
    session = listed()
    handles = range(1, LARGEST_LOGS + 1)
    for start in range(0, LARGEST_LOGS, 1000):
        session.receive(Announced(tuple(log(handle, b"%d" % handle) for handle in handles[start : start + 1000])))
    with pytest.raises(ProtocolError, match="more than 4,096 logs"):
        session.receive(Announced((log(LARGEST_LOGS + 1, b"more"),)))


def test_a_path_has_one_handle_at_a_time() -> None:
    session = listed()
    session.receive(Announced((log(1),)))
    session.hold(Holding(1, skip=True))
    session.receive(Announced((log(2),)))
    with pytest.raises(ProtocolError, match="two handles"):
        session.receive(Announced((log(3),)))


@pytest.mark.parametrize(
    "event",
    [
        chunk(b"a", 1),
        chunk(b"a", generation=2),
        chunk(b"a", 2**63 - 1),
        chunk(b"a" * (LARGEST_CHUNK_BYTES + 1)),
        chunk(b"a", handle=8),
        Started(7, 1, 0, "same"),
        Started(7, 2, 5, "different"),
        Started(7, 2**63, 0, "different"),
        Completed(7, 1, 1, b""),
        Completed(7, 2, 0, b""),
    ],
    ids=[
        "gap",
        "generation",
        "beyond 2^63",
        "large chunk",
        "unknown handle",
        "started twice",
        "starts in the middle",
        "generation beyond 2^63",
        "complete too early",
        "complete elsewhere",
    ],
)
def test_an_event_that_breaks_the_contract_is_refused(event: LogEvent) -> None:
    with pytest.raises(ProtocolError):
        started().receive(batch(event))


def test_bytes_before_the_host_has_answered_are_refused() -> None:
    session = listed()
    session.receive(Announced((log(),)))
    with pytest.raises(ProtocolError, match="before it was known"):
        session.receive(batch(Started(7, 1, 0, "new")))


def test_a_chunk_before_its_start_is_refused() -> None:
    session = listed()
    session.receive(Announced((log(),)))
    session.hold(Holding(7))
    with pytest.raises(ProtocolError):
        session.receive(batch(chunk(b"a", generation=0)))


# Logs that come unasked

HELD = Holding(7, 4, 100, b"digest")
SKIPPED = Holding(7, skip=True)
SENT = (Started(7, 1, 0, "new"), chunk(b"abc"), Completed(7, 1, 3, b""))
CAUGHT_UP = replace(STATUS, caught_up=True)


def contested(holding: Holding = HELD) -> Session:
    """A session to which log 7 came unasked, though it is held or not wanted; the board does not know that yet."""
    session = listed()
    session.receive(Announced((unasked(),)))
    assert session.hold(holding)
    assert session.receive(batch(*SENT)) == []
    return session


def offsets(events: Sequence[SessionEvent]) -> list[tuple[int, int]]:
    return [(each.log.generation, each.log.offset) for each in events if isinstance(each, Happened) and each.log]


def test_an_unasked_log_of_which_nothing_is_held_is_taken_without_an_answer() -> None:
    session = listed()
    session.receive(Announced((unasked(),)))
    assert not session.hold(Holding(7))
    assert offsets(session.receive(batch(*SENT))) == [(1, 0), (1, 3), (1, 3)]


def test_an_unasked_log_of_which_something_is_held_is_passed_over_until_it_is_announced_again() -> None:
    session = contested()
    assert session.receive(batch(chunk(b"d", 3), Started(7, 2, 0, "recreated"))) == []
    session.receive(Released((7,)))
    session.receive(Announced((log(8),)))
    session.hold(HELD._replace(handle=8))
    assert offsets(
        session.receive(batch(Started(8, 4, 100, "same"), chunk(b"x", 100, generation=4)._replace(handle=8)))
    ) == [(4, 100), (4, 101)]


@pytest.mark.parametrize("end", [Released((7,)), batch(Removed(7, 1, 3, 3))], ids=["released", "removed"])
def test_an_unasked_log_that_is_not_wanted_is_passed_over_until_it_is_over(end: ServerMessage) -> None:
    session = contested(SKIPPED)
    with pytest.raises(ProtocolError, match="two handles"):
        session.receive(Announced((unasked(8),)))
    assert not any(isinstance(each, Happened) for each in session.receive(end))
    session.receive(Announced((unasked(8),)))


@pytest.mark.parametrize(("told", "size"), [((3, 120), 120), ((3, 3), 3)], ids=["longer", "shorter"])
def test_a_contested_log_that_is_removed_is_lost_whole(told: tuple[int, int], size: int) -> None:
    [event] = contested().receive(batch(Removed(7, 1, *told)))
    assert isinstance(event, Happened)
    assert event.event == Removed(7, 4, 0, size)


@pytest.mark.parametrize("holding", [HELD, SKIPPED], ids=["held", "skipped"])
def test_a_loss_of_a_log_that_is_passed_over_is_told(holding: Holding) -> None:
    loss = Loss(7, 1, "not-a-file", "a link", 0)
    [event] = contested(holding).receive(batch(loss))
    assert isinstance(event, Happened)
    assert (event.job, event.event) == (JOB, loss)
    # The path of one that is not wanted may be none.
    assert (event.log is None) == holding.skip


def told_caught_up(session: Session, message: ServerMessage) -> bool:
    return any(each.caught_up for each in session.receive(message) if isinstance(each, JobStatus))


@pytest.mark.parametrize("end", [Released((7,)), batch(Removed(7, 1, 3, 3))], ids=["released", "removed"])
def test_a_job_has_not_caught_up_while_a_log_of_it_is_passed_over_and_comes_again(end: ServerMessage) -> None:
    session = contested()
    assert not told_caught_up(session, CAUGHT_UP)
    assert not session.jobs[1].caught_up
    session.receive(end)
    assert told_caught_up(session, CAUGHT_UP)


def test_a_log_that_is_not_wanted_keeps_no_job_from_having_caught_up() -> None:
    assert told_caught_up(contested(SKIPPED), CAUGHT_UP)


def test_a_log_of_another_job_keeps_no_job_from_having_caught_up() -> None:
    assert told_caught_up(contested(), replace(CAUGHT_UP, handle=2, name="JOB" + "B" * 29))


def test_unasked_logs_that_are_not_wanted_count_until_they_are_over() -> None:
    session = listed()
    handles = range(1, LARGEST_LOGS + 1)
    for start in range(0, LARGEST_LOGS, 1000):
        session.receive(Announced(tuple(unasked(each, b"%d" % each) for each in handles[start : start + 1000])))
    for handle in handles:
        session.hold(Holding(handle, skip=True))
    with pytest.raises(ProtocolError, match="more than 4,096 logs"):
        session.receive(Announced((log(LARGEST_LOGS + 1, b"more"),)))
    session.receive(Released((1,)))
    session.receive(Announced((log(LARGEST_LOGS + 1, b"more"),)))
