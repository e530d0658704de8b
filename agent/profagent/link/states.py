"""The states of a link to a board, and what leads from one to another: a table, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """What is true of a link."""

    CONNECTING = "connecting"  # a channel is being opened
    NEGOTIATING = "negotiating"  # it is open, and the board has not said welcome
    FOLLOWING = "following"  # the board's logs come as they grow
    LAGGING = "lagging"  # they come, and far more is on the board than has come
    WAITING = "waiting"  # there is no stream, and there will be one
    CLOSED = "closed"  # nothing comes any more


class Cause(Enum):
    """What happens to a link."""

    OPENED = "the channel is open"
    WELCOMED = "the board says welcome"
    FELL_BEHIND = "much is unsent"
    CAUGHT_UP = "little is unsent"
    LOST = "the link is lost"
    REFUSED = "a credential is refused"
    GOODBYE = "the daemon says goodbye"
    DISK_FULL = "the host's disk is full"
    ROOM = "the host's disk has room"
    DUE = "the wait is over"
    STOPPED = "the capture is stopped"
    FAILED = "waiting would not help"


class Wait(Enum):
    """How long a link that waits does so."""

    NONE = "–"
    BACK_OFF = "0 s to 0.25 s, doubled at each attempt up to 30 s"
    SLOW = "30 s to 60 s"
    AS_TOLD = "as the daemon says, 60 s at most"
    ROOM = "2 s, then look for room"


@dataclass(frozen=True, slots=True)
class Arrow:
    """In `state`, `cause` leads to `target`; where that is waiting, `wait` says for how long."""

    state: State
    cause: Cause
    target: State
    wait: Wait = Wait.NONE


ARROWS = (
    Arrow(State.CONNECTING, Cause.OPENED, State.NEGOTIATING),
    Arrow(State.CONNECTING, Cause.LOST, State.WAITING, Wait.BACK_OFF),
    Arrow(State.CONNECTING, Cause.REFUSED, State.WAITING, Wait.SLOW),
    Arrow(State.CONNECTING, Cause.STOPPED, State.CLOSED),
    Arrow(State.CONNECTING, Cause.FAILED, State.CLOSED),
    Arrow(State.NEGOTIATING, Cause.WELCOMED, State.FOLLOWING),
    Arrow(State.NEGOTIATING, Cause.LOST, State.WAITING, Wait.BACK_OFF),
    Arrow(State.NEGOTIATING, Cause.REFUSED, State.WAITING, Wait.SLOW),
    Arrow(State.NEGOTIATING, Cause.STOPPED, State.CLOSED),
    Arrow(State.NEGOTIATING, Cause.FAILED, State.CLOSED),
    Arrow(State.FOLLOWING, Cause.FELL_BEHIND, State.LAGGING),
    Arrow(State.FOLLOWING, Cause.LOST, State.WAITING, Wait.BACK_OFF),
    Arrow(State.FOLLOWING, Cause.REFUSED, State.WAITING, Wait.SLOW),
    Arrow(State.FOLLOWING, Cause.GOODBYE, State.WAITING, Wait.AS_TOLD),
    Arrow(State.FOLLOWING, Cause.DISK_FULL, State.WAITING, Wait.ROOM),
    Arrow(State.FOLLOWING, Cause.STOPPED, State.CLOSED),
    Arrow(State.FOLLOWING, Cause.FAILED, State.CLOSED),
    Arrow(State.LAGGING, Cause.CAUGHT_UP, State.FOLLOWING),
    Arrow(State.LAGGING, Cause.LOST, State.WAITING, Wait.BACK_OFF),
    Arrow(State.LAGGING, Cause.REFUSED, State.WAITING, Wait.SLOW),
    Arrow(State.LAGGING, Cause.GOODBYE, State.WAITING, Wait.AS_TOLD),
    Arrow(State.LAGGING, Cause.DISK_FULL, State.WAITING, Wait.ROOM),
    Arrow(State.LAGGING, Cause.STOPPED, State.CLOSED),
    Arrow(State.LAGGING, Cause.FAILED, State.CLOSED),
    Arrow(State.WAITING, Cause.DUE, State.CONNECTING),
    Arrow(State.WAITING, Cause.ROOM, State.CONNECTING),
    Arrow(State.WAITING, Cause.DISK_FULL, State.WAITING, Wait.ROOM),
    Arrow(State.WAITING, Cause.STOPPED, State.CLOSED),
    Arrow(State.WAITING, Cause.FAILED, State.CLOSED),
)
_BY_CAUSE = {(arrow.state, arrow.cause): arrow for arrow in ARROWS}


def arrow_of(state: State, cause: Cause) -> Arrow:
    """The arrow that a cause takes from a state; AssertionError where there is none."""
    arrow = _BY_CAUSE.get((state, cause))
    assert arrow is not None, f"a link that is {state.value} takes no notice when {cause.value}"
    return arrow
