"""State of the link to one board, without I/O: messages and the time go in, events and messages to send come out.

Messages of the board are checked here and in `logs.py`; a breach of `board.proto` raises ProtocolError.
"""

from __future__ import annotations

import random
from enum import Enum
from typing import TYPE_CHECKING

from msgspec.structs import replace

from profagent.errors import ProtocolError, RefusedError, UnreachableError
from profagent.formats.names import display_text
from profagent.limits import (
    ANSWER_S,
    ENTRIES_PER_MESSAGE,
    LARGEST_BATCH_BYTES,
    LARGEST_BATCH_EVENTS,
    LEAVE_BEHIND_S,
    LONGEST_DELAY_S,
    LONGEST_GOODBYE,
    LONGEST_HEARTBEAT_S,
    MOST_BREACHES,
    QUIET_HEARTBEATS,
    SILENT_HEARTBEATS,
    SLOWEST_DELAY_S,
)
from profagent.link import messages as m
from profagent.link.backoff import FIRST_DELAY_S, Backoff
from profagent.link.coverage import Standing
from profagent.link.logs import LogTable, check_job, refuse
from profagent.link.messages import PROTOCOL, REMOVED, JobStatus
from profagent.units import US_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from profagent.errors import DiskFullError, ProfagentError, UnsupportedBoardError

# Interval between checks of a full disk.
ROOM_S = 2.0
# The link lags behind at one to two seconds of the full rate; the lower bound ends that, so that it does not flicker.
LAGGING_BYTES = 16 << 20
CAUGHT_UP_BYTES = 1 << 20
# Interval of heartbeats until the board sets another, and the shortest that it may set; `limits` says how many may be
# missing. Even with the longest interval a half-open link is found within 15 s.
HEARTBEAT_S, SHORTEST_HEARTBEAT_S = 4.0, 1.0
# Capability of daemons that answer Sync.
SYNC = "sync"


class State(Enum):
    """State of a link."""

    CONNECTING = "connecting"  # a channel is being opened
    NEGOTIATING = "negotiating"  # the channel is open, and Welcome has not arrived
    FOLLOWING = "following"  # the board's logs come as they grow
    LAGGING = "lagging"  # they come, and the board has far more than was sent
    SILENT = "silent"  # the stream is open, and heartbeats of the board are missing
    WAITING = "waiting"  # there is no stream; the next one waits for its time, or for room on the disk
    CLOSED = "closed"  # the session is over, by stop() or an error


class LinkSession:
    """State machine of a link. `now` is in seconds of a monotonic clock.

    The driver opens a stream when the state is CONNECTING; after each call it handles the events first, then the
    messages.
    """

    def __init__(
        self,
        address: str,
        opening: m.Open,
        wants: Callable[[JobStatus, bool], bool],
        *,
        gather_s: float = 0.0,
        is_patient: bool = False,
        uniform: Callable[[float, float], float] | None = None,
    ) -> None:
        """`wants(job, listed)` chooses JOBs; `listed`: the JOB existed when the first stream was opened.

        Events that arrive within `gather_s` are handed on together. A session that `is_patient` also waits for a board
        that has never answered.
        """
        self.state = State.WAITING
        self.error: ProfagentError | None = None  # the error that closed the session
        # True while the state is WAITING because of a full disk.
        self.awaits_room = False
        self.was_listed = False  # the JOBs were listed, on this stream or an earlier one
        self.finish_by: float | None = None  # when the session stops, even without Synced
        self.has_synced = False  # at the end the board confirmed that everything was sent
        self._address, self._opening, self._wants = address, opening, wants
        self._gather_s, self._is_patient = gather_s, is_patient
        self._uniform = uniform or random.uniform  # draws the waits, so that many hosts do not reconnect together
        self._backoff = Backoff(draw=self._uniform)
        self._chosen: dict[str, bool] = {}  # by JOB name, whether it is followed; over all streams
        # Names of JOBs of another SoC, which are not followed on later streams either.
        self._refused: set[str] = set()
        # When the state WAITING ends.
        self._wait_until = float("-inf")
        # True once any stream got its Welcome.
        self._was_welcomed = False
        # Breaches of the protocol in a row: MOST_BREACHES of them close the session.
        self._breaches = 0
        # Events that the driver has not fetched yet.
        self._events: list[m.Event] = []
        self._begin(0.0)

    def _begin(self, now: float) -> None:
        self.heartbeat_s = HEARTBEAT_S
        # When the stream began, and when the board and this side spoke last.
        self._begun_s = self._heard_s = self._spoke_s = now
        # Messages that the driver has not fetched yet.
        self._to_send: list[m.ClientMessage] = []
        # The board's description; None before Welcome.
        self._board: m.Board | None = None
        # Handles belong to a stream, so each one begins with an empty table.
        self._logs = LogTable()
        # The latest status of every JOB on the board, by handle.
        self._jobs: dict[int, JobStatus] = {}
        self._followed: dict[str, int] = {}  # by name, handles of followed JOBs that exist
        # Handles of the JOBs that this stream follows, also of removed ones; JOBs of another SoC are taken out.
        self._selected: set[int] = set()
        self._entered: dict[int, JobStatus] = {}  # by handle, statuses that were handed on
        self._with_events: set[str] = set()  # followed JOBs of which the board sent anything after their Select
        self._were_caught_up: set[str] = set()  # followed JOBs that had caught up once
        # Events that are gathered for the next Arrived; their bytes are bounded.
        self._pending: list[m.Received] = []
        self._unanswered: tuple[m.Batch, float] | None = None  # a batch that waits for Holdings of its new logs
        # The size of the data in `_pending`, which is handed on early at LARGEST_BATCH_BYTES.
        self._pending_bytes = 0
        # When the gathered events are due; None if there are none.
        self._flush_at: float | None = None
        self.lag_bytes = 0  # of the board's latest heartbeat
        # True once this stream has listed the JOBs.
        self._is_listed = False
        self._sync: m.Sync | None = None  # the latest question at the end
        self._sync_selected: frozenset[int] = frozenset()  # followed JOBs when it was sent

    def events_received(self) -> list[m.Event]:
        """Return events in order; each is returned once."""
        events, self._events = self._events, []
        return events

    def messages_to_send(self) -> list[m.ClientMessage]:
        """Return messages to send once the events are handled; each is returned once."""
        messages, self._to_send = self._to_send, []
        return messages

    @property
    def due(self) -> float | None:
        """The time of the next tick(); None if none is needed before another call."""
        if self.state is State.WAITING:
            return self._wait_until
        times = [each for each in (self._flush_at, self.finish_by) if each is not None]
        return min(times, default=None) if self.has_stream else None

    @property
    def has_stream(self) -> bool:
        """True if there is a stream, or a channel is being opened for one."""
        return self.state not in (State.WAITING, State.CLOSED)

    @property
    def speak_at(self) -> float:
        """The time at which the next heartbeat of this side is due."""
        return self._spoke_s + self.heartbeat_s

    @property
    def silent_at(self) -> float:
        """The time at which a board that does not speak is given up."""
        return self._heard_s + SILENT_HEARTBEATS * self.heartbeat_s

    @property
    def quiet_at(self) -> float:
        """The time at which a board that does not speak counts as silent."""
        return self._heard_s + QUIET_HEARTBEATS * self.heartbeat_s

    @property
    def standing(self) -> Standing:
        """The board's standing, for the coverage."""
        match self.state:
            case State.FOLLOWING:
                return Standing.COVERED if self._is_listed else Standing.BEHIND
            case State.LAGGING:
                return Standing.BEHIND
            case State.SILENT:
                return Standing.SILENT
        return Standing.PAUSED if self.awaits_room else Standing.AWAY

    def tick(self, now: float) -> None:
        """Let timers act: the end of a finish, gathered events, the next attempt."""
        if self.due is None or now < self.due:
            return
        if self.finish_by is not None and now >= self.finish_by:
            self.stop()
        elif self.has_stream:
            self.flush()
        elif not self.awaits_room:
            self._connect(now)

    def opened(self, now: float) -> None:
        """Note that the channel is open; the first message is queued."""
        self.state = State.NEGOTIATING
        self._heard_s = now
        self._to_send.append(self._opening)

    def heard(self, now: float) -> None:
        """Note that the board spoke, or that its messages could not be read until now."""
        self._heard_s = now
        if self.state is State.SILENT:
            self.state = State.FOLLOWING
            self._events.append(m.Remark("the board speaks again"))
            self._show()  # the coverage dropped JOBs that were behind when the silence began

    def quiet(self, now: float) -> bool:
        """Return True if the board has become silent, with a remark. Its stream stays open until `silent_at`."""
        if self.state not in (State.FOLLOWING, State.LAGGING) or now < self.quiet_at:
            return False
        self.state = State.SILENT
        silent_s = now - self._heard_s
        self._events.append(m.Remark(f"the board has said nothing for {silent_s:.0f} s: it is frozen, or cut off"))
        return True

    def spoke(self, now: float) -> None:
        """Note that a message was sent."""
        self._spoke_s = now

    def receive(self, message: m.ServerMessage, now: float) -> None:
        """Handle a message of the board. Raises ProtocolError if it breaks the contract."""
        if self._board is None and not isinstance(message, m.Welcome):
            refuse(f"{type(message).__name__} came before Welcome")
        match message:
            case m.Batch():
                self._gather(message, now)
            case m.Announced():
                self._announced(message.logs)
            case m.Released():
                self._logs.forget(*message.handles)
            case m.Heartbeat():
                self._lag(message.lag_bytes)
            case JobStatus():
                self._job(self._checked(message))
            case m.JobsListed():
                self._listed()
            case m.Welcome():
                self._welcome(message)
            case m.Synced() | m.Goodbye():
                self._last_word(message, now)

    def flush(self) -> None:
        """Hand on gathered events as one Arrived."""
        if self._pending:
            self._events.append(m.Arrived(tuple(self._pending)))
            self._pending, self._pending_bytes, self._flush_at = [], 0, None

    def hold(self, holdings: Sequence[m.Holding]) -> None:
        """Take the answers to LogsAnnounced. Raises ProtocolError as `receive` does."""
        answers = [holding for holding in holdings if self._logs.hold(holding)]
        for start in range(0, len(answers), ENTRIES_PER_MESSAGE):
            self._to_send.append(m.Holdings(tuple(answers[start : start + ENTRIES_PER_MESSAGE])))
        if self._unanswered is not None:
            (batch, now), self._unanswered = self._unanswered, None
            self._gather(batch, now)

    def took(self, refused: Mapping[str, UnsupportedBoardError]) -> None:
        """Note that the sink took events, and stop following JOBs of another SoC.

        A link that carried data was good, so breaches and backoff begin anew. If every followed JOB is of another SoC,
        the session fails.
        """
        self._breaches = 0
        if self._backoff.waits:
            self._backoff.reset()
        handles = tuple(handle for handle in self._selected if self._jobs[handle].name in refused)
        if not handles:
            return
        self._selected -= {*handles}
        for name in {self._jobs[handle].name for handle in handles}:
            self._followed.pop(name, None)
            self._refused.add(name)
        self._to_send.append(m.Select(unfollow=handles))
        self._show()
        if not self._selected and self.state is not State.CLOSED:
            self._fail(refused[self._jobs[handles[0]].name])

    def lost(self, error: UnreachableError, now: float) -> None:
        """Note that the stream failed or could not be opened; ignored if the stream is over already."""
        if not self.has_stream:
            return
        self._breaches = self._breaches + 1 if isinstance(error, ProtocolError) else 0
        # A board that broke the protocol before its first list of JOBs would do so again.
        is_tried_again = self.was_listed or (self._was_welcomed and not isinstance(error, ProtocolError))
        if self._breaches >= MOST_BREACHES or not (is_tried_again or self._is_patient):
            self._fail(error)
        elif isinstance(error, RefusedError):
            self._unlink(error, self._uniform(LONGEST_DELAY_S, SLOWEST_DELAY_S), now)
        else:
            # A link that lasted longer than the longest delay was good: the next loss is the first of a series.
            if now - self._begun_s > LONGEST_DELAY_S:
                self._backoff.reset()
            self._unlink(error, self._backoff.wait_s(), now)

    def silence(self) -> UnreachableError:
        """Return the error for a board that has not spoken until `silent_at`."""
        is_open = self.state in (State.FOLLOWING, State.LAGGING, State.SILENT)
        what = "has gone silent" if is_open else "does not answer"
        return UnreachableError(f"the board at {self._address} {what}", hint="check the link and the daemon's log")

    def full(self, error: DiskFullError, now: float) -> None:
        """Wait for room on the host's disk; the board keeps what was not acknowledged."""
        self.room(has_room=False, now=now)
        text = f"paused: {error}. Nothing is acknowledged meanwhile: the board keeps it; make room to go on"
        self._events.append(m.Remark(text))

    def room(self, *, has_room: bool, now: float) -> None:
        """Take the result of a check of the disk: connect if it has room, else wait for the next check."""
        if not has_room:
            self.state = State.WAITING
            self.awaits_room, self._wait_until = True, now + ROOM_S
            return
        self._backoff.reset()
        self._events.append(m.Remark("there is room again: the capture goes on"))
        self._connect(now)

    def finish(self, now: float, *, asks: bool) -> None:
        """End soon. With `asks` the board has ANSWER_S to confirm that everything it holds has been sent."""
        if self._board is None or not self.has_stream:
            self.stop()
        elif self.finish_by is None:
            jobs = (self._jobs[handle] for handle in self._selected)
            is_behind = not all(job.is_over or job.name in self._were_caught_up for job in jobs)
            can_ask = asks and SYNC in self._board.capabilities
            self.finish_by = now + (ANSWER_S if can_ask and not is_behind else LEAVE_BEHIND_S)
            # An older daemon cannot be asked; its JOBs caught up, and its heartbeats still arrive.
            self.has_synced = not (can_ask or is_behind) and self.state is State.FOLLOWING
            if can_ask:
                self._ask()

    def stop(self) -> None:
        """Close the session in good order: gathered events are handed on."""
        # A stopped session still hands on what arrived, so that the sink can commit it.
        if self.has_stream:
            self.flush()
        self.state = State.CLOSED

    def _ask(self) -> None:
        self._sync = m.Sync(1 if self._sync is None else self._sync.number + 1)
        self._sync_selected = frozenset(self._selected)
        self._to_send.append(self._sync)

    def _synced(self, synced: m.Synced) -> None:
        if self._sync is None or synced.number != self._sync.number:
            return
        if not self._selected <= self._sync_selected:
            self._ask()  # a JOB was selected after the question, and the answer does not cover it
            return
        self.has_synced = True
        self.stop()

    def _connect(self, now: float) -> None:
        self.state = State.CONNECTING
        self.awaits_room = False
        self._begin(now)

    def _unlink(self, error: UnreachableError, wait_s: float, now: float) -> None:
        self.state = State.WAITING
        self._wait_until = now + wait_s
        self._events.append(m.Unlinked(error, wait_s))

    def _fail(self, error: ProfagentError) -> None:
        self.state = State.CLOSED
        self.error = error

    def _welcome(self, welcome: m.Welcome) -> None:
        if self._board is not None:
            refuse("Welcome came twice")
        if welcome.board.protocol[0] != PROTOCOL[0]:
            theirs, ours = (".".join(map(str, version)) for version in (welcome.board.protocol, PROTOCOL))
            raise ProtocolError(
                f"the board speaks protocol {theirs}, this profagent {ours}", hint="upgrade profagent on both ends"
            )
        self.state = State.FOLLOWING
        self._board, self._was_welcomed = welcome.board, True
        if welcome.heartbeat_us:
            # Bounded: a board must neither make this host send all the time nor keep a dead link open for long.
            self.heartbeat_s = min(max(welcome.heartbeat_us / US_PER_S, SHORTEST_HEARTBEAT_S), LONGEST_HEARTBEAT_S)
        self._events.append(welcome)

    def _last_word(self, message: m.Synced | m.Goodbye, now: float) -> None:
        if isinstance(message, m.Synced):
            self._synced(message)
        else:
            self._goodbye(message, now)

    def _goodbye(self, goodbye: m.Goodbye, now: float) -> None:
        # Gathered events go first: the next stream does not repeat them.
        self.flush()
        self._backoff.reset()
        said = display_text(goodbye.reason[:LONGEST_GOODBYE])
        error = UnreachableError(
            f"the daemon at {self._address} is shutting down: {said}", hint="profagent waits for it to return"
        )
        wait_s = min(goodbye.retry_after_us / US_PER_S, SLOWEST_DELAY_S) + self._uniform(0.0, FIRST_DELAY_S)
        self._unlink(error, wait_s, now)

    def _lag(self, lag_bytes: int) -> None:
        self.lag_bytes = lag_bytes
        if self.state is State.FOLLOWING and lag_bytes >= LAGGING_BYTES:
            self.state = State.LAGGING
            self._events.append(m.Remark(f"behind the board: {lag_bytes / 1e6:,.1f} MB are still to come"))
        elif self.state is State.LAGGING and lag_bytes <= CAUGHT_UP_BYTES:
            self.state = State.FOLLOWING
            self._events.append(m.Remark("caught up with the board"))

    def _gather(self, batch: m.Batch, now: float) -> None:
        if batch.made:
            # The events of the batch wait until the sink has answered for its new logs: only then is known which are
            # dropped.
            self._unanswered = replace(batch, made=()), now
            self._announced(batch.made, is_asked=False)
            return
        events = [each for event in batch.events if (each := self._logs.take(event, self._entered))]
        if events and not self._pending:
            self._flush_at = now + self._gather_s
        self._pending += events
        self._with_events |= {each.job for each in events}
        self._pending_bytes += sum(len(e.event.data) for e in events if isinstance(e.event, m.Started | m.Chunk))
        if self._pending_bytes >= LARGEST_BATCH_BYTES or len(self._pending) >= LARGEST_BATCH_EVENTS:
            self.flush()

    def _announced(self, announced: Sequence[m.AnnouncedLog], *, is_asked: bool = True) -> None:
        logs = tuple(self._logs.announce(log, self._entered, is_asked=is_asked) for log in announced)
        self._with_events |= {log.job for log in logs}
        # The sink can answer for a log only when all data that came under its earlier handle was handed on.
        pending = {(each.job, each.log.path) for each in self._pending if each.log is not None}
        if any((log.job, log.path) in pending for log in logs):
            self.flush()
        self._events.append(m.LogsAnnounced(logs))

    def _listed(self) -> None:
        self.was_listed = self._is_listed = True
        names = (job.name for job in self._jobs.values() if job.state != REMOVED)
        self._events.append(m.JobNames(frozenset(names)))
        self._show()

    def _checked(self, status: JobStatus) -> JobStatus:
        """Return the checked status, not caught up while logs of the JOB were dropped."""
        check_job(status, self._jobs)
        if status.caught_up and self._logs.awaits(status.name):
            status = replace(status, caught_up=False)  # the board repeats it when they have come
        self._jobs[status.handle] = status
        return status

    def _job(self, job: JobStatus) -> None:
        if job.handle not in self._selected and not self._select(job):
            return
        known, self._entered[job.handle] = self._entered.get(job.handle), job
        is_news = known is None or (known.state, known.caught_up) != (job.state, job.caught_up)
        is_gone = job.state == REMOVED and self._followed.get(job.name) == job.handle
        if is_gone:
            del self._followed[job.name]
        if job.caught_up:
            self._with_events.add(job.name)
            self._were_caught_up.add(job.name)
        if is_news:
            self.flush()
        # Events go first: observers take what follows a caught-up JOB as new.
        self._show()
        if is_news:
            # A JOB that was removed before the board received its Select has not arrived.
            has_come = job.caught_up or (job.state == REMOVED and job.name in self._with_events)
            self._events.append(m.JobEntered(job, has_come))
        if is_gone:
            for other in [each for each in self._jobs.values() if each.name == job.name and each.state != REMOVED]:
                self._job(other)

    def _select(self, job: JobStatus) -> bool:
        if job.state == REMOVED or job.name in self._followed or not self._is_chosen(job):
            return False
        self._selected.add(job.handle)
        self._followed[job.name] = job.handle
        self._with_events.discard(job.name)
        self._were_caught_up.discard(job.name)
        self._events.append(m.JobFollowed(job))
        self._to_send.append(m.Select((job.handle,)))
        return True

    def _is_chosen(self, job: JobStatus) -> bool:
        if job.name in self._refused:
            return False
        if not self._chosen.get(job.name):
            is_listed = not self.was_listed or job.name in self._chosen
            self._chosen[job.name] = self._wants(job, is_listed)
        return self._chosen[job.name]

    def _show(self) -> None:
        if self.was_listed:
            self._events.append(m.JobsShown(tuple(self._jobs[handle] for handle in self._selected)))
