"""Following one board: a link's session with a real clock, real channels, a sink and an observer."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from profagent import __version__
from profagent.errors import DiskFullError, ProfagentError, UnreachableError
from profagent.link.channel import connected
from profagent.link.credentials import BY_ADDRESS
from profagent.link.messages import (
    Acknowledge,
    Arrived,
    ClientHeartbeat,
    JobEntered,
    JobFollowed,
    JobNames,
    JobsShown,
    LogsAnnounced,
    Open,
    Remark,
    ServerMessage,
    Unlinked,
    Welcome,
)
from profagent.link.session import ENTRIES_PER_MESSAGE, LinkSession, State

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from profagent.errors import UnsupportedBoardError
    from profagent.ingest.changes import JobChanges
    from profagent.link.channel import Channel, Stream
    from profagent.link.credentials import Access
    from profagent.link.messages import (
        Acknowledgement,
        Board,
        ClientMessage,
        Event,
        FollowedLog,
        Holding,
        JobStatus,
        Received,
    )

T = TypeVar("T")

# Messages that wait between the link and the disk; each is at most 256 KiB of a log.
QUEUED_MESSAGES = 32
# What came before a wish to stop is taken for so long; then the board has it still. It ends the stream within so long.
STOP_S, LEAVE_S = 0.25, 1.0
CLOCK_INTERVAL_S = 60.0
# What is durable is told so often, or when it is of so many logs: few of the 4,096 that a board may have at a time.
ACKNOWLEDGE_S, ACKNOWLEDGE_LOGS = 0.5, 256


class Sink(Protocol):
    """What becomes of a board's stream. Calls come one at a time, but for `sample_clock`.

    What was taken is `committed` before any other call, but for `take` and `holdings`.
    """

    @property
    def refused(self) -> Mapping[str, UnsupportedBoardError]:
        """JOBs that turned out to be of another SoC: nothing more of them is wanted."""

    async def begin(self, board: Board, address: str) -> None:
        """A stream has been opened; called again after each reconnection."""

    def know_job(self, job: JobStatus) -> None:
        """A JOB that will be followed."""

    async def listed(self, names: Collection[str]) -> Sequence[JobChanges]:
        """The board has told every JOB that it has; returns what is over because it is not among them."""

    async def holdings(self, logs: Sequence[FollowedLog]) -> list[Holding]:
        """What is held of announced logs; what was taken of them counts."""

    async def take(
        self,
        events: Sequence[Received],
        acknowledge: Callable[[Sequence[Acknowledgement]], Awaitable[None]],
        *,
        more: bool,
    ) -> Sequence[JobChanges]:
        """Events in order; returns what they meant. `more`: others are at hand."""

    async def committed(self) -> None:
        """Return when all events that were given are durable, and their `acknowledge` was called."""

    async def change_state(self, name: str, state: str, *, caught_up: bool) -> Sequence[JobChanges]:
        """A JOB's state is another; `caught_up`: and everything it held has come."""

    async def sample_clock(self, channel: Channel) -> None:
        """A good moment to compare clocks."""

    async def has_room(self) -> bool:
        """Whether its disk, which was full, has room again."""


class Observer(Protocol):
    """Who wants to know."""

    def linked(self, board: Board, role: str) -> None:
        """The stream is open; the role is viewer, operator or unknown."""

    def unlinked(self, error: ProfagentError, wait_s: float) -> None:
        """The link was lost; the next attempt follows after `wait_s`."""

    def remark(self, text: str) -> None:
        """Something about the link that people want to know: how far behind it is, why it pauses."""

    def changed(self, changes: Sequence[JobChanges]) -> None:
        """A batch was taken."""

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        """The followed JOBs, as they are now."""


class FollowedStream:
    """One stream. Its tasks live no longer than `run`."""

    def __init__(self, capture: Capture, channel: Channel, stream: Stream) -> None:
        self._capture, self._session = capture, capture.session
        self._channel, self._stream = channel, stream
        # What came, in order; last an error when the stream has ended, or None when the capture is stopped.
        self._queue: asyncio.Queue[ServerMessage | UnreachableError | None] = asyncio.Queue(QUEUED_MESSAGES)
        self._welcomed = asyncio.Event()
        self._durable: dict[int, Acknowledgement] = {}  # by handle, what the board is to be told
        self._has_durable = asyncio.Event()
        self._stop_at = float("inf")

    async def run(self) -> None:
        """Converse until the link waits or is closed; raises what ends the stream before."""
        try:
            async with asyncio.TaskGroup() as group:
                sides = (self._read(), self._beat(), self._compare_clocks(), self._watch_stop(), self._tell_durable())
                others = [group.create_task(side) for side in sides]
                await self._work()
                await self._leave()
                for task in others:
                    task.cancel()
        except BaseExceptionGroup as failures:
            # A fault of ours rather than the link's end, where both came together.
            errors = failures.exceptions
            raise next((each for each in errors if not isinstance(each, ProfagentError)), errors[0]) from None
        finally:
            await self._capture.sink.committed()

    async def open(self) -> None:
        """Say the first words."""
        self._session.opened(_now())
        await self._send_all()

    async def take(self, message: ServerMessage | UnreachableError | None) -> None:
        """Let a message have its effect; None for the end. Raises the error that it may be."""
        if isinstance(message, UnreachableError):
            raise message
        if message is None:
            self._session.stop()
        else:
            self._session.receive(message, _now())
        await self.handle()

    async def flush(self) -> None:
        """Hand on what has gathered, if it is time."""
        self._session.tick(_now())
        await self.handle()

    async def handle(self) -> None:
        """Let the sink, the observer and then the board know what has happened."""
        while events := self._session.events_received():
            for event in events:
                await self._know(event)
        await self._send_all()

    async def _work(self) -> None:
        """Take messages one at a time; hand on what has gathered when its time has come."""
        while self._session.has_stream:
            if _now() >= self._stop_at:
                await self.take(None)
                return
            try:
                async with asyncio.timeout_at(self._session.due):
                    message = await self._queue.get()
            except TimeoutError:
                await self.flush()
            else:
                await self.take(message)
            if self._queue.empty():
                # There is nothing to do meanwhile.
                await self._capture.sink.committed()

    async def _leave(self) -> None:
        """Let the board hear the last: a call that is cancelled takes back what is on its way."""
        await self._capture.sink.committed()
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._send_durable()
                await self._stream.finish()
                while not isinstance(await self._queue.get(), UnreachableError):
                    pass  # it is with the board still

    async def _read(self) -> None:
        try:
            await self._before_silence(self._stream.ready())
            await self.open()
            while True:
                await self._queue.put(await self._before_silence(self._stream.receive()))
                # Not before: a board that nobody listens to is not silent.
                self._session.heard(_now())
        except UnreachableError as error:
            # What came before is taken before: a goodbye, for one.
            await self._queue.put(error)

    async def _before_silence(self, awaited: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout_at(self._session.silent_at):
                return await awaited
        except TimeoutError:
            raise self._session.silence() from None

    async def _beat(self) -> None:
        await self._welcomed.wait()
        while True:
            await asyncio.sleep(self._session.speak_at - _now())
            if _now() >= self._session.speak_at:
                await self._send(ClientHeartbeat())

    async def _compare_clocks(self) -> None:
        await self._welcomed.wait()
        while True:
            # Over a slow link an answer may come too late; whether the link is gone, the stream itself tells.
            with suppress(UnreachableError):
                await self._capture.sink.sample_clock(self._channel)
            await asyncio.sleep(CLOCK_INTERVAL_S)

    async def _watch_stop(self) -> None:
        await self._capture.stop.wait()
        self._stop_at = _now() + STOP_S
        await self._queue.put(None)

    async def _know(self, event: Event) -> None:
        sink, observer = self._capture.sink, self._capture.observer
        if not isinstance(event, Arrived | LogsAnnounced):
            await sink.committed()
        match event:
            case Arrived():
                observer.changed(await sink.take(event.events, self._acknowledge, more=not self._queue.empty()))
                self._session.took(sink.refused)
            case LogsAnnounced():
                self._session.hold(await sink.holdings(event.logs))
            case JobEntered(job, caught_up):
                observer.changed(await sink.change_state(job.name, job.state, caught_up=caught_up))
            case JobFollowed(job):
                sink.know_job(job)
            case JobNames():
                observer.changed(await sink.listed(event.names))
            case Welcome():
                await sink.begin(event.board, self._capture.address)
                self._welcomed.set()
                observer.linked(event.board, event.role)
            case _:
                self._capture.tell(event)

    async def _send_all(self) -> None:
        for message in self._session.messages_to_send():
            await self._send(message)

    async def _send(self, message: ClientMessage) -> None:
        # Whoever reads the stream is told that it has ended, and why.
        with suppress(UnreachableError):
            await self._stream.send(message)
        self._session.spoke(_now())

    async def _acknowledge(self, logs: Sequence[Acknowledgement]) -> None:
        """Have it told with what becomes durable after it: a message takes longer than its entries, at both ends."""
        self._durable.update((each.handle, each) for each in logs)
        if len(self._durable) >= ACKNOWLEDGE_LOGS:
            await self._send_durable()
        elif logs:
            self._has_durable.set()

    async def _tell_durable(self) -> None:
        while True:
            await self._has_durable.wait()
            await asyncio.sleep(ACKNOWLEDGE_S)
            await self._send_durable()

    async def _send_durable(self) -> None:
        self._has_durable.clear()
        logs, self._durable = [*self._durable.values()], {}
        for start in range(0, len(logs), ENTRIES_PER_MESSAGE):
            await self._send(Acknowledge(tuple(logs[start : start + ENTRIES_PER_MESSAGE])))


class Capture:
    """Follows one board until `stop` is set."""

    def __init__(  # noqa: PLR0913 - what it follows, for whom, and how
        self,
        address: str,
        sink: Sink,
        observer: Observer,
        *,
        wants: Callable[[JobStatus, bool], bool],
        consumer: str,
        gather_s: float,
        stop: asyncio.Event,
        is_patient: bool = False,
        access: Access = BY_ADDRESS,
    ) -> None:
        """`wants`, `gather_s` and `is_patient` as of LinkSession."""
        self.address, self.sink, self.observer = address, sink, observer
        self.stop, self._access = stop, access
        opening = Open(consumer, f"profagent {__version__}")
        self.session = LinkSession(address, opening, wants, gather_s=gather_s, is_patient=is_patient)

    async def run(self) -> None:
        """Follow the board; a link that is lost is tried again, a full disk is waited for.

        A first connection that fails raises UnreachableError unless the capture is patient.
        """
        session = self.session
        try:
            while session.state is not State.CLOSED:
                await self._pause()
                if self.stop.is_set():
                    session.stop()
                elif session.awaits_room:
                    session.room(has_room=await self.sink.has_room(), now=_now())
                else:
                    session.tick(_now())
                if session.state is State.CONNECTING:
                    await self._try_to_follow()
                for event in session.events_received():
                    self.tell(event)
        finally:
            session.stop()
        if session.error is not None:
            raise session.error

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self.session.due):
                await self.stop.wait()

    async def _try_to_follow(self) -> None:
        try:
            await self._follow()
        except UnreachableError as error:
            self.session.lost(error, _now())
        except DiskFullError as error:
            if self.session.state is State.CLOSED:
                raise
            self.session.full(error, _now())

    async def _follow(self) -> None:
        async with connected(self.address, self._access) as channel, channel.follow() as stream:
            await FollowedStream(self, channel, stream).run()

    def tell(self, event: Event) -> None:
        """Let the observer know of what no sink needs."""
        match event:
            case JobsShown():
                self.observer.jobs_changed(event.jobs)
            case Unlinked():
                self.observer.unlinked(event.error, event.wait_s)
            case Remark():
                self.observer.remark(event.text)


def _now() -> float:
    return asyncio.get_running_loop().time()
