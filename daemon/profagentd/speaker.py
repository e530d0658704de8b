"""What the daemon says on a stream, turn by turn: it reads files only when it can send, and says what they hold."""

from __future__ import annotations

import os
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from profagent_wire.v1 import board_pb2 as wire
from profagentd import messages
from profagentd.announcing import PAGE_ENTRIES
from profagentd.clock import US_PER_S, Clock, moment
from profagentd.disks import NoAnswerError, in_time
from profagentd.following import CHUNK_BYTES
from profagentd.message_size import MessageSize
from profagentd.refusal import Fault, Refusal
from profagentd.turns import take_turns
from profagentd.usage import usage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence
    from typing import Callable

    from profagentd.board import Board
    from profagentd.custody import Custody
    from profagentd.events import Event
    from profagentd.following import Step
    from profagentd.log import Log
    from profagentd.selection import Names
    from profagentd.stream import Stream
    from profagentd.turns import Turn
    from profagentd.walk import Page


T = TypeVar("T")


# Each side speaks at least so often.
HEARTBEAT_S = 4.0
# So long a client that was told of JOBs may still choose to follow some.
CHOICE_S = 1.0
# When a client that was said goodbye to may come back.
RETRY_AFTER_S = 2.0
# Logs that have their turn in one go.
TURN_LOGS = 128
# A log that waits for nothing but time has its turn with the next that has one, or so much later by itself.
LENIENCE_S = 0.15
# After new logs were announced, others let theirs be sent with them, unless the answer takes longer than this.
ANSWER_S = 0.05
# Released handles are told together, so long after the first of them, unless others wait for their room.
RELEASE_S = 0.25
# A stream whose window is full looks this often whether an idle log can give way.
ROOM_S = 0.25


class Surroundings(Protocol):
    """What a speaker needs of the daemon."""

    @property
    def clock(self) -> Clock:
        """The board's clocks."""

    @property
    def board(self) -> Board:
        """Its JOBs."""

    @property
    def custody(self) -> Custody:
        """What becomes of their files."""


class Speaker:
    """Says what is due in a stream, a little of everything in each turn."""

    def __init__(
        self,
        site: Surroundings,
        stream: Stream,
        write: Callable[[wire.ServerMessage], Awaitable[None]],
    ) -> None:
        self._site = site
        self._stream = stream
        self._write = write
        self._spoke = site.clock.monotonic()
        self._release_due: float | None = None  # when released handles are told
        self._choice_due = float("-inf")  # until when the client may choose among the JOBs that were told last
        self._answer_due = float("-inf")  # until when logs let theirs be sent with those that were announced
        self._size = MessageSize()
        self._losses_told = 0  # revision up to which kept losses are told

    @property
    def due(self) -> float:
        """Monotonic time of the next turn, though nothing happens until then."""
        due = [self._spoke + HEARTBEAT_S, self._release_due, self._choice_due if self._is_choosing else None]
        next_due = self._stream.window.next_due()
        if self._awaits_answer:
            due.append(self._answer_due)
        elif next_due is not None:
            due.append(next_due + LENIENCE_S)
        if self._stream.announcer.is_short_of_room:
            due.append(self._site.clock.monotonic() + ROOM_S)
        return min(each for each in due if each is not None)

    @property
    def has_all(self) -> bool:
        """Whether the client has everything of what it follows, as it wants it, and has had time to choose that."""
        return self._stream.is_caught_up and not self._is_choosing

    async def list_jobs(self) -> None:
        """Say what there is when a client has come."""
        await self._tell_jobs()
        await self._write(wire.ServerMessage(jobs_listed=wire.JobsListed()))
        await self._tell_losses()

    async def say_goodbye(self, reason: str) -> None:
        """Say that the stream is about to end, and when the client may come back."""
        retry_us = int(RETRY_AFTER_S * US_PER_S)
        await self._write(wire.ServerMessage(goodbye=wire.Goodbye(reason=reason, retry_after_us=retry_us)))

    async def send_heartbeat(self) -> None:
        """Prove that the daemon lives."""
        heartbeat = messages.heartbeat(
            usage(self._site.custody.space.free_bytes), moment(self._site.clock), self._stream.window.lag_bytes
        )
        await self._write(wire.ServerMessage(heartbeat=heartbeat))
        self._spoke = self._site.clock.monotonic()

    async def turn(self) -> bool:
        """Do a little of everything that is due; whether there was anything."""
        done = [
            await self._tell_jobs(),
            await self._tell_losses(),
            await self._announce(),
            await self._tell_released(),
            await self._send_logs(),
        ]
        if not any(done):
            done.append(await self._tell_caught_up())
        if self._site.clock.monotonic() - self._spoke >= HEARTBEAT_S:
            await self.send_heartbeat()
        return any(done)

    # Parts of a turn

    async def _tell_jobs(self) -> bool:
        if self._stream.has_removed_jobs:
            await self._tell_released(at_once=True)
        views = self._stream.take_statuses()
        for view in views:
            await self._write(wire.ServerMessage(job_status=messages.job_status(view.job, handle=view.handle)))
        if views:
            self._choice_due = self._site.clock.monotonic() + CHOICE_S
        return bool(views)

    async def _tell_losses(self) -> bool:
        losses = self._site.custody.losses.since(self._losses_told)
        self._losses_told = self._site.custody.losses.revision
        for batch in messages.kept_losses(losses, self._stream.job_handle):
            await self._write(wire.ServerMessage(batch=batch))
        return bool(losses)

    async def _tell_caught_up(self) -> bool:
        views = self._stream.take_caught_up()
        for view in views:
            status = messages.job_status(view.job, handle=view.handle, caught_up=True)
            await self._write(wire.ServerMessage(job_status=status))
        return bool(views)

    async def _tell_released(self, *, at_once: bool = False) -> bool:
        now = self._site.clock.monotonic()
        if self._stream.window.has_released and self._release_due is None:
            self._release_due = now + RELEASE_S
        is_due = self._release_due is not None and now >= self._release_due
        if not (is_due or at_once or self._stream.announcer.is_short_of_room):
            return False
        self._release_due = None
        told = self._stream.window.has_released
        while self._stream.window.has_released:
            handles = self._stream.window.take_released(PAGE_ENTRIES)
            await self._write(wire.ServerMessage(released=wire.Released(handles=handles)))
        return told

    async def _announce(self) -> bool:
        now, announcer = self._site.clock.monotonic(), self._stream.announcer
        made = announcer.take_made(now)
        await self._announce_logs(made)
        names = announcer.next_names(self._site.clock.monotonic())
        if names is None:
            return bool(made)
        await self._announce_page(names, await _read(names.place.root, names.look))
        return True

    async def _announce_page(self, names: Names, page: Page) -> None:
        logs, losses = self._stream.announcer.looked(names, page, moment(self._site.clock))
        if logs:
            # What a walk finds is much, and comes page after page: nothing waits for the answer to that.
            self._answer_due = float("-inf") if names.walk else self._site.clock.monotonic() + ANSWER_S
        await self._announce_logs(logs)
        await self._send(deque(self._messages(losses)))
        if page.is_job_gone:
            self._miss([names.job])

    async def _announce_logs(self, logs: Sequence[Log]) -> None:
        if any(self._stream.window.is_leaving(log) for log in logs):
            await self._tell_released(at_once=True)
        if logs:
            await self._write(messages.announced(logs))

    async def _send_logs(self) -> bool:
        if self._awaits_answer:
            return False
        now = moment(self._site.clock)
        ready = self._stream.take_turns(TURN_LOGS, now.monotonic)
        if not ready:
            return False
        limit = min(CHUNK_BYTES, self._stream.sending_bytes.room)
        self._stream.sending_bytes.take(limit)
        await self._send_steps(ready, await _read(ready[0].place.root, partial(take_turns, ready, now, limit)))
        self._stream.sending_bytes.give_back(limit)
        return True

    @property
    def _is_choosing(self) -> bool:
        return self._site.clock.monotonic() < self._choice_due and not self._stream.follows_all

    @property
    def _awaits_answer(self) -> bool:
        return not self._stream.announcer.is_answered and self._site.clock.monotonic() < self._answer_due

    async def _send_steps(self, ready: Sequence[Turn], steps: Sequence[Step]) -> None:
        begun = self._site.clock.monotonic()
        await self._send(self._batches(ready, steps))
        self._size.sent(sum(step.sent_bytes for step in steps), self._site.clock.monotonic() - begun)
        self._miss({turn.log.job for turn, step in zip(ready, steps) if step.is_job_gone})
        for log in (turn.log for turn, step in zip(ready, steps) if step.wants_look):
            self._stream.announcer.look_at(log)

    def _miss(self, jobs: Iterable[int]) -> None:
        """The directories of these JOBs were not there: whether they are gone is found out."""
        for place in map(self._stream.missed, jobs):
            if place:
                self._site.board.missed(place)

    def _batches(self, ready: Sequence[Turn], steps: Sequence[Step]) -> deque[wire.ServerMessage]:
        self._stream.window.put_back(turn.log for turn in ready[len(steps) :])
        events = (event for turn, step in zip(ready, steps) for event in self._stream.window.stepped(turn.log, step))
        return deque(self._messages(events))

    def _messages(self, events: Iterable[Event]) -> Iterable[wire.ServerMessage]:
        return messages.batches(events, self._size.limit)

    async def _send(self, waiting: deque[wire.ServerMessage]) -> None:
        """Send messages; a client that does not read keeps us here, with no more in memory than them."""
        while waiting:
            await self._write(waiting.popleft())


async def _read(root: bytes, work: Callable[[], T]) -> T:
    """Have a root's files read. Raises Refusal where it hangs: another stream goes on without it."""
    try:
        return await in_time(root, work)
    except NoAnswerError as error:
        raise Refusal(Fault.AWAY, f"{os.fsdecode(root)}: {error.strerror}") from error
