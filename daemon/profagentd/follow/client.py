"""One client's Follow stream: a reader of its messages, and a writer beside it."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from profagent_wire.checksum import has_checksum
from profagent_wire.v1 import board_pb2 as wire
from profagentd.access import Role
from profagentd.errors import Fault, Refusal
from profagentd.follow import messages
from profagentd.follow.log import OVER
from profagentd.follow.reading import read_batch
from profagentd.follow.session import FollowSession
from profagentd.limits import LEAVE_S, ROOM_S, SILENCE_S, SURE_LOGS, TURN_LOGS
from profagentd.loop import US_PER_S, NoAnswerError, in_time, moment, until_first

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
    from typing import Callable

    from profagentd.access import Caller
    from profagentd.follow.log import Event, Log
    from profagentd.follow.reading import ReadStep, ReadTask
    from profagentd.follow.server import Servicer
    from profagentd.sources.files import Fingerprint, FolderPlace

_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")

# Each side speaks at least so often; three times of silence end a stream, which finds a half-open link within 15 s.
HEARTBEAT_S = 4.0
# When a client that was said goodbye to may come back.
RETRY_AFTER_S = 2.0
# A Sync waits for a search for JOBs that is under way; its end wakes nobody.
SYNC_LOOK_S = 0.02
# Released handles are told so often, or when there are so many, room is short, or others are announced.
RELEASE_S, RELEASE_LOGS = 1.0, 128
# Why, unless there is another reason.
STOPPING = "the daemon is stopping"


class ClientStream:
    """The talk with one client, who is told a little of everything due in each turn."""

    def __init__(
        self,
        site: Servicer,
        incoming: AsyncIterator[wire.ClientMessage],
        write: Callable[[wire.ServerMessage], Awaitable[None]],
        caller: Caller,
    ) -> None:
        self._site = site
        self._clock = site.clock
        self._caller = caller
        self._incoming = incoming
        self._write = write
        self._session = FollowSession(site.quota)
        self._take: Callable[[FolderPlace, bytes, Fingerprint], None] | None = None  # who counts what the client has
        self._wake = asyncio.Event()
        self._heard = self._spoke = self._released = self._clock.monotonic()
        self._has_new_losses = True
        self._losses_sent = 0  # revision up to which kept losses are told
        self._is_closing = self._is_draining = False
        self._reason = STOPPING

    async def run(self) -> None:
        """Talk until the client half-closes, or `close` was called. Raises Refusal."""
        try:
            await until_first(self._talk(), self._mind_silence())
        finally:
            self._session.close()

    def drain(self) -> None:
        """Say goodbye when everything is sent that there is."""
        self._is_draining = True
        self._wake.set()

    def close(self, reason: str = STOPPING) -> None:
        """Say goodbye soon."""
        self._is_closing, self._reason = True, reason
        self._wake.set()

    def _lose(self) -> None:
        self._has_new_losses = True
        self._wake.set()

    # Both directions

    async def _talk(self) -> None:
        opened = await self._open()
        role = self._caller.role.name.lower()
        _LOGGER.info("%s (%s) follows: %s, %s", opened.consumer, opened.client, self._caller, role)
        welcome = messages.welcome(self._site.describe(), self._caller.role, int(HEARTBEAT_S * US_PER_S))
        await self._write(wire.ServerMessage(welcome=welcome))
        await until_first(self._site.ready(), self._beat())
        for job in self._site.board.jobs:
            self._session.job_changed_state(job)
        if self._caller.role is Role.OPERATOR:
            self._take = self._site.retention.taker(opened.consumer)
        self._site.board.add_listener(self._session, self._wake.set)
        self._site.retention.losses.add_listener(self._lose)
        try:
            await until_first(self._read(), self._speak())
        finally:
            self._site.retention.losses.remove_listener(self._lose)
            self._site.board.remove_listener(self._session)
            _LOGGER.info("%s left", opened.consumer)

    async def _open(self) -> wire.Open:
        async for message in self._incoming:
            return messages.check_open(message)
        raise Refusal(Fault.INVALID, "the first message of a stream is Open")

    async def _beat(self) -> None:
        """Prove that we live while JOBs are looked for; nobody listens yet, so the client's silence does not count."""
        while True:
            await self._clock.sleep(HEARTBEAT_S)
            await self._send_heartbeat()
            self._heard = self._clock.monotonic()

    async def _read(self) -> None:
        was_checked = False
        async for message in self._incoming:
            was_checked = has_checksum(message, before=was_checked)
            self._heard = self._clock.monotonic()
            messages.apply(message, self._session)
            if message.HasField("sync"):
                self._site.catch_up()
            self._deliver()
            self._wake.set()

    async def _mind_silence(self) -> None:
        while (left_s := self._heard + SILENCE_S - self._clock.monotonic()) > 0:
            await self._clock.sleep(left_s)
        raise Refusal(Fault.SILENT, f"no message for {SILENCE_S:.0f} s")

    async def _speak(self) -> None:
        await self._tell_jobs()
        await self._write(wire.ServerMessage(jobs_listed=wire.JobsListed()))
        while not self._is_closing:
            self._wake.clear()
            if await self._turn():
                continue
            if self._is_draining and self._session.is_caught_up:
                break
            await self._pause()
        goodbye = wire.Goodbye(reason=self._reason, retry_after_us=int(RETRY_AFTER_S * US_PER_S))
        await self._write(wire.ServerMessage(goodbye=goodbye))
        await self._clock.sleep(LEAVE_S)

    async def _pause(self) -> None:
        """Wait until something happens, a log is due, or it is time for a heartbeat."""
        now, table = self._clock.monotonic(), self._session.table
        release = self._released + RELEASE_S if table.released else math.inf
        room = now + ROOM_S if self._session.awaits_room else math.inf
        sync = math.inf if self._session.sync_due is None else now + SYNC_LOOK_S
        due = min(self._spoke + HEARTBEAT_S, table.next_due(), release, room, sync)
        timer = asyncio.get_running_loop().call_later(max(0.0, due - now), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    # Parts of a turn

    async def _turn(self) -> bool:
        """Do a little of everything that is due; whether there may be more."""
        done = [
            await self._tell_jobs(),
            await self._tell_losses(),
            await self._tell_released(RELEASE_S),
            await self._tell_logs(),
        ]
        if not any(done):
            caught_up = self._session.take_caught_up()
            done.append(await self._say(messages.job_status(each, caught_up=True) for each in caught_up))
        if not any(done) and self._session.sync_due is not None and self._site.has_searched:
            await self._say(map(messages.synced, self._session.take_synced()))
        if self._clock.monotonic() - self._spoke >= HEARTBEAT_S:
            await self._send_heartbeat()
        return any(done)

    async def _send_heartbeat(self) -> None:
        await self._write(messages.heartbeat(self._session.table.lag_bytes))
        self._spoke = self._clock.monotonic()

    async def _tell_jobs(self) -> bool:
        due, losses = self._session.take_statuses(), self._session.take_losses()
        if not (due or losses):
            return False
        await self._say(messages.batches(losses))
        if any(following.is_over for following in due):
            await self._tell_released()
        return await self._say(map(messages.job_status, due))

    async def _tell_losses(self) -> bool:
        if not self._has_new_losses:
            return False
        self._has_new_losses = False
        losses = self._site.retention.losses
        since, self._losses_sent = losses.since(self._losses_sent), losses.revision
        return await self._say(messages.kept_losses(since, self._session))

    async def _tell_released(self, delay_s: float = 0.0) -> bool:
        """Tell which handles are over, unless some were told so lately."""
        table, now = self._session.table, self._clock.monotonic()
        can_wait = now < self._released + delay_s and table.released < RELEASE_LOGS and table.room >= SURE_LOGS
        if can_wait or not table.released:
            return False
        self._released = now
        return await self._say(messages.released(table.take_released()))

    async def _tell_logs(self) -> bool:
        """Announce logs, in their order, and send what is due of them; whether more is due."""
        now = self._clock.monotonic()
        made, names = self._session.take_made(now), self._session.next_look(now)
        await self._tell_left(made)
        has_more = await self._send_logs(made)
        if names is None:
            return has_more
        page = await _in_time(names.following.job.place.root, names.look)
        logs, losses = self._session.looked(names, page, moment(self._clock))
        await self._tell_left(logs)
        await self._say(messages.announced(logs))
        await self._say(messages.batches(losses))
        return True

    async def _tell_left(self, logs: Sequence[Log]) -> None:
        """A log has one handle at a time: the client is told of the end of earlier ones."""
        if any(map(self._session.table.is_leaving, logs)):
            await self._tell_released()

    async def _send_logs(self, made: Sequence[Log]) -> bool:
        now = moment(self._clock)
        tasks = self._session.take_read_tasks(TURN_LOGS, now.monotonic)
        if not tasks:
            await self._say(messages.batches((), made=made))
            return False
        steps = await _in_time(tasks[0].place.root, partial(read_batch, tasks, now, self._site.quota.read_bytes))
        await self._say(messages.batches(self._events(tasks, steps), made=made))
        self._deliver()
        # What is over made room, and its JOB may be over with it.
        return self._session.table.has_ready or any(task.log.state is OVER for task in tasks)

    def _events(self, tasks: Sequence[ReadTask], steps: Sequence[ReadStep]) -> list[Event]:
        table = self._session.table
        table.put_back(task.log for task in tasks[len(steps) :])
        return [event for task, step in zip(tasks, steps) for event in self._session.stepped(task.log, step)]

    def _deliver(self) -> None:
        for delivered in self._session.take_delivered():
            if self._take:
                self._take(*delivered)

    async def _say(self, said: Iterable[wire.ServerMessage]) -> bool:
        """Send messages; a client that does not read keeps us here. Whether there were any."""
        count = 0
        for message in said:
            await self._write(message)
            count += 1
        return count > 0


async def _in_time(root: bytes, work: Callable[[], T]) -> T:
    """Have a root's files read. Raises Refusal where it hangs: another stream goes on without it."""
    try:
        return await in_time(root, work)
    except NoAnswerError as error:
        raise Refusal(Fault.AWAY, f"{os.fsdecode(root)}: {error.strerror}") from error
