"""Each arrow of the link's table, taken by a real link; and what the link wants done on the way."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from profagent.errors import DiskFullError, ProtocolError, RefusedError, UnreachableError, UnsupportedBoardError
from profagent.link.actions import Begin, ChangeState, Close, Connect, FindRoom, Send, Take, Tell, Unlink
from profagent.link.choice import JobChoice
from profagent.link.machine import CAUGHT_UP_BYTES, LAGGING_BYTES, ROOM_S, SETTLED_S, Link
from profagent.link.messages import (
    Announced,
    ClientHeartbeat,
    Clocks,
    Goodbye,
    Heartbeat,
    Holding,
    Holdings,
    JobsListed,
    Loss,
    Open,
    ServerMessage,
    Started,
    Welcome,
)
from profagent.link.states import ARROWS, Arrow, Cause, State, Wait, arrow_of
from tests.unit.link.board import BOARD, JOB, STATUS, batch, chunk, log, unasked

OPENING = Open("test", "test 1")
LOST = UnreachableError("gone", hint="wait")
BROKEN = ProtocolError("against the contract", hint="upgrade")
REFUSED = RefusedError("not trusted", hint="mend it")
OTHER_SOC = UnsupportedBoardError("another SoC", hint="use the vendor's tool")
FULL = DiskFullError("the disk is full", hint="make room")
WELCOME = Welcome(BOARD, heartbeat_us=4_000_000)
LOSS = batch(Loss(0, 1, "removed-unseen", "gone", 0))
NOW = 1000.0


def link(*, is_patient: bool = True) -> Link:
    """A link that draws the longest wait there can be."""
    choice = JobChoice(lambda *_: True)
    return Link("board:1", OPENING, choice, gather_s=0.1, is_patient=is_patient, uniform=lambda _, high: high)


def heartbeat(lag_bytes: int) -> Heartbeat:
    return Heartbeat(Clocks(0, 0), 0, 0, (), lag_bytes)


def receive(made: Link, *messages: ServerMessage) -> None:
    for message in messages:
        made.receive(message, NOW)


def in_state(state: State, *, wait: Wait = Wait.BACK_OFF, is_patient: bool = True) -> Link:
    """A link that has come to a state on the shortest way."""
    made = link(is_patient=is_patient)
    if state is State.WAITING and wait is Wait.NONE:
        return made
    made.tick(NOW)
    if state is State.CONNECTING:
        return made
    made.opened(NOW)
    if state is State.NEGOTIATING:
        return made
    receive(made, WELCOME)
    if state is State.LAGGING:
        receive(made, heartbeat(LAGGING_BYTES))
    if state is State.WAITING:
        receive(made, STATUS)
        made.full(FULL, NOW) if wait is Wait.ROOM else made.lost(LOST, NOW)
    if state is State.CLOSED:
        made.stop()
    return made


CAUSES: dict[Cause, Callable[[Link], object]] = {
    Cause.OPENED: lambda made: made.opened(NOW),
    Cause.WELCOMED: lambda made: made.receive(WELCOME, NOW),
    Cause.FELL_BEHIND: lambda made: made.receive(heartbeat(LAGGING_BYTES), NOW),
    Cause.CAUGHT_UP: lambda made: made.receive(heartbeat(CAUGHT_UP_BYTES), NOW),
    Cause.LOST: lambda made: made.lost(LOST, NOW),
    Cause.REFUSED: lambda made: made.lost(REFUSED, NOW),
    Cause.GOODBYE: lambda made: made.receive(Goodbye("stopping", 2_000_000), NOW),
    Cause.DISK_FULL: lambda made: made.room(False, NOW) if made.state is State.WAITING else made.full(FULL, NOW),
    Cause.ROOM: lambda made: made.room(True, NOW),
    Cause.DUE: lambda made: made.tick(NOW + 100),
    Cause.STOPPED: lambda made: made.stop(),
    Cause.FAILED: lambda made: made.took({JOB: OTHER_SOC}) if made.state is State.WAITING else made.lost(BROKEN, NOW),
}
NEEDS_ROOM = (Cause.ROOM, Cause.DISK_FULL)


def name(arrow: Arrow) -> str:
    return f"{arrow.state.value}, {arrow.cause.value}"


@pytest.mark.parametrize("arrow", ARROWS, ids=name)
def test_each_arrow_leads_where_the_table_says(arrow: Arrow) -> None:
    wait = Wait.ROOM if arrow.cause in NEEDS_ROOM else Wait.BACK_OFF
    made = in_state(arrow.state, wait=wait, is_patient=arrow.cause is not Cause.FAILED)
    assert made.state is arrow.state
    CAUSES[arrow.cause](made)
    assert made.state is arrow.target
    waits_s = {
        Wait.BACK_OFF: 0.25,
        Wait.SLOW: 60.0,
        Wait.AS_TOLD: 2.25,
        Wait.ROOM: ROOM_S,
    }
    if arrow.target is State.WAITING:
        assert made.due == NOW + waits_s[arrow.wait]


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        (state, cause)
        for state, cause in itertools.product(State, Cause)
        if (state, cause) not in {(arrow.state, arrow.cause) for arrow in ARROWS}
    ],
    ids=lambda each: each.value,
)
def test_there_is_no_other_arrow(state: State, cause: Cause) -> None:
    with pytest.raises(AssertionError, match=state.value):
        arrow_of(state, cause)


def test_the_table_is_sound() -> None:
    assert len({(arrow.state, arrow.cause) for arrow in ARROWS}) == len(ARROWS)
    assert {arrow.cause for arrow in ARROWS} == {*Cause} == {*CAUSES}
    assert all((arrow.wait is not Wait.NONE) == (arrow.target is State.WAITING) for arrow in ARROWS)
    assert all(arrow.state is not State.CLOSED for arrow in ARROWS)


def test_a_link_connects_at_its_first_tick_and_says_who_it_is() -> None:
    made = link()
    assert made.tick(NOW) == [Connect()]
    assert made.opened(NOW) == [Send(OPENING)]
    assert made.receive(WELCOME, NOW) == [Begin(BOARD, "unknown")]


def test_the_longest_wait_doubles_with_each_attempt() -> None:
    made, now, waits_s = link(), NOW, []
    for _ in range(9):
        made.tick(now)
        (unlinked,) = made.lost(LOST, now)
        assert isinstance(unlinked, Unlink)
        waits_s.append(unlinked.wait_s)
        now += unlinked.wait_s
    assert waits_s == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_a_link_that_held_for_long_was_a_good_one() -> None:
    made, now = link(), NOW
    for _ in range(3):
        made.tick(now)
        made.lost(LOST, now)
        now = made.due or 0.0
    made.tick(now)
    assert made.lost(LOST, now + SETTLED_S + 1) == [Unlink(LOST, 0.25)]


def test_a_link_over_which_something_came_was_a_good_one() -> None:
    made, now = link(), NOW
    for _ in range(3):
        made.tick(now)
        made.lost(LOST, now)
        now = made.due or 0.0
    made.tick(now)
    made.opened(now)
    made.receive(WELCOME, now)
    made.took({})
    assert made.lost(LOST, now) == [Unlink(LOST, 0.25)]


def test_a_board_that_has_answered_is_waited_for_unless_it_breaks_the_protocol_at_once() -> None:
    made = in_state(State.FOLLOWING, is_patient=False)
    assert made.lost(LOST, NOW) == [Unlink(LOST, 0.25)]
    made.tick(NOW + 1)
    assert made.lost(LOST, NOW + 1) == [Unlink(LOST, 0.5)]
    assert in_state(State.FOLLOWING, is_patient=False).lost(BROKEN, NOW) == [Close(BROKEN)]


def test_a_first_link_that_fails_is_an_error_unless_the_link_is_patient() -> None:
    for error in (LOST, REFUSED):
        made = in_state(State.CONNECTING, is_patient=False)
        assert made.lost(error, NOW) == [Close(error)]
    made = in_state(State.CONNECTING)
    assert made.lost(REFUSED, NOW) == [Unlink(REFUSED, 60.0)]


def test_a_board_that_has_listed_its_jobs_is_waited_for() -> None:
    made = in_state(State.FOLLOWING, is_patient=False)
    receive(made, JobsListed())
    assert made.lost(LOST, NOW) == [Unlink(LOST, 0.25)]


def test_a_refused_credential_is_tried_slowly_at_once_and_does_not_count_as_an_attempt() -> None:
    made = in_state(State.FOLLOWING)
    made.lost(REFUSED, NOW)
    made.tick(NOW + 60)
    assert made.lost(LOST, NOW + 60) == [Unlink(LOST, 0.25)]


def test_after_a_goodbye_the_daemon_is_waited_for_as_it_said_then_tried_as_ever() -> None:
    made = in_state(State.FOLLOWING)
    (unlinked,) = made.receive(Goodbye("up\x1bgrade", 3_000_000), NOW)
    assert isinstance(unlinked, Unlink)
    assert "says goodbye: up\\x1bgrade" in str(unlinked.error)
    assert unlinked.wait_s == 3.25
    assert made.tick(NOW + 3) == []
    assert made.tick(NOW + 3.25) == [Connect()]
    assert made.lost(LOST, NOW + 3.25) == [Unlink(LOST, 0.25)]


def test_a_daemon_cannot_send_a_link_away_for_good() -> None:
    made = in_state(State.FOLLOWING)
    receive(made, Goodbye("never", 2**64 - 1))
    assert made.due == NOW + 60.25


def test_lagging_is_told_once_and_so_is_its_end() -> None:
    made = in_state(State.FOLLOWING)
    lags = [1, LAGGING_BYTES, LAGGING_BYTES * 3, CAUGHT_UP_BYTES + 1, CAUGHT_UP_BYTES, 0]
    told = [made.receive(heartbeat(lag), NOW) for lag in lags]
    assert told == [
        [],
        [Tell("behind the board: 16.8 MB are still to come")],
        [],
        [],
        [Tell("caught up with the board")],
        [],
    ]


def test_a_full_disk_is_told_once_and_looked_at_until_there_is_room() -> None:
    made = in_state(State.FOLLOWING)
    (told,) = made.full(FULL, NOW)
    assert isinstance(told, Tell)
    assert str(FULL) in told.text
    now = NOW
    for _ in range(3):
        assert made.tick(now) == []
        now += ROOM_S
        assert made.tick(now) == [FindRoom()]
        assert made.room(False, now) == []
    now += ROOM_S
    assert made.tick(now) == [FindRoom()]
    told, connect = made.room(True, now)
    assert isinstance(told, Tell)
    assert connect == Connect()


def followed() -> Link:
    """A link that has a log under way."""
    made = in_state(State.FOLLOWING)
    receive(made, STATUS, JobsListed(), Announced((log(),)))
    made.held([Holding(7)])
    return made


def test_the_board_is_told_what_is_held_but_not_that_nothing_is_of_what_comes_unasked() -> None:
    made = in_state(State.FOLLOWING)
    receive(made, STATUS, JobsListed(), Announced((log(6, b"a"), unasked(7), unasked(8, b"b"), unasked(9, b"c"))))
    asked, held, skipped = Holding(6), Holding(8, 4, 100), Holding(9, skip=True)
    assert made.held([asked, Holding(7), held, skipped]) == [Send(Holdings((asked, held, skipped)))]
    receive(made, Announced((unasked(10, b"d"),)))
    assert made.held([Holding(10)]) == []


def test_what_has_gathered_is_handed_on_when_its_time_has_come() -> None:
    made = followed()
    assert made.due is None
    assert made.receive(batch(Started(7, 1, 0, "new"), chunk(b"a")), NOW) == []
    assert made.receive(batch(chunk(b"b", 1)), NOW + 0.05) == []
    assert made.due == NOW + 0.1
    assert made.tick(NOW + 0.09) == []
    (take,) = made.tick(NOW + 0.1)
    assert isinstance(take, Take)
    assert len(take.events) == 3
    assert made.due is None


def test_what_has_gathered_is_handed_on_at_the_end() -> None:
    made = followed()
    receive(made, batch(Started(7, 1, 0, "new")))
    take, close = made.stop()
    assert isinstance(take, Take)
    assert close == Close()


def test_what_has_gathered_is_dropped_with_the_link_for_it_comes_again() -> None:
    made = followed()
    receive(made, batch(Started(7, 1, 0, "new")))
    made.lost(LOST, NOW)
    assert made.stop() == [Close()]


def test_a_new_stream_knows_nothing_of_the_one_before() -> None:
    made = followed()
    made.lost(LOST, NOW)
    made.tick(NOW + 1)
    made.opened(NOW + 1)
    assert made.receive(WELCOME, NOW + 1) == [Begin(BOARD, "unknown")]


def test_with_no_job_left_that_can_be_read_the_link_is_closed_for_that_reason() -> None:
    made = followed()
    assert made.took({JOB: OTHER_SOC})[-1] == Close(OTHER_SOC)
    assert made.state is State.CLOSED
    assert made.took({}) == []


def test_what_is_refused_of_the_last_that_came_before_a_goodbye_closes_the_link() -> None:
    made = followed()
    receive(made, batch(Started(7, 1, 0, "new")))
    assert isinstance(made.receive(Goodbye("stopping", 2_000_000), NOW)[0], Take)
    assert made.took({JOB: OTHER_SOC})[-1] == Close(OTHER_SOC)
    assert made.state is State.CLOSED


@pytest.mark.parametrize("state", [State.CLOSED, State.WAITING])
def test_a_stream_that_is_over_is_not_lost_as_well(state: State) -> None:
    assert in_state(state).lost(LOST, NOW) == []


def test_proof_of_life_is_given_when_it_is_due_and_not_before_the_welcome() -> None:
    made = in_state(State.NEGOTIATING)
    assert made.beat(NOW + 100) == []
    receive(made, WELCOME)
    assert made.beat(NOW + 3.9) == []
    assert made.beat(NOW + 4.0) == [Send(ClientHeartbeat())]
    made.pulse.spoke(NOW + 4.0)
    assert made.beat(NOW + 7.9) == []


def test_silence_says_what_it_is() -> None:
    assert "does not answer" in str(in_state(State.CONNECTING).silence())
    assert "has gone silent" in str(in_state(State.FOLLOWING).silence())


@pytest.mark.parametrize("heard", [None, replace(STATUS, caught_up=True), Announced((log(),)), LOSS])
def test_a_job_that_went_before_anything_was_said_of_it_has_not_come(heard: ServerMessage | None) -> None:
    made = in_state(State.FOLLOWING)
    receive(made, STATUS, *([] if heard is None else [heard]))
    gone = replace(STATUS, state="removed")
    changes = [action for action in made.receive(gone, NOW) if isinstance(action, ChangeState)]
    assert changes == [ChangeState(gone, caught_up=heard is not None)]
