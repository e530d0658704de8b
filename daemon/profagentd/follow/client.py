"""One client's Follow stream: a reader of its messages, and a writer beside it."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from profagent_wire.checksum import has_checksum
from profagent_wire.v1 import board_pb2 as wire
from profagentd.access import Role
from profagentd.errors import Fault, Refusal
from profagentd.follow import messages
from profagentd.follow.discovery import PAGE_ENTRIES
from profagentd.follow.reading import CHUNK_BYTES, MessageSize, read_batch
from profagentd.follow.session import FollowSession, apply, opening
from profagentd.loop import US_PER_S, NoAnswerError, in_time, moment, until_first

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
    from typing import Callable

    from profagentd.access import Caller
    from profagentd.follow.discovery import Names
    from profagentd.follow.log import Event, FileEvent, Log
    from profagentd.follow.reading import ReadTask, Step
    from profagentd.follow.registry import Job
    from profagentd.follow.server import Servicer
    from profagentd.sources.walk import Page


_STATM = Path("/proc/self/statm")
_NS_PER_US = 1000


@dataclass(frozen=True)
class Usage:
    """CPU time since the start, memory now, free space of each root's file system; 0 where it cannot be seen."""

    cpu_us: int
    rss_bytes: int
    free_bytes: tuple[int, ...]


def usage(free_bytes: tuple[int, ...]) -> Usage:
    """The daemon's use of the board now, with what is known of the roots' file systems."""
    return Usage(time.process_time_ns() // _NS_PER_US, _rss_bytes(), free_bytes)


def _rss_bytes() -> int:
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


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


class StreamWriter:
    """Says what is due in a stream, a little of everything in each turn."""

    def __init__(
        self,
        site: Servicer,
        stream: FollowSession,
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
        self._losses_sent = 0  # revision up to which kept losses are told
        self.has_new_losses = True

    @property
    def due(self) -> float:
        """Monotonic time of the next turn, though nothing happens until then."""
        due = [self._spoke + HEARTBEAT_S, self._release_due, self._choice_due if self._is_choosing else None]
        next_due = self._stream.table.next_due()
        if self._awaits_answer:
            due.append(self._answer_due)
        elif next_due is not None:
            due.append(next_due + LENIENCE_S)
        if self._stream.discovery.is_short_of_room:
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
            usage(self._site.retention.space.free_bytes), moment(self._site.clock), self._stream.table.lag_bytes
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
        if not self.has_new_losses:
            return False
        self.has_new_losses = False
        losses = self._site.retention.losses.since(self._losses_sent)
        self._losses_sent = self._site.retention.losses.revision
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
        if self._stream.table.has_released and self._release_due is None:
            self._release_due = now + RELEASE_S
        is_due = self._release_due is not None and now >= self._release_due
        if not (is_due or at_once or self._stream.discovery.is_short_of_room):
            return False
        self._release_due = None
        told = self._stream.table.has_released
        while self._stream.table.has_released:
            handles = self._stream.table.take_released(PAGE_ENTRIES)
            await self._write(wire.ServerMessage(released=wire.Released(handles=handles)))
        return told

    async def _announce(self) -> bool:
        now, discovery = self._site.clock.monotonic(), self._stream.discovery
        made = discovery.take_made(now)
        await self._announce_logs(made)
        names = discovery.next_names(self._site.clock.monotonic())
        if names is None:
            return bool(made)
        await self._announce_page(names, await _read(names.place.root, names.look))
        return True

    async def _announce_page(self, names: Names, page: Page) -> None:
        logs, losses = self._stream.discovery.looked(names, page, moment(self._site.clock))
        if logs:
            # What a walk finds is much, and comes page after page: nothing waits for the answer to that.
            self._answer_due = float("-inf") if names.walk else self._site.clock.monotonic() + ANSWER_S
        await self._announce_logs(logs)
        await self._send(deque(self._messages(losses)))
        if page.is_job_gone:
            self._miss([names.job])

    async def _announce_logs(self, logs: Sequence[Log]) -> None:
        if any(self._stream.table.is_leaving(log) for log in logs):
            await self._tell_released(at_once=True)
        if logs:
            await self._write(messages.announced(logs))

    async def _send_logs(self) -> bool:
        if self._awaits_answer:
            return False
        now = moment(self._site.clock)
        ready = self._stream.take_read_tasks(TURN_LOGS, now.monotonic)
        if not ready:
            return False
        limit = min(CHUNK_BYTES, self._stream.sending_bytes.room)
        self._stream.sending_bytes.take(limit)
        await self._send_steps(ready, await _read(ready[0].place.root, partial(read_batch, ready, now, limit)))
        self._stream.sending_bytes.give_back(limit)
        return True

    @property
    def _is_choosing(self) -> bool:
        return self._site.clock.monotonic() < self._choice_due and not self._stream.follows_all

    @property
    def _awaits_answer(self) -> bool:
        return not self._stream.discovery.is_answered and self._site.clock.monotonic() < self._answer_due

    async def _send_steps(self, ready: Sequence[ReadTask], steps: Sequence[Step]) -> None:
        begun = self._site.clock.monotonic()
        await self._send(self._batches(ready, steps))
        self._size.sent(sum(step.sent_bytes for step in steps), self._site.clock.monotonic() - begun)
        self._miss({turn.log.job for turn, step in zip(ready, steps) if step.is_job_gone})
        for log in (turn.log for turn, step in zip(ready, steps) if step.wants_look):
            self._stream.discovery.look_at(log)

    def _miss(self, jobs: Iterable[int]) -> None:
        """The directories of these JOBs were not there: whether they are gone is found out."""
        for place in map(self._stream.missed, jobs):
            if place:
                self._site.board.missed(place)

    def _batches(self, ready: Sequence[ReadTask], steps: Sequence[Step]) -> deque[wire.ServerMessage]:
        self._stream.table.put_back(turn.log for turn in ready[len(steps) :])
        events = (event for turn, step in zip(ready, steps) for event in self._stream.table.stepped(turn.log, step))
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


_LOGGER = logging.getLogger(__name__)

# Three times of silence end a stream, which finds a half-open link within 15 s.
SILENCE_S = 3 * HEARTBEAT_S
# A client is heard for so long after the goodbye: what is on its way to it may be lost when the stream ends under it.
LEAVE_S = 2.0
# Why, unless there is another reason.
STOPPING = "the daemon is stopping"
# A client that follows a JOB again is heard so much later: all of it is looked through again.
FOLLOWED_AGAIN_S = 1.0


class ClientStream:
    """The talk with one client; a listener of the board as long as it runs."""

    def __init__(
        self,
        site: Servicer,
        incoming: AsyncIterator[wire.ClientMessage],
        write: Callable[[wire.ServerMessage], Awaitable[None]],
        caller: Caller,
    ) -> None:
        self._site = site
        self._caller = caller
        self._incoming = incoming
        self._write = write
        self._stream = FollowSession(site.quotas)
        self._wake = asyncio.Event()
        self._writer = StreamWriter(site, self._stream, write)
        self._heard = site.clock.monotonic()
        self._is_closing = self._is_draining = False
        self._reason = STOPPING

    @property
    def is_operator(self) -> bool:
        """Whether what this client acknowledges may release anything on the board."""
        return self._caller.role is Role.OPERATOR

    async def run(self) -> None:
        """Talk until the client half-closes, or `close` was called. Raises Refusal."""
        try:
            await until_first(self._talk(), self._mind_silence())
        finally:
            self._stream.close()

    def drain(self) -> None:
        """Say goodbye when everything is sent that there is."""
        self._is_draining = True
        self._wake.set()

    def close(self, reason: str = STOPPING) -> None:
        """Say goodbye soon."""
        self._is_closing, self._reason = True, reason
        self._wake.set()

    # What the board tells

    def job_changed_state(self, job: Job) -> None:
        """The JOB is new or has another state."""
        self._stream.job_changed_state(job)
        self._wake.set()

    def names_changed(self, job: Job, touches: Mapping[bytes, FileEvent]) -> None:
        """These names of the JOB may have changed."""
        self._stream.names_changed(job, touches)
        self._wake.set()

    def names_removed(self, job: Job) -> None:
        """Names of the JOB may be gone."""
        self._stream.names_removed(job)
        self._wake.set()

    def anything_changed(self, job: Job) -> None:
        """Any name of the JOB may have changed."""
        self._stream.anything_changed(job)
        self._wake.set()

    # Both directions

    async def _talk(self) -> None:
        opened = await opening(self._incoming)
        role = self._caller.role.name.lower()
        _LOGGER.info("%s (%s) follows: %s, %s", opened.consumer, opened.client, self._caller, role)
        welcome = messages.welcome(self._site.describe(), self._caller.role, int(HEARTBEAT_S * US_PER_S))
        await self._write(wire.ServerMessage(welcome=welcome))
        await until_first(self._site.ready(), self._beat())
        for job in self._site.board.jobs:
            self._stream.job_changed_state(job)
        take = self._site.retention.taker(opened.consumer) if self.is_operator else None
        if take:
            self._stream.deliver_to(take)
        self._site.board.add_listener(self)
        self._site.retention.losses.add_listener(self._lose)
        try:
            await until_first(self._read(), self._speak())
        finally:
            self._site.retention.losses.remove_listener(self._lose)
            self._site.board.remove_listener(self)
            _LOGGER.info("%s left", opened.consumer)

    def _lose(self) -> None:
        self._writer.has_new_losses = True
        self._wake.set()

    async def _beat(self) -> None:
        """Prove that we live while JOBs are looked for; nobody listens yet, so the client's silence does not count."""
        while True:
            await self._site.clock.sleep(HEARTBEAT_S)
            await self._writer.send_heartbeat()
            self._heard = self._site.clock.monotonic()

    async def _read(self) -> None:
        was_checked = False
        async for message in self._incoming:
            was_checked = has_checksum(message, before=was_checked)
            self._heard = self._site.clock.monotonic()
            apply(message, self._stream)
            self._wake.set()
            again, self._stream.followed_again = self._stream.followed_again, 0
            if again:
                await self._site.clock.sleep(min(again * FOLLOWED_AGAIN_S, HEARTBEAT_S))

    async def _mind_silence(self) -> None:
        while (left_s := self._heard + SILENCE_S - self._site.clock.monotonic()) > 0:
            await self._site.clock.sleep(left_s)
        raise Refusal(Fault.SILENT, f"no message for {SILENCE_S:.0f} s")

    async def _speak(self) -> None:
        await self._writer.list_jobs()
        while not self._is_closing:
            self._wake.clear()
            if await self._writer.turn():
                continue
            if self._is_draining and self._writer.has_all:
                break
            await self._pause()
        await self._writer.say_goodbye(self._reason)
        await self._site.clock.sleep(LEAVE_S)

    async def _pause(self) -> None:
        """Wait until something happens, a log is due, or it is time for a heartbeat."""
        delay_s = max(0.0, self._writer.due - self._site.clock.monotonic())
        timer = asyncio.get_running_loop().call_later(delay_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
