"""A link to one board, without I/O: messages and the time go in, what is to be done comes out.

`states.py` has the table. A stream's own rules are those of `session.py`, its work that of `following.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.errors import ProtocolError, RefusedError, UnreachableError
from profagent.formats.names import display_text
from profagent.link.actions import Begin, Close, Connect, FindRoom, Send, Tell, Unlink
from profagent.link.backoff import LONGEST_S, delay_s, slow_delay_s, told_delay_s
from profagent.link.following import Following
from profagent.link.messages import ClientHeartbeat, Goodbye, Heartbeat, Welcome
from profagent.link.pulse import Pulse
from profagent.link.states import Cause, State, Wait, arrow_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from profagent.errors import DiskFullError, UnsupportedBoardError
    from profagent.link.actions import Action
    from profagent.link.choice import JobChoice
    from profagent.link.messages import Holding, Open, ServerMessage
    from profagent.link.states import Arrow

# A link that held for so long was a good one: the next loss is the first of its kind.
SETTLED_S = LONGEST_S
# Streams, one after the other, that end by breaking the protocol before anything of them was taken.
MOST_BREACHES = 5
ROOM_S = 2.0
# Behind by more than a second or two of full rate; and not any more.
LAGGING_BYTES = 16 << 20
CAUGHT_UP_BYTES = 1 << 20
LONGEST_REASON = 200


class Link:
    """Where a link stands. Each method takes `now`, seconds of a clock that never goes back, and returns actions.

    It begins as one that waits for nothing: the first `tick` connects.
    """

    def __init__(
        self,
        address: str,
        opening: Open,
        choice: JobChoice,
        *,
        gather_s: float,
        is_patient: bool,
        uniform: Callable[[float, float], float],
    ) -> None:
        """One that `is_patient` waits for a board that has never answered; `uniform(low, high)` draws delays."""
        self.state = State.WAITING
        self.pulse = Pulse(0.0)
        self._address = address
        self._opening = opening
        self._choice = choice
        self._gather_s = gather_s
        self._is_patient = is_patient
        self._uniform = uniform
        self._following = Following(choice, gather_s)
        self._wait = Wait.NONE
        self._wait_until = float("-inf")
        self._begun = 0.0
        self._was_welcomed = False  # by this link or an earlier one
        self._attempt = 0
        self._breaches = 0

    @property
    def due(self) -> float | None:
        """When `tick` is wanted; None: not before something else happens."""
        if self.state is State.WAITING:
            return self._wait_until
        return self._following.flush_at if self.has_stream else None

    @property
    def has_stream(self) -> bool:
        """Whether there is a stream, or will be at once."""
        return self.state not in (State.WAITING, State.CLOSED)

    def tick(self, now: float) -> list[Action]:
        """Time has passed."""
        if self.due is None or now < self.due:
            return []
        if self.state is not State.WAITING:
            return self._following.flush()
        return [FindRoom()] if self._wait is Wait.ROOM else self._connect(Cause.DUE, now)

    def beat(self, now: float) -> list[Action]:
        """Proof of life, when it is time for it; it does not wait for the sink."""
        return [Send(ClientHeartbeat())] if self.state is not State.NEGOTIATING and now >= self.pulse.speak_at else []

    def opened(self, now: float) -> list[Action]:
        """The channel is open."""
        self._follow(Cause.OPENED)
        self.pulse.heard(now)
        return [Send(self._opening)]

    def receive(self, message: ServerMessage, now: float) -> list[Action]:
        """A message of the board came. Raises ProtocolError when it is against the contract."""
        actions = self._following.receive(message, now)
        match message:
            case Welcome():
                self._follow(Cause.WELCOMED)
                self._was_welcomed = True
                self.pulse.welcomed(message.heartbeat_us)
                return [Begin(message.board, message.role), *actions]
            case Heartbeat():
                return [*actions, *self._lag(message.lag_bytes)]
            case Goodbye():
                # What is told once is not told again to the next stream.
                return [*self._following.flush(), *self._goodbye(message, now)]
        return actions

    def held(self, holdings: Sequence[Holding]) -> list[Action]:
        """The sink's answer to what it was asked."""
        return self._following.held(holdings)

    def took(self, refused: Mapping[str, UnsupportedBoardError]) -> list[Action]:
        """The sink has taken events, and wants nothing more of the JOBs that it refused.

        A link over which something came was a good one: the next loss is the first of its kind.
        """
        self._attempt = self._breaches = 0
        actions = self._following.drop(refused)
        if actions and isinstance(actions[-1], Close) and self.state is not State.CLOSED:
            self._follow(Cause.FAILED)
        return actions

    def lost(self, error: UnreachableError, now: float) -> list[Action]:
        """The stream failed, or never came to be; of one that is over already this is nothing new."""
        if not self.has_stream:
            return []
        self._breaches = self._breaches + 1 if isinstance(error, ProtocolError) else 0
        is_hopeless = self._breaches >= MOST_BREACHES
        if is_hopeless or not (self._is_tried_again(error) or self._is_patient):
            self._follow(Cause.FAILED)
            return [Close(error)]
        if isinstance(error, RefusedError):
            self._follow(Cause.REFUSED)
            return self._unlink(error, slow_delay_s(self._uniform), now)
        self._follow(Cause.LOST)
        self._attempt = 0 if now - self._begun > SETTLED_S else self._attempt
        wait_s = delay_s(self._attempt, self._uniform)
        self._attempt += 1
        return self._unlink(error, wait_s, now)

    def silence(self) -> UnreachableError:
        """What it means that the board has not spoken until `pulse.silent_at`."""
        was_there = self.state in (State.FOLLOWING, State.LAGGING)
        what = "has gone silent" if was_there else "does not answer"
        return UnreachableError(f"the board at {self._address} {what}", hint="check the link and the daemon's log")

    def full(self, error: DiskFullError, now: float) -> list[Action]:
        """The host's disk takes no more: the board keeps what was not acknowledged."""
        self._follow(Cause.DISK_FULL)
        self._wait_until = now + ROOM_S
        return [Tell(f"paused: {error}. Nothing is acknowledged meanwhile: the board keeps it; make room to go on")]

    def room(self, has_room: bool, now: float) -> list[Action]:
        """Whether there is room on the host's disk now."""
        if has_room:
            self._attempt = 0
            return [Tell("there is room again: the capture goes on"), *self._connect(Cause.ROOM, now)]
        self._follow(Cause.DISK_FULL)
        self._wait_until = now + ROOM_S
        return []

    def stop(self) -> list[Action]:
        """End in good order: what has gathered is handed on."""
        actions = self._following.flush() if self.has_stream else []
        self._follow(Cause.STOPPED)
        return [*actions, Close()]

    def _is_tried_again(self, error: UnreachableError) -> bool:
        """A board that breaks the protocol before it has listed its JOBs once would do so again."""
        return self._choice.was_listed or (self._was_welcomed and not isinstance(error, ProtocolError))

    def _follow(self, cause: Cause) -> Arrow:
        arrow = arrow_of(self.state, cause)
        self.state, self._wait = arrow.target, arrow.wait
        return arrow

    def _connect(self, cause: Cause, now: float) -> list[Action]:
        self._follow(cause)
        self._begun = now
        self.pulse = Pulse(now)
        self._following = Following(self._choice, self._gather_s)
        return [Connect()]

    def _unlink(self, error: UnreachableError, wait_s: float, now: float) -> list[Action]:
        self._wait_until = now + wait_s
        return [Unlink(error, wait_s)]

    def _goodbye(self, goodbye: Goodbye, now: float) -> list[Action]:
        self._follow(Cause.GOODBYE)
        self._attempt = 0
        said = display_text(goodbye.reason[:LONGEST_REASON])
        error = UnreachableError(f"the daemon at {self._address} says goodbye: {said}", hint="it is waited for")
        return self._unlink(error, told_delay_s(goodbye.retry_after_us, self._uniform), now)

    def _lag(self, lag_bytes: int) -> list[Action]:
        if self.state is State.FOLLOWING and lag_bytes >= LAGGING_BYTES:
            self._follow(Cause.FELL_BEHIND)
            return [Tell(f"behind the board: {lag_bytes / 1e6:,.1f} MB are still to come")]
        if self.state is State.LAGGING and lag_bytes <= CAUGHT_UP_BYTES:
            self._follow(Cause.CAUGHT_UP)
            return [Tell("caught up with the board")]
        return []
