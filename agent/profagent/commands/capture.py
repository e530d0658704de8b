"""Following one board: connect, choose JOBs, hand what comes to a sink, come back after the link is lost."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Protocol

from profagent import __version__
from profagent.errors import ProfagentError, UnreachableError
from profagent.link.backoff import delay_s
from profagent.link.channel import connected
from profagent.link.messages import (
    Acknowledge,
    Acknowledgement,
    Board,
    Chunk,
    ClientHeartbeat,
    Goodbye,
    Holding,
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
    from collections.abc import Awaitable, Callable, Sequence

    from profagent.ingest.changes import JobChanges
    from profagent.link.channel import Channel, Stream
    from profagent.link.session import FollowedLog, SessionEvent

# Messages that wait between the link and the disk; each is at most 256 KiB of a log.
QUEUED_MESSAGES = 32
LARGEST_BATCH_BYTES = 4 << 20
LARGEST_BATCH_EVENTS = 5_000
ENTRIES_PER_MESSAGE = 1_000
SILENT_HEARTBEATS = 3
CLOCK_INTERVAL_S = 60.0


class Sink(Protocol):
    """What becomes of a board's stream. Calls come one at a time."""

    async def begin(self, board: Board, address: str) -> None:
        """A stream has been opened; called again after each reconnection."""

    def know_job(self, name: str, directory: str) -> None:
        """A JOB that will be followed."""

    async def holdings(self, logs: Sequence[FollowedLog]) -> list[Holding]:
        """What is held of announced logs."""

    async def take(
        self, events: Sequence[Happened], acknowledge: Callable[[Sequence[Acknowledgement]], Awaitable[None]]
    ) -> Sequence[JobChanges]:
        """Events in order; returns what they meant."""

    async def change_state(self, name: str, state: str, *, caught_up: bool) -> Sequence[JobChanges]:
        """A JOB's state is another; `caught_up`: and everything it held has come."""

    async def sample_clock(self, channel: Channel) -> None:
        """A good moment to compare clocks."""


class Observer(Protocol):
    """Who wants to know."""

    def linked(self, board: Board) -> None:
        """The stream is open."""

    def unlinked(self, error: ProfagentError, wait_s: float) -> None:
        """The link was lost; the next attempt follows after `wait_s`."""

    def changed(self, changes: Sequence[JobChanges]) -> None:
        """A batch was taken."""

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        """The followed JOBs, as they are now."""


class Capture:
    """Follows one board until `stop` is set."""

    def __init__(
        self,
        address: str,
        sink: Sink,
        observer: Observer,
        *,
        wants: Callable[[JobStatus, bool], bool],
        consumer: str,
        gather_s: float,
        stop: asyncio.Event,
    ) -> None:
        """`wants(job, listed)` chooses JOBs; `listed`: the JOB was there when the first stream was opened."""
        self.address = address
        self.sink = sink
        self.observer = observer
        self.wants = wants
        self.consumer = consumer
        self.gather_s = gather_s
        self.stop = stop
        self.followed: set[str] = set()
        self.passed_over: set[str] = set()
        self.was_listed = False

    async def run(self) -> None:
        """Follow the board. A first connection that fails raises UnreachableError; later ones are tried again."""
        attempt = 0
        while not self.stop.is_set():
            try:
                async with connected(self.address) as channel:
                    await self._converse(channel)
            except UnreachableError as error:
                if not self.was_listed:
                    raise
                wait_s = delay_s(attempt, random.uniform)
                attempt += 1
                self.observer.unlinked(error, wait_s)
                await self._pause(wait_s)
            else:
                attempt = 0

    async def _converse(self, channel: Channel) -> None:
        async with channel.follow() as stream:
            conversation = Conversation(self, channel, stream)
            await conversation.run()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.stop.wait()
        except TimeoutError:
            return


class Conversation:
    """One stream, from its opening to its end."""

    def __init__(self, capture: Capture, channel: Channel, stream: Stream) -> None:
        self._capture = capture
        self._channel = channel
        self._stream = stream
        self._session = Session()
        self._queue: asyncio.Queue[ServerMessage | None] = asyncio.Queue(QUEUED_MESSAGES)
        self._pending: list[Happened] = []
        self._pending_bytes = 0
        self._flush_at = 0.0
        self._states: dict[str, tuple[str, bool]] = {}
        self._selected: set[int] = set()
        self._heartbeat_s = 5.0

    async def run(self) -> None:
        """Converse until the capture is stopped; raises UnreachableError when the link ends before."""
        await self._stream.send(Open(self._capture.consumer, f"profagent {__version__}"))
        try:
            async with asyncio.TaskGroup() as group:
                others = [group.create_task(task) for task in (self._read(), self._beat(), self._watch_stop())]
                await self._work()
                for task in others:
                    task.cancel()
        except* ProfagentError as failures:
            raise _first(failures) from None

    async def _read(self) -> None:
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
        clock_at = 0.0
        while True:
            await asyncio.sleep(self._heartbeat_s)
            await self._stream.send(ClientHeartbeat())
            now = asyncio.get_running_loop().time()
            if now >= clock_at and self._session.board is not None:
                clock_at = now + CLOCK_INTERVAL_S
                await self._capture.sink.sample_clock(self._channel)

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
                self._capture.observer.linked(event.board)
            case JobsListed():
                self._capture.was_listed = True
                self._tell_jobs()
            case Goodbye():
                raise UnreachableError(f"the daemon stops: {event.reason}", hint="it is waited for")

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

    async def _acknowledge(self, logs: Sequence[Acknowledgement]) -> None:
        for start in range(0, len(logs), ENTRIES_PER_MESSAGE):
            await self._stream.send(Acknowledge(tuple(logs[start : start + ENTRIES_PER_MESSAGE])))

    async def _answer(self, announcement: Announcement) -> None:
        holdings = await self._capture.sink.holdings(announcement.logs)
        for holding in holdings:
            self._session.hold(holding)
        for start in range(0, len(holdings), ENTRIES_PER_MESSAGE):
            await self._stream.send(Holdings(tuple(holdings[start : start + ENTRIES_PER_MESSAGE])))

    async def _job(self, status: JobStatus) -> None:
        if not self._follows(status):
            return
        if status.handle not in self._selected:
            self._selected.add(status.handle)
            self._capture.sink.know_job(status.name, status.directory)
            self._capture.followed.add(status.name)
            await self._stream.send(Select((status.handle,)))
        if self._states.get(status.name) != (status.state, status.caught_up):
            self._states[status.name] = (status.state, status.caught_up)
            await self._flush()
            sink = self._capture.sink
            changes = await sink.change_state(status.name, status.state, caught_up=status.caught_up)
            self._capture.observer.changed(changes)
        self._tell_jobs()

    def _follows(self, status: JobStatus) -> bool:
        """Whether the JOB is or becomes followed; of two directories with one JOB name the first is."""
        if status.handle in self._selected:
            return True
        taken = any(self._session.jobs[handle].name == status.name for handle in self._selected)
        if taken or status.state == "removed":
            return False
        capture = self._capture
        listed = not capture.was_listed or status.name in capture.passed_over
        if status.name in capture.followed or capture.wants(status, listed):
            return True
        capture.passed_over.add(status.name)
        return False

    def _tell_jobs(self) -> None:
        if self._capture.was_listed:
            self._capture.observer.jobs_changed([self._session.jobs[handle] for handle in self._selected])


def _first(failures: BaseExceptionGroup[ProfagentError]) -> ProfagentError:
    """One error of a group: the stream's tasks fail together, from one cause."""
    found: BaseException = failures
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, ProfagentError)
    return found
