"""One client's Follow stream: a reader of its messages, and a writer that reads files only when it can send."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from profagent_wire.v1 import board_pb2 as wire
from profagentd import messages, requests
from profagentd.clock import US_PER_S, Clock, moment
from profagentd.disks import Patience, on_disk
from profagentd.following import CHUNK_BYTES
from profagentd.refusal import Fault, Refusal
from profagentd.roles import Role
from profagentd.stream import PAGE_ENTRIES, Stream
from profagentd.supervisor import until_first
from profagentd.turns import take_turns
from profagentd.usage import usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
    from typing import Callable

    from profagentd.board import Board, Job
    from profagentd.budget import Budgets
    from profagentd.changes import Touch
    from profagentd.custody import Custody
    from profagentd.following import Step
    from profagentd.roles import Caller
    from profagentd.selection import Names
    from profagentd.turns import Turn
    from profagentd.walk import Page

_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")

# Each side speaks at least so often; three times of silence end a stream, which finds a half-open link within 15 s.
HEARTBEAT_S = 4.0
SILENCE_S = 3 * HEARTBEAT_S
# When a client that was said goodbye to may come back.
RETRY_AFTER_S = 2.0
# Logs that have their turn in one go.
TURN_LOGS = 128
# A log that waits for nothing but time has its turn with the next that has one, or so much later by itself.
LENIENCE_S = 0.05
# Released handles are told together, so long after the first of them, unless others wait for their room.
RELEASE_S = 0.25
# A client that follows a JOB again is heard so much later: all of it is looked through again.
FOLLOWED_AGAIN_S = 1.0
# A stream whose window is full looks this often whether an idle log can give way.
ROOM_S = 0.25


class Site(Protocol):
    """What a conversation needs of the daemon."""

    @property
    def clock(self) -> Clock:
        """The board's clocks."""

    @property
    def board(self) -> Board:
        """Its JOBs."""

    @property
    def roots(self) -> Sequence[bytes]:
        """Directories under which JOBs are looked for."""

    @property
    def budgets(self) -> Budgets:
        """What all streams share."""

    @property
    def custody(self) -> Custody:
        """What becomes of their files."""

    async def ready(self) -> None:
        """Wait until the JOBs that there are have been found and looked at."""

    def describe(self) -> wire.Description:
        """The board and its daemon now."""


class Conversation:
    """The talk with one client; a listener of the board as long as it runs."""

    def __init__(
        self,
        site: Site,
        incoming: AsyncIterator[wire.ClientMessage],
        write: Callable[[wire.ServerMessage], Awaitable[None]],
        caller: Caller,
    ) -> None:
        self._site = site
        self._caller = caller
        self._incoming = incoming
        self._write = write
        self._stream = Stream(site.budgets)
        self._wake = asyncio.Event()
        self._heard = self._spoke = site.clock.monotonic()
        self._is_closing = False
        self._release_due: float | None = None  # when released handles are told
        self._patience = Patience()
        self._late: dict[bytes, Callable[[], Awaitable[None]]] = {}  # what is to follow, by root
        self._losses_told = 0  # revision up to which kept losses are told

    @property
    def is_operator(self) -> bool:
        """Whether what this client acknowledges may release anything on the board."""
        return self._caller.role is Role.OPERATOR

    async def run(self) -> None:
        """Talk until the client half-closes, or `close` was called. Raises Refusal."""
        try:
            await until_first(self._talk(), self._mind_silence())
        finally:
            self._patience.close()
            self._stream.close()

    def close(self) -> None:
        """Say goodbye soon."""
        self._is_closing = True
        self._wake.set()

    # What the board tells

    def job_changed_state(self, job: Job) -> None:
        """The JOB is new or has another state."""
        self._stream.job_changed_state(job)
        self._wake.set()

    def names_changed(self, job: Job, touches: Mapping[bytes, Touch]) -> None:
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
        opened = await requests.opening(self._incoming)
        role = self._caller.role.name.lower()
        _LOGGER.info("%s (%s) follows: %s, %s", opened.consumer, opened.client, self._caller, role)
        welcome = messages.welcome(self._site.describe(), self._caller.role, int(HEARTBEAT_S * US_PER_S))
        await self._write(wire.ServerMessage(welcome=welcome))
        await until_first(self._site.ready(), self._beat())
        for job in self._site.board.jobs:
            self._stream.job_changed_state(job)
        take = self._site.custody.taker(opened.consumer) if self.is_operator else None
        if take:
            self._stream.deliver_to(take)
            # Of these clients alone it is known that what they hold whole is what was deleted.
            self._stream.was_deleted = self._site.custody.deleted.has
        self._site.board.add_listener(self)
        self._site.custody.losses.add_listener(self._wake.set)
        try:
            await until_first(self._read(), self._speak())
        finally:
            self._site.custody.losses.remove_listener(self._wake.set)
            self._site.board.remove_listener(self)
            _LOGGER.info("%s left", opened.consumer)

    async def _beat(self) -> None:
        """Prove that we live while JOBs are looked for; nobody listens yet, so the client's silence does not count."""
        while True:
            await self._site.clock.sleep(HEARTBEAT_S)
            await self._send_heartbeat()
            self._heard = self._site.clock.monotonic()

    async def _read(self) -> None:
        async for message in self._incoming:
            self._heard = self._site.clock.monotonic()
            requests.apply(message, self._stream)
            self._wake.set()
            again, self._stream.followed_again = self._stream.followed_again, 0
            if again:
                await self._site.clock.sleep(min(again * FOLLOWED_AGAIN_S, HEARTBEAT_S))

    async def _mind_silence(self) -> None:
        while (left_s := self._heard + SILENCE_S - self._site.clock.monotonic()) > 0:
            await self._site.clock.sleep(left_s)
        raise Refusal(Fault.SILENT, f"no message for {SILENCE_S:.0f} s")

    async def _speak(self) -> None:
        await self._tell_jobs()
        await self._write(wire.ServerMessage(jobs_listed=wire.JobsListed()))
        await self._tell_losses()
        while not self._is_closing:
            self._wake.clear()
            if not await self._turn():
                await self._pause()
        retry_us = int(RETRY_AFTER_S * US_PER_S)
        await self._write(
            wire.ServerMessage(goodbye=wire.Goodbye(reason="the daemon is stopping", retry_after_us=retry_us))
        )

    async def _pause(self) -> None:
        """Wait until something happens, a log is due, or it is time for a heartbeat."""
        now = self._site.clock.monotonic()
        due = [self._spoke + HEARTBEAT_S, self._release_due]
        next_due = self._stream.window.next_due()
        if next_due is not None:
            due.append(next_due + LENIENCE_S)
        if self._stream.is_short_of_room:
            due.append(now + ROOM_S)
        delay_s = min(each for each in due if each is not None) - now
        timer = asyncio.get_running_loop().call_later(max(0.0, delay_s), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    # What the writer does in one turn

    async def _turn(self) -> bool:
        """Do a little of everything that is due; whether there was anything."""
        done = [
            await self._take_late(),
            await self._tell_jobs(),
            await self._tell_losses(),
            await self._announce(),
            await self._tell_released(),
            await self._send_logs(),
        ]
        if not any(done):
            done.append(await self._tell_caught_up())
        if self._site.clock.monotonic() - self._spoke >= HEARTBEAT_S:
            await self._send_heartbeat()
        return any(done)

    async def _tell_jobs(self) -> bool:
        if self._stream.has_removed_jobs:
            await self._tell_released(at_once=True)
        views = self._stream.take_statuses()
        for view in views:
            await self._write(wire.ServerMessage(job_status=messages.job_status(view.job, handle=view.handle)))
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
        if not (is_due or at_once or self._stream.is_short_of_room):
            return False
        self._release_due = None
        told = self._stream.window.has_released
        while self._stream.window.has_released:
            handles = self._stream.window.take_released(PAGE_ENTRIES)
            await self._write(wire.ServerMessage(released=wire.Released(handles=handles)))
        return told

    async def _announce(self) -> bool:
        names = self._stream.next_names(self._site.clock.monotonic())
        if names is None:
            return False
        await self._read_files(names.place.root, names.look, partial(self._announce_page, names))
        return True

    async def _announce_page(self, names: Names, page: Page) -> None:
        logs, losses = self._stream.looked(names, page, moment(self._site.clock))
        if any(self._stream.window.is_leaving(log) for log in logs):
            await self._tell_released(at_once=True)
        if logs:
            await self._write(wire.ServerMessage(announced=messages.announced(logs)))
        await self._send(deque(messages.batches(losses)))

    async def _send_logs(self) -> bool:
        now = moment(self._site.clock)
        ready = self._stream.take_turns(TURN_LOGS, now.monotonic)
        if not ready:
            return False
        limit = min(CHUNK_BYTES, self._stream.sending_bytes.room)
        self._stream.sending_bytes.take(limit)
        work = partial(take_turns, ready, now, limit)
        await self._read_files(ready[0].place.root, work, partial(self._send_steps, ready, limit))
        return True

    async def _send_steps(self, ready: Sequence[Turn], limit: int, steps: Sequence[Step]) -> None:
        await self._send(self._batches(ready, steps))
        self._stream.sending_bytes.give_back(limit)

    async def _read_files(self, root: bytes, work: Callable[[], T], then: Callable[[T], Awaitable[None]]) -> None:
        """Have a root's files read; where it hangs, what follows is done when it answers, and other roots go on."""
        task = await self._patience.wait(root, on_disk(root, work))
        if task.done():
            await then(task.result())
            return
        _LOGGER.warning("%s does not answer: its logs wait", os.fsdecode(root))
        self._stream.away.add(root)
        self._late[root] = lambda: then(task.result())
        task.add_done_callback(lambda _: self._wake.set())

    async def _take_late(self) -> bool:
        """Go on with roots that answer again."""
        back = [root for root in self._late if not self._patience.is_late(root)]
        for root in back:
            self._stream.came_back(root)
            await self._late.pop(root)()
        return bool(back)

    def _batches(self, ready: Sequence[Turn], steps: Sequence[Step]) -> deque[wire.ServerMessage]:
        self._stream.window.put_back(turn.log for turn in ready[len(steps) :])
        events = (event for turn, step in zip(ready, steps) for event in self._stream.window.stepped(turn.log, step))
        return deque(messages.batches(events))

    async def _send(self, waiting: deque[wire.ServerMessage]) -> None:
        """Send messages; a client that does not read keeps us here, with no more in memory than them."""
        while waiting:
            await self._write(waiting.popleft())

    async def _send_heartbeat(self) -> None:
        heartbeat = messages.heartbeat(
            usage(self._site.custody.space.free_bytes), moment(self._site.clock), self._stream.window.lag_bytes
        )
        await self._write(wire.ServerMessage(heartbeat=heartbeat))
        self._spoke = self._site.clock.monotonic()
