"""One stream to a board, from its opening to its end: messages in, batches to the sink, answers out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from profagent import __version__
from profagent.errors import ProfagentError, UnreachableError
from profagent.link.messages import (
    Acknowledge,
    Acknowledgement,
    Chunk,
    ClientHeartbeat,
    Goodbye,
    Holdings,
    JobsListed,
    JobStatus,
    Open,
    Select,
    ServerMessage,
    Welcome,
)
from profagent.link.session import Announcement, Happened, Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.commands.capture import Capture
    from profagent.link.channel import Channel, Stream
    from profagent.link.session import SessionEvent

# Messages that wait between the link and the disk; each is at most 256 KiB of a log.
QUEUED_MESSAGES = 32
LARGEST_BATCH_BYTES = 4 << 20
LARGEST_BATCH_EVENTS = 5_000
ENTRIES_PER_MESSAGE = 1_000
FIRST_HEARTBEAT_S = 5.0
SILENT_HEARTBEATS = 3
CLOCK_INTERVAL_S = 60.0
# Of a removed JOB nothing more comes: the end of its logs is told before its own.
REMOVED = "removed"


class Conversation:
    """One stream. Its tasks live no longer than `run`."""

    def __init__(self, capture: Capture, channel: Channel, stream: Stream) -> None:
        self._capture = capture
        self._channel = channel
        self._stream = stream
        self._session = Session()
        self._queue: asyncio.Queue[ServerMessage | None] = asyncio.Queue(QUEUED_MESSAGES)
        self._welcomed = asyncio.Event()
        self._pending: list[Happened] = []
        self._pending_bytes = 0
        self._flush_at = 0.0
        self._states: dict[int, tuple[str, bool]] = {}
        self._selected: set[int] = set()
        self._heartbeat_s = FIRST_HEARTBEAT_S

    async def run(self) -> None:
        """Converse until the capture is stopped; raises UnreachableError when the link ends before."""
        try:
            async with asyncio.TaskGroup() as group:
                sides = (self._read(), self._beat(), self._compare_clocks(), self._watch_stop())
                others = [group.create_task(side) for side in sides]
                await self._work()
                for task in others:
                    task.cancel()
        except BaseExceptionGroup as failures:
            raise _cause(failures) from None

    async def _read(self) -> None:
        await self._stream.send(Open(self._capture.consumer, f"profagent {__version__}"))
        while True:
            try:
                async with asyncio.timeout(SILENT_HEARTBEATS * self._heartbeat_s):
                    message = await self._stream.receive()
            except TimeoutError as error:
                raise UnreachableError(
                    f"the board at {self._capture.address} has gone silent", hint="check the link and the daemon's log"
                ) from error
            if isinstance(message, Welcome) and message.heartbeat_us:
                self._heartbeat_s = message.heartbeat_us / 1e6
            await self._queue.put(message)

    async def _beat(self) -> None:
        await self._welcomed.wait()
        while True:
            await asyncio.sleep(self._heartbeat_s)
            await self._stream.send(ClientHeartbeat())

    async def _compare_clocks(self) -> None:
        await self._welcomed.wait()
        while True:
            await self._capture.sink.sample_clock(self._channel)
            await asyncio.sleep(CLOCK_INTERVAL_S)

    async def _watch_stop(self) -> None:
        await self._capture.stop.wait()
        await self._queue.put(None)

    async def _work(self) -> None:
        """Handle messages; flush what is pending when enough has gathered or its time has come."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout_at(self._flush_at if self._pending else None):
                    message = await self._queue.get()
            except TimeoutError:
                await self._flush()
                continue
            if message is None:
                await self._flush()
                return
            for event in self._session.receive(message):
                await self._handle(event, loop.time())
            if self._pending_bytes >= LARGEST_BATCH_BYTES or len(self._pending) >= LARGEST_BATCH_EVENTS:
                await self._flush()

    async def _handle(self, event: SessionEvent, now: float) -> None:
        match event:
            case Happened():
                self._gather(event, now)
            case Announcement():
                await self._answer(event)
            case JobStatus():
                await self._job(event)
            case Welcome():
                await self._capture.sink.begin(event.board, self._capture.address)
                self._welcomed.set()
                self._capture.observer.linked(event.board, event.role)
            case JobsListed():
                self._capture.choice.was_listed = True
                names = {job.name for job in self._session.jobs.values() if job.state != REMOVED}
                self._capture.observer.changed(await self._capture.sink.listed(names))
                self._tell_jobs()
            case Goodbye():
                raise UnreachableError(
                    f"the daemon at {self._capture.address} stops: {event.reason}", hint="it is waited for"
                )

    def _gather(self, event: Happened, now: float) -> None:
        if not self._pending:
            self._flush_at = now + self._capture.gather_s
        self._pending.append(event)
        if isinstance(event.event, Chunk):
            self._pending_bytes += len(event.event.data)

    async def _flush(self) -> None:
        if not self._pending:
            return
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        self._capture.observer.changed(await self._capture.sink.take(pending, self._acknowledge))
        await self._drop_refused()

    async def _drop_refused(self) -> None:
        """Follow JOBs of another SoC no longer; where there are no others, there is nothing to follow at all."""
        refused = self._capture.sink.refused
        handles = tuple(handle for handle in self._selected if self._session.jobs[handle].name in refused)
        if not handles:
            return
        self._selected -= {*handles}
        for handle in handles:
            self._capture.choice.refuse(self._session.jobs[handle].name)
        await self._stream.send(Select(unfollow=handles))
        if not self._selected:
            raise refused[self._session.jobs[handles[0]].name]

    async def _acknowledge(self, logs: Sequence[Acknowledgement]) -> None:
        for start in range(0, len(logs), ENTRIES_PER_MESSAGE):
            await self._stream.send(Acknowledge(tuple(logs[start : start + ENTRIES_PER_MESSAGE])))

    async def _answer(self, announcement: Announcement) -> None:
        holdings = await self._capture.sink.holdings(announcement.logs)
        for holding in holdings:
            self._session.hold(holding)
        for start in range(0, len(holdings), ENTRIES_PER_MESSAGE):
            await self._stream.send(Holdings(tuple(holdings[start : start + ENTRIES_PER_MESSAGE])))

    async def _job(self, job: JobStatus) -> None:
        if job.handle not in self._selected:
            if job.state == REMOVED or self._is_taken(job.name) or not self._capture.choice.follows(job):
                return
            self._selected.add(job.handle)
            self._capture.sink.know_job(job.name, job.directory)
            await self._stream.send(Select((job.handle,)))
        is_news = self._states.get(job.handle) != (job.state, job.caught_up)
        if is_news:
            await self._flush()
        # Whoever hears that a JOB has caught up takes what follows as new.
        self._tell_jobs()
        if is_news:
            self._states[job.handle] = (job.state, job.caught_up)
            caught_up = job.caught_up or job.state == REMOVED
            changes = await self._capture.sink.change_state(job.name, job.state, caught_up=caught_up)
            self._capture.observer.changed(changes)

    def _is_taken(self, name: str) -> bool:
        """Whether another directory of this JOB name is followed: of several that exist, the first is."""
        others = (self._session.jobs[handle] for handle in self._selected)
        return any(job.name == name and job.state != REMOVED for job in others)

    def _tell_jobs(self) -> None:
        if self._capture.choice.was_listed:
            self._capture.observer.jobs_changed([self._session.jobs[handle] for handle in self._selected])


def is_over(job: JobStatus) -> bool:
    """Whether a JOB has ended and everything that it held has come."""
    return job.state == REMOVED or (job.has_ended and job.caught_up)


def _cause(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """What to raise of a stream's tasks that failed together: a fault of ours rather than the link's end."""
    errors = failures.exceptions
    return next((error for error in errors if not isinstance(error, ProfagentError)), errors[0])
