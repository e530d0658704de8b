"""One client's Follow stream: a task that reads its messages, and one that writes."""

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
from profagentd.limits import LEAVE_S, RESERVED_LOGS, ROOM_S, SILENCE_S, TURN_LOGS
from profagentd.loop import US_PER_S, NoAnswerError, in_time, read_clocks, until_first

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

# Longest interval between two messages of a side. A stream ends after SILENCE_S, three of them, so that a half-open
# link is found within 15 s.
HEARTBEAT_S = 4.0
# Time after a Goodbye at which the client may come back.
RETRY_AFTER_S = 2.0
# Interval at which a Sync checks for the end of a search for JOBs, which sets no event.
SYNC_LOOK_S = 0.02
# Releases are sent together: after RELEASE_S, or earlier when there are RELEASE_LOGS of them, room is short, or a log
# is announced again.
RELEASE_S, RELEASE_LOGS = 1.0, 128
# Reason in the Goodbye, unless there is another one.
STOPPING = "the daemon is stopping"


class ClientStream:
    """Stream of one client. Each turn sends a little of everything that is due, so that nothing starves.

    Back-pressure is gRPC's: `write` waits while the client does not read, and nothing is read from disk meanwhile.
    """

    def __init__(
        self,
        servicer: Servicer,
        incoming: AsyncIterator[wire.ClientMessage],
        write: Callable[[wire.ServerMessage], Awaitable[None]],
        caller: Caller,
    ) -> None:
        self._servicer = servicer
        self._clock = servicer.clock
        self._caller = caller
        self._incoming = incoming
        self._write = write
        self._session = FollowSession(servicer.quota)
        # Retention's counter of what this client has; None for a viewer, whose acknowledgements delete nothing.
        self._count_delivery: Callable[[FolderPlace, bytes, Fingerprint], None] | None = None
        self._wake = asyncio.Event()  # set when the next turn may find something to do
        # Monotonic times of the client's last message, of the last heartbeat, and of the last release.
        self._received_at = self._heartbeat_at = self._released_at = self._clock.monotonic()
        self._has_new_losses = True  # recorded losses have changed since they were sent
        self._sent_losses_revision = 0  # revision up to which recorded losses are sent
        self._is_closing = self._is_draining = False  # a Goodbye is due: at once, or when everything is sent
        self._reason = STOPPING  # of the Goodbye

    async def run(self) -> None:
        """Serve until the client half-closes, or until `close` was called. Raises Refusal."""
        try:
            await until_first(self._serve(), self._watch_silence())
        finally:
            self._session.close()

    def drain(self) -> None:
        """Send a Goodbye once everything is sent."""
        self._is_draining = True
        self._wake.set()

    def close(self, reason: str = STOPPING) -> None:
        """Send a Goodbye in the next turn."""
        self._is_closing, self._reason = True, reason
        self._wake.set()

    def _note_new_losses(self) -> None:
        self._has_new_losses = True
        self._wake.set()

    # Both directions

    async def _serve(self) -> None:
        opened = await self._open()
        role = self._caller.role.name.lower()
        _LOGGER.info("%s (%s) follows: %s, %s", opened.consumer, opened.client, self._caller, role)
        welcome = messages.welcome(self._servicer.describe(), self._caller.role, int(HEARTBEAT_S * US_PER_S))
        await self._write(wire.ServerMessage(welcome=welcome))
        await until_first(self._servicer.ready(), self._send_heartbeats())
        for job in self._servicer.registry.jobs:
            self._session.job_changed_state(job)
        if self._caller.role is Role.OPERATOR:
            self._count_delivery = self._servicer.retention.delivery_counter(opened.consumer)
        # No await since the JOBs were copied: the registry cannot change between the copy and the subscription.
        self._servicer.registry.add_listener(self._session, self._wake.set)
        self._servicer.retention.losses.add_listener(self._note_new_losses)
        try:
            await until_first(self._receive(), self._write_all())
        finally:
            self._servicer.retention.losses.remove_listener(self._note_new_losses)
            self._servicer.registry.remove_listener(self._session)
            _LOGGER.info("%s disconnected", opened.consumer)

    async def _open(self) -> wire.Open:
        async for message in self._incoming:
            return messages.check_open(message)
        raise Refusal(Fault.INVALID, "the first message of a stream is Open")

    async def _send_heartbeats(self) -> None:
        """Send heartbeats while JOBs are being found.

        Nobody reads the client's messages yet, so its silence does not count.
        """
        while True:
            await self._clock.sleep(HEARTBEAT_S)
            await self._send_heartbeat()
            self._received_at = self._clock.monotonic()

    async def _receive(self) -> None:
        was_checked = False
        async for message in self._incoming:
            was_checked = has_checksum(message, before=was_checked)
            self._received_at = self._clock.monotonic()
            messages.apply(message, self._session)
            if message.HasField("sync"):
                self._servicer.catch_up()
            self._count_deliveries()
            self._wake.set()

    async def _watch_silence(self) -> None:
        while (left_s := self._received_at + SILENCE_S - self._clock.monotonic()) > 0:
            await self._clock.sleep(left_s)
        raise Refusal(Fault.SILENT, f"no message for {SILENCE_S:.0f} s")

    async def _write_all(self) -> None:
        await self._send_job_statuses()
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
        now, table = self._clock.monotonic(), self._session.table
        release = self._released_at + RELEASE_S if table.released_count else math.inf
        room = now + ROOM_S if self._session.awaits_room else math.inf
        sync = math.inf if self._session.sync_due is None else now + SYNC_LOOK_S
        due = min(self._heartbeat_at + HEARTBEAT_S, table.next_due(), release, room, sync)
        timer = asyncio.get_running_loop().call_later(max(0.0, due - now), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    # Parts of a turn

    async def _turn(self) -> bool:
        done = [
            await self._send_job_statuses(),
            await self._send_losses(),
            await self._send_released(RELEASE_S),
            await self._announce_and_send(),
        ]
        if not any(done):
            caught_up = self._session.take_caught_up()
            done.append(await self._send(messages.job_status(each, caught_up=True) for each in caught_up))
        if not any(done) and self._session.sync_due is not None and self._servicer.has_searched:
            await self._send(map(messages.synced, self._session.take_synced()))
        if self._clock.monotonic() - self._heartbeat_at >= HEARTBEAT_S:
            await self._send_heartbeat()
        return any(done)

    async def _send_heartbeat(self) -> None:
        await self._write(messages.heartbeat(self._session.table.lag_bytes))
        self._heartbeat_at = self._clock.monotonic()

    async def _send_job_statuses(self) -> bool:
        due, losses = self._session.take_statuses(), self._session.take_losses()
        if not (due or losses):
            return False
        await self._send(messages.batches(losses))
        if any(following.is_removed for following in due):
            await self._send_released()
        return await self._send(map(messages.job_status, due))

    async def _send_losses(self) -> bool:
        if not self._has_new_losses:
            return False
        self._has_new_losses = False
        losses = self._servicer.retention.losses
        since, self._sent_losses_revision = losses.since(self._sent_losses_revision), losses.revision
        return await self._send(messages.recorded_losses(since, self._session))

    async def _send_released(self, delay_s: float = 0.0) -> bool:
        table, now = self._session.table, self._clock.monotonic()
        can_wait = (
            now < self._released_at + delay_s and table.released_count < RELEASE_LOGS and table.room >= RESERVED_LOGS
        )
        if can_wait or not table.released_count:
            return False
        self._released_at = now
        return await self._send(messages.released(table.take_released()))

    async def _announce_and_send(self) -> bool:
        """Send due logs, then announce new ones; return True if more is due.

        New logs of `take_created` go first, as they were created before any name of the lookup.
        """
        now = self._clock.monotonic()
        made, names = self._session.take_created(now), self._session.next_lookup(now)
        await self._send_releases_before(made)
        has_more = await self._send_logs(made)
        if names is None:
            return has_more
        page = await _in_time(names.following.job.place.root, names.run)
        logs, losses = self._session.apply_lookup(names, page, read_clocks(self._clock))
        await self._send_releases_before(logs)
        await self._send(messages.announced(logs))
        await self._send(messages.batches(losses))
        return True

    async def _send_releases_before(self, logs: Sequence[Log]) -> None:
        """Send the release of earlier handles of these logs: a log has one handle at a time."""
        if any(map(self._session.table.has_unreported_release, logs)):
            await self._send_released()

    async def _send_logs(self, made: Sequence[Log]) -> bool:
        now = read_clocks(self._clock)
        tasks = self._session.take_read_tasks(TURN_LOGS, now.monotonic)
        if not tasks:
            await self._send(messages.batches((), made=made))
            return False
        steps = await _in_time(tasks[0].place.root, partial(read_batch, tasks, now, self._servicer.quota.read_bytes))
        await self._send(messages.batches(self._events(tasks, steps), made=made))
        self._count_deliveries()
        # A log that is over made room for others, and its JOB may be over with it.
        return self._session.table.has_ready or any(task.log.state is OVER for task in tasks)

    def _events(self, tasks: Sequence[ReadTask], steps: Sequence[ReadStep]) -> list[Event]:
        table = self._session.table
        table.put_back(task.log for task in tasks[len(steps) :])
        return [event for task, step in zip(tasks, steps) for event in self._session.finish_turn(task.log, step)]

    def _count_deliveries(self) -> None:
        for delivered in self._session.take_delivered():
            if self._count_delivery:
                self._count_delivery(*delivered)

    async def _send(self, outgoing: Iterable[wire.ServerMessage]) -> bool:
        count = 0
        for message in outgoing:
            await self._write(message)
            count += 1
        return count > 0


async def _in_time(root: bytes, work: Callable[[], T]) -> T:
    """Run work on a root's thread. Raises Refusal where the root hangs: the client's next stream goes on without it."""
    try:
        return await in_time(root, work)
    except NoAnswerError as error:
        raise Refusal(Fault.AWAY, f"{os.fsdecode(root)}: {error.strerror}") from error
