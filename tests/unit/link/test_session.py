"""A link's session: its states, and what it makes of a board's messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest
from msgspec.structs import replace

from profagent.errors import DiskFullError, ProtocolError, RefusedError, UnreachableError, UnsupportedBoardError
from profagent.limits import (
    ANSWER_S,
    LARGEST_BATCH_EVENTS,
    LARGEST_CHUNK_BYTES,
    LARGEST_LOGS,
    LARGEST_RECORDED_LOSSES,
    LEAVE_BEHIND_S,
    LONGEST_DELAY_S,
)
from profagent.link.coverage import Standing
from profagent.link.messages import (
    Announced,
    Arrived,
    Batch,
    Completed,
    Goodbye,
    Heartbeat,
    Holding,
    Holdings,
    JobEntered,
    JobFollowed,
    JobNames,
    JobsListed,
    JobsShown,
    JobStatus,
    LogEvent,
    LogsAnnounced,
    Loss,
    Received,
    Released,
    Remark,
    Removed,
    Select,
    ServerMessage,
    Started,
    Sync,
    Synced,
    Unlinked,
    Welcome,
)
from profagent.link.session import LAGGING_BYTES, ROOM_S, LinkSession, State
from tests.unit.link.board import (
    BOARD,
    JOB,
    NOW,
    OPENING,
    STATUS,
    arrived,
    batch,
    chunk,
    listed,
    log,
    session,
    started,
    told,
    unasked,
)

OTHER_JOB = JOB[:-1] + "B"
LOST = UnreachableError("gone", hint="wait")
BROKEN = ProtocolError("against the contract", hint="upgrade")
REFUSED = RefusedError("not trusted", hint="mend it")
OTHER_SOC = UnsupportedBoardError("another SoC", hint="use the vendor's tool")
FULL = DiskFullError("the disk is full", hint="make room")
WELCOME = Welcome(BOARD, heartbeat_us=4_000_000)


def receive(made: LinkSession, *messages: ServerMessage) -> list[object]:
    for message in messages:
        made.receive(message, NOW)
    return [*told(made)]


def lag(lag_bytes: int) -> Heartbeat:
    return Heartbeat(lag_bytes)


# Its states

WAYS: dict[State, tuple[Callable[[LinkSession], object], ...]] = {
    State.WAITING: (),
    State.CONNECTING: (lambda made: made.tick(NOW),),
    State.NEGOTIATING: (lambda made: made.tick(NOW), lambda made: made.opened(NOW)),
    State.FOLLOWING: (
        lambda made: made.tick(NOW),
        lambda made: made.opened(NOW),
        lambda made: made.receive(WELCOME, NOW),
    ),
    State.LAGGING: (
        lambda made: made.tick(NOW),
        lambda made: made.opened(NOW),
        lambda made: made.receive(WELCOME, NOW),
        lambda made: made.receive(lag(LAGGING_BYTES), NOW),
    ),
    State.SILENT: (
        lambda made: made.tick(NOW),
        lambda made: made.opened(NOW),
        lambda made: made.receive(WELCOME, NOW),
        lambda made: made.quiet(made.quiet_at),
    ),
    State.CLOSED: (lambda made: made.stop(),),
}


def in_state(state: State, **options: bool) -> LinkSession:
    """A session that has come to a state on the shortest way."""
    made = session(**options)
    for step in WAYS[state]:
        step(made)
    told(made)
    return made


def test_it_connects_at_its_first_tick_and_says_who_it_is() -> None:
    made = session()
    made.tick(NOW)
    assert made.state is State.CONNECTING
    made.opened(NOW)
    assert told(made) == [OPENING]
    assert receive(made, WELCOME) == [WELCOME]


def waits_s(made: LinkSession, now: float, errors: list[UnreachableError]) -> list[float]:
    waits = []
    for error in errors:
        made.tick(now)
        made.lost(error, now)
        (unlinked,) = [each for each in told(made) if isinstance(each, Unlinked)]
        waits.append(unlinked.wait_s)
        now += unlinked.wait_s
    return waits


def test_the_longest_wait_doubles_and_a_refused_credential_is_tried_slowly() -> None:
    assert waits_s(session(), NOW, [LOST] * 9) == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert waits_s(session(), NOW, [LOST, REFUSED, LOST]) == [0.25, 60.0, 0.5]


@pytest.mark.parametrize("is_long", [True, False])
def test_a_link_that_held_or_gave_something_was_a_good_one(*, is_long: bool) -> None:
    made = session()
    waits_s(made, NOW, [LOST] * 3)
    made.tick(NOW + 10)
    if not is_long:
        made.opened(NOW + 10)
        receive(made, WELCOME)
        made.took({})
    made.lost(LOST, NOW + 10 + (LONGEST_DELAY_S + 1) * is_long)
    assert Unlinked(LOST, 0.25) in told(made)


@pytest.mark.parametrize(
    ("state", "error", "is_listed", "is_tried_again"),
    [
        (State.CONNECTING, LOST, False, False),
        (State.CONNECTING, REFUSED, False, False),
        (State.FOLLOWING, LOST, False, True),
        (State.FOLLOWING, BROKEN, False, False),
        (State.FOLLOWING, BROKEN, True, True),
    ],
)
def test_a_board_that_has_answered_is_waited_for_unless_it_breaks_the_protocol_at_once(
    state: State, error: UnreachableError, *, is_listed: bool, is_tried_again: bool
) -> None:
    made = in_state(state, is_patient=False)
    receive(made, *[JobsListed()] * is_listed)
    made.lost(error, NOW)
    assert made.state is (State.WAITING if is_tried_again else State.CLOSED)
    assert made.error is (None if is_tried_again else error)


def test_a_board_that_breaks_the_protocol_again_and_again_is_given_up() -> None:
    made = in_state(State.FOLLOWING)
    for _ in range(5):
        made.lost(BROKEN, NOW)
        made.tick(NOW + 1000)
    assert (made.state, made.error) == (State.CLOSED, BROKEN)


@pytest.mark.parametrize(("retry_us", "wait_s"), [(3_000_000, 3.25), (2**62, 60.25)])
def test_after_a_goodbye_the_daemon_is_waited_for_as_it_said(retry_us: int, wait_s: float) -> None:
    made = in_state(State.FOLLOWING)
    (unlinked,) = receive(made, Goodbye("up\x1bgrade", retry_us))
    assert isinstance(unlinked, Unlinked)
    assert "is shutting down: up\\x1bgrade" in str(unlinked.error)
    assert unlinked.wait_s == wait_s
    assert made.due == NOW + wait_s


def test_a_full_disk_is_told_once_and_looked_at_until_there_is_room() -> None:
    made = in_state(State.FOLLOWING)
    made.full(FULL, NOW)
    (remark,) = told(made)
    assert isinstance(remark, Remark)
    assert str(FULL) in remark.text
    for _ in range(3):
        assert made.awaits_room
        made.room(has_room=False, now=NOW)
    assert (told(made), made.due) == ([], NOW + ROOM_S)
    made.room(has_room=True, now=NOW)
    assert isinstance(told(made)[0], Remark)
    assert made.state is State.CONNECTING


def test_proof_of_life_is_as_frequent_as_the_board_asks_within_bounds() -> None:
    for asked_us, heartbeat_s in ((0, 4.0), (2_000_000, 2.0), (1, 1.0), (10**9, 5.0)):
        made = in_state(State.NEGOTIATING)
        receive(made, Welcome(BOARD, asked_us))
        made.heard(NOW)
        made.spoke(NOW)
        assert (made.speak_at, made.silent_at) == (NOW + heartbeat_s, NOW + 3 * heartbeat_s)


# JOBs


def test_a_job_that_is_wanted_is_selected_and_shown_once_all_are_listed() -> None:
    made = session(wants=lambda job, _: job.name == JOB)
    for step in WAYS[State.FOLLOWING]:
        step(made)
    told(made)
    gone = JobStatus(3, JOB[:-1] + "C", "/", "removed", caught_up=False)
    assert receive(made, STATUS) == [JobFollowed(STATUS), JobEntered(STATUS, caught_up=False), Select((1,))]
    assert receive(made, replace(STATUS, handle=2, name=OTHER_JOB), gone) == []
    assert receive(made, JobsListed()) == [JobNames(frozenset({JOB, OTHER_JOB})), JobsShown((STATUS,))]


def test_a_choice_stays_over_streams_and_what_was_passed_over_is_asked_again() -> None:
    asked: list[tuple[str, bool]] = []

    def wants(job: JobStatus, listed: bool) -> bool:
        asked.append((job.name, listed))
        return job.state == "open"

    made = session(wants=wants)
    quiet = replace(STATUS, state="quiet", handle=2, name=OTHER_JOB)
    new = replace(STATUS, handle=3, name=JOB[:-1] + "C")
    for _ in range(2):
        made.tick(NOW + 100)
        made.opened(NOW)
        receive(made, WELCOME, STATUS, quiet, JobsListed(), new)
        made.lost(LOST, NOW)
    assert asked == [(JOB, True), (OTHER_JOB, True), (new.name, False), (OTHER_JOB, True)]


def test_of_two_directories_of_one_name_the_first_that_stands_is_followed() -> None:
    made = listed()
    assert receive(made, replace(STATUS, handle=2)) == []
    assert Select((2,)) in receive(made, replace(STATUS, state="removed"))


LOSS = batch(Loss(0, 1, "removed-unseen", "gone", 0))


@pytest.mark.parametrize("heard", [None, replace(STATUS, caught_up=True), Announced((log(),)), LOSS])
def test_a_job_that_went_before_anything_was_said_of_it_has_not_come(heard: ServerMessage | None) -> None:
    made = listed()
    receive(made, *([] if heard is None else [heard]))
    gone = replace(STATUS, state="removed")
    changes = [event for event in receive(made, gone) if isinstance(event, JobEntered)]
    assert changes == [JobEntered(gone, caught_up=heard is not None)]


def test_with_no_job_left_that_can_be_read_it_is_closed_for_that_reason() -> None:
    made = listed()
    receive(made, JobsListed(), batch(Loss(0, 1, "x", "", 0)))
    made.took({JOB: OTHER_SOC})
    assert told(made) == [JobsShown(()), Select(unfollow=(1,))]
    assert (made.state, made.error) == (State.CLOSED, OTHER_SOC)
    made.took({})


# What comes of logs


def test_what_has_gathered_is_handed_on_when_its_time_has_come_or_at_the_end() -> None:
    made = started()
    assert made.due is None
    assert receive(made, batch(chunk(b"a")), batch(chunk(b"b", 1))) == []
    assert made.due == NOW + 0.1
    made.tick(NOW + 0.09)
    assert told(made) == []
    made.tick(NOW + 0.1)
    (event,) = told(made)
    assert isinstance(event, Arrived)
    assert len(event.events) == 2
    receive(made, batch(chunk(b"c", 2)))
    made.stop()
    assert isinstance(told(made)[0], Arrived)


def test_what_has_gathered_is_handed_on_before_it_is_large_a_state_or_a_new_handle() -> None:
    made = started()
    assert receive(made, batch(*[Loss(7, 1, "x", "", 0)] * LARGEST_BATCH_EVENTS))
    kinds = [type(each) for each in receive(made, batch(chunk(b"a")), replace(STATUS, state="finished"))]
    assert kinds == [Arrived, JobEntered]
    receive(made, batch(chunk(b"b", 1)))
    assert [type(each) for each in receive(made, Released((7,)), Announced((log(9),)))] == [Arrived, LogsAnnounced]


def test_another_minor_version_is_welcome_and_another_major_one_is_refused_with_both() -> None:
    listed(protocol=(1, 9))
    with pytest.raises(ProtocolError, match=r"protocol 2\.3, this profagent 1\.0"):
        listed(protocol=(2, 3))


def announced() -> LinkSession:
    """A session that has not said yet what it holds of log 7."""
    made = listed()
    receive(made, Announced((log(),)))
    return made


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (partial(in_state, State.NEGOTIATING), STATUS),
        (listed, Welcome(BOARD, 0)),
        (listed, replace(STATUS, name=OTHER_JOB)),
        (listed, replace(STATUS, handle=5, name="../x")),
        (listed, Announced((log(8, job=9),))),
        (listed, Announced((log(0),))),
        (listed, Announced((log(8), log(8)))),
        (listed, Announced((log(8), log(9)))),
        (listed, Batch((), (log(8), log(8)))),
        (listed, Announced((log(8, b"x" * 1025),))),
        (listed, Announced(tuple(log(handle, b"%d" % handle) for handle in range(100, 101 + LARGEST_LOGS)))),
        (listed, batch(*(Loss(0, 1, "disk-full", "", 0, number) for number in range(1, LARGEST_RECORDED_LOSSES + 2)))),
        (started, batch(chunk(b"a", 1))),
        (started, batch(chunk(b"a", generation=2))),
        (started, batch(chunk(b"a" * (LARGEST_CHUNK_BYTES + 1)))),
        (started, batch(chunk(b"a", handle=8))),
        (started, batch(Started(7, 1, 0, "same"))),
        (started, batch(Started(7, 2, 5, "different"))),
        (started, batch(Started(7, 2, 0, "different", b"a" * (LARGEST_CHUNK_BYTES + 1)))),
        (started, batch(Completed(7, 1, 1, b""))),
        (started, batch(Completed(7, 2, 0, b""))),
        (announced, batch(Started(7, 1, 0, "new"))),
        (announced, batch(chunk(b"a", generation=0))),
    ],
)
def test_what_breaks_the_contract_is_refused(made: Callable[[], LinkSession], message: ServerMessage) -> None:
    session = made()
    with pytest.raises(ProtocolError):
        receive(session, message)


def test_logs_of_a_job_that_is_not_followed_are_refused_and_its_losses_are_the_boards() -> None:
    made = listed()
    receive(made, replace(STATUS, handle=5, name=OTHER_JOB, state="removed"))
    [event] = arrived(made, Loss(0, 5, "unreadable", "why", 0))
    assert event.job == ""
    with pytest.raises(ProtocolError, match="not followed"):
        receive(made, Announced((log(8, job=5),)))


def test_what_came_with_a_logs_start_counts() -> None:
    whole = Started(7, 2, 0, "different", b"abc", b"digest")
    made = started()
    assert offsets(arrived(made, whole)) == [(2, 3)]
    with pytest.raises(ProtocolError):
        arrived(made, chunk(b"d", 2, generation=2))


# Logs that come unasked

HELD = Holding(7, 4, 100, b"digest")
SKIPPED = Holding(7, skip=True)
SENT = (Started(7, 1, 0, "new"), chunk(b"abc"), Completed(7, 1, 3, b""))
CAUGHT_UP = replace(STATUS, caught_up=True)


def contested(holding: Holding = HELD) -> LinkSession:
    """A session to which log 7 came unasked, though it is held or not wanted; the board does not know that yet."""
    made = listed()
    receive(made, unasked(*SENT))
    made.hold([holding])
    made.flush()
    assert told(made) == [Holdings((holding,))]
    return made


def offsets(events: Sequence[Received]) -> list[tuple[int, int]]:
    return [(each.log.generation, each.log.offset) for each in events if each.log]


def test_an_unasked_log_of_which_nothing_is_held_is_taken_without_an_answer() -> None:
    made = listed()
    assert [type(each) for each in receive(made, unasked(*SENT))] == [LogsAnnounced]
    made.hold([Holding(7)])
    made.flush()
    [event] = told(made)
    assert isinstance(event, Arrived)
    assert offsets(event.events) == [(1, 0), (1, 3), (1, 3)]


def test_what_comes_of_a_log_before_it_is_known_what_is_held_is_dropped_with_its_stream() -> None:
    made = listed()
    receive(made, unasked(*SENT))
    made.lost(UnreachableError("gone", hint="wait"), NOW)
    made.tick(NOW + LONGEST_DELAY_S)
    made.hold([Holding(7)])
    made.flush()
    assert not any(isinstance(each, Arrived) for each in told(made))


def test_an_unasked_log_of_which_something_is_held_is_passed_over_until_it_is_announced_again() -> None:
    made = contested()
    assert arrived(made, chunk(b"d", 3), Started(7, 2, 0, "recreated")) == []
    receive(made, Released((7,)), Announced((log(8),)))
    made.hold([replace(HELD, handle=8)])
    more = replace(chunk(b"x", 100, generation=4), handle=8)
    assert offsets(arrived(made, Started(8, 4, 100, "same"), more)) == [(4, 100), (4, 101)]


@pytest.mark.parametrize("end", [Released((7,)), batch(Removed(7, 1, 3, 3))], ids=["released", "removed"])
def test_an_unasked_log_that_is_not_wanted_is_passed_over_until_it_is_over(end: ServerMessage) -> None:
    made = contested(SKIPPED)
    assert receive(made, end) == []
    assert len(receive(made, unasked(handle=8))) == 1


LINKED = Loss(7, 1, "not-a-file", "a link", 0)


@pytest.mark.parametrize(
    ("holding", "event", "told"),
    [
        (HELD, Removed(7, 1, 3, 120), Removed(7, 4, 0, 120)),
        (HELD, Removed(7, 1, 3, 3), Removed(7, 4, 0, 3)),
        (HELD, LINKED, LINKED),
        (SKIPPED, LINKED, LINKED),
    ],
)
def test_what_is_lost_of_a_log_that_is_passed_over_is_told(holding: Holding, event: LogEvent, told: LogEvent) -> None:
    [lost] = arrived(contested(holding), event)
    assert (lost.job, lost.event) == (JOB, told)
    # The path of one that is not wanted may be none.
    assert (lost.log is None) == holding.skip


@pytest.mark.parametrize("end", [Released((7,)), batch(Removed(7, 1, 3, 3))], ids=["released", "removed"])
def test_a_job_has_not_caught_up_while_a_log_of_it_is_passed_over_and_comes_again(end: ServerMessage) -> None:
    made = contested()
    assert not any(isinstance(each, JobEntered) for each in receive(made, CAUGHT_UP))
    assert JobEntered(CAUGHT_UP, caught_up=True) in receive(made, end, CAUGHT_UP)


def test_a_log_that_is_not_wanted_keeps_no_job_from_having_caught_up() -> None:
    assert JobEntered(CAUGHT_UP, caught_up=True) in receive(contested(SKIPPED), CAUGHT_UP)


# Its end, and what it says of the time before


def following(*, caught_up: bool = True, **changes: object) -> LinkSession:
    """A session of a board that can be asked, and follows its JOB."""
    made = listed(**{"capabilities": ("sync",), **changes})
    receive(made, JobsListed(), replace(STATUS, caught_up=caught_up))
    return made


def test_at_its_end_a_board_is_asked_and_its_answer_ends_it() -> None:
    made = following()
    made.finish(NOW, asks=True)
    assert told(made) == [Sync(1)]
    assert made.due == NOW + ANSWER_S
    receive(made, Synced(7))
    assert made.state is State.FOLLOWING
    receive(made, unasked(Started(7, 1, 0, "new", b"a")))
    made.hold([Holding(7)])
    events = receive(made, Synced(1))
    assert [type(each) for each in events] == [Arrived]  # what came before the answer is handed on
    assert (made.state, made.has_synced) == (State.CLOSED, True)


def test_an_answer_says_nothing_of_a_job_that_is_followed_since() -> None:
    made = following()
    made.finish(NOW, asks=True)
    other = replace(STATUS, handle=2, name=OTHER_JOB, directory="/opt/app/" + OTHER_JOB)
    assert Sync(2) in receive(made, other, Synced(1))
    receive(made, Synced(2))
    assert made.has_synced


@pytest.mark.parametrize(("caught_up", "wait_s"), [(True, ANSWER_S), (False, LEAVE_BEHIND_S)])
def test_a_board_that_does_not_answer_is_not_waited_for_for_long(caught_up: bool, wait_s: float) -> None:
    made = following(caught_up=caught_up)
    made.finish(NOW, asks=True)
    made.tick(NOW + wait_s - 0.1)
    assert made.state is State.FOLLOWING
    made.tick(NOW + wait_s)
    assert (made.state, made.has_synced) == (State.CLOSED, False)


@pytest.mark.parametrize(("caught_up", "asks"), [(True, True), (False, True), (True, False)])
def test_a_board_that_cannot_be_asked_has_said_it_before(caught_up: bool, asks: bool) -> None:
    made = following(caught_up=caught_up, capabilities=())
    made.finish(NOW, asks=asks)
    assert told(made) == []
    made.tick(NOW + LEAVE_BEHIND_S)
    assert (made.state, made.has_synced) == (State.CLOSED, caught_up)


def test_a_link_that_is_lost_at_the_end_has_not_answered() -> None:
    made = following()
    made.finish(NOW, asks=True)
    made.lost(LOST, NOW)
    assert (made.state, made.has_synced) == (State.WAITING, False)


def test_a_board_that_does_not_speak_is_silent_until_it_does() -> None:
    made = following(caught_up=False)
    made.heard(NOW)
    assert made.quiet_at == NOW + 6
    assert not made.quiet(NOW + 5.9)
    assert made.quiet(NOW + 6)
    (said,) = told(made)
    assert said == Remark("the board has said nothing for 6 s: it is frozen, or cut off")
    assert not made.quiet(NOW + 7)
    made.heard(NOW + 8)
    # JOBs that were behind before count as behind again.
    assert told(made) == [Remark("the board speaks again"), JobsShown((STATUS,))]
    assert made.state is State.FOLLOWING


@pytest.mark.parametrize(
    ("state", "standing"),
    [
        (State.CONNECTING, Standing.AWAY),
        (State.NEGOTIATING, Standing.AWAY),
        (State.FOLLOWING, Standing.BEHIND),  # it has not listed its JOBs yet
        (State.LAGGING, Standing.BEHIND),
        (State.SILENT, Standing.SILENT),
        (State.WAITING, Standing.AWAY),
    ],
)
def test_how_a_board_is_followed(state: State, standing: Standing) -> None:
    assert in_state(state).standing is standing


def test_a_full_disk_is_a_pause() -> None:
    made = following()
    made.full(FULL, NOW)
    assert made.standing is Standing.PAUSED
