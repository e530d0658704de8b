"""Capture of one board: a link session with a real clock, real channels, a sink and an observer."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from profagent import __version__
from profagent.errors import DiskFullError, ProfagentError, UnreachableError
from profagent.limits import (
    ANSWER_S,
    ENTRIES_PER_MESSAGE,
    LEAVE_S,
    QUEUED_MESSAGES,
    QUIET_HEARTBEATS,
    SILENT_HEARTBEATS,
)
from profagent.link.channel import connected
from profagent.link.coverage import Coverage, Standing
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
from profagent.link.session import LinkSession, State
from profagent.units import US_PER_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from profagent.errors import UnsupportedBoardError
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
    from profagent.store.writer import Applied

T = TypeVar("T")

# Interval between checks of a board that is silent.
SILENCE_LOOK_S = 0.25
CLOCK_INTERVAL_S = 60.0
# Acknowledgements are sent at this interval, or once this many logs have one: the 4,096 logs that a board may announce
# at a time are then released soon enough.
ACKNOWLEDGE_S, ACKNOWLEDGE_LOGS = 0.5, 256


class Sink(Protocol):
    """Destination of a board's stream. Its methods are called one at a time, but for `sample_clock`.

    Events that were taken are `committed` before any other method is called, but for `take` and `holdings`.
    """

    @property
    def refused(self) -> Mapping[str, UnsupportedBoardError]:
        """JOBs that turned out to be from another SoC; they are not followed any more."""

    async def begin(self, board: Board, address: str) -> None:
        """Begin with a stream that was opened; called again after each reconnection."""

    def know_job(self, job: JobStatus) -> None:
        """Take a JOB that is going to be followed."""

    async def listed(self, names: Collection[str]) -> Sequence[Applied]:
        """Take the names of all JOBs on the board; return what became of held JOBs that are not among them."""

    async def holdings(self, logs: Sequence[FollowedLog]) -> list[Holding]:
        """Return a Holding for each announced log; events that were taken count as held."""

    async def take(
        self,
        events: Sequence[Received],
        acknowledge: Callable[[Sequence[Acknowledgement]], Awaitable[None]],
        *,
        more: bool,
    ) -> Sequence[Applied]:
        """Take events in order. With `more`, further events are at hand, and these may become durable later.

        Returns the batches that have become durable and were not returned yet, as the other methods do.
        """

    async def committed(self) -> Sequence[Applied]:
        """Wait until all events that were taken are durable, and `acknowledge` was called for them.

        Returns durable batches that were not returned yet; an empty sequence means that none is left.
        """

    async def change_state(self, name: str, state: str, *, caught_up: bool) -> Sequence[Applied]:
        """Take the new state of a JOB; with `caught_up`, everything that it held has arrived."""

    async def sample_clock(self, channel: Channel) -> None:
        """Compare the board's clock with the host's; called when the stream is open, and then at intervals."""

    async def has_room(self) -> bool:
        """Return True if the disk, which was full, has room again."""


class Observer(Protocol):
    """Receiver of what happens in a capture: links, remarks, applied batches, JOB states."""

    def linked(self, board: Board, role: str) -> None:
        """Take the news that the stream is open; the role is viewer, operator or unknown."""

    def unlinked(self, error: ProfagentError, wait_s: float) -> None:
        """Take the news that the link was lost; the next attempt follows after `wait_s` seconds."""

    def remark(self, text: str) -> None:
        """Take a text for people about the link: how far it is behind the board, why it pauses."""

    def changed(self, applied: Sequence[Applied]) -> None:
        """Take batches that were applied; they are durable if the sink stores anything."""

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        """Take the followed JOBs as they are now."""


class FollowedStream:
    """One stream to the board. Its tasks end with `run`."""

    def __init__(self, capture: Capture, channel: Channel, stream: Stream) -> None:
        self._capture, self._session = capture, capture.session
        self._channel, self._stream = channel, stream
        # Messages of the board in order, then an error when the stream has ended. None wakes the worker: the capture is
        # stopped, or the board is silent.
        self._queue: asyncio.Queue[ServerMessage | UnreachableError | None] = asyncio.Queue(QUEUED_MESSAGES)
        self._welcomed = asyncio.Event()
        self._durable: dict[int, Acknowledgement] = {}  # acknowledgements to send, by handle
        # Set while `_durable` has entries that no message has carried yet.
        self._has_durable = asyncio.Event()
        self._is_listening = False  # the reader waits for the board, not for the queue
        # Tasks send independently; the lock keeps `_patience` with the message that is being sent.
        self._sending = asyncio.Lock()
        self._patience: asyncio.Timeout | None = None  # the timeout of the message that is being sent

    async def run(self) -> None:
        """Converse until the session waits or is closed; raise the error that ends the stream before."""
        try:
            async with asyncio.TaskGroup() as group:
                sides = (
                    self._read(),
                    self._beat(),
                    self._compare_clocks(),
                    self._watch_stop(),
                    self._watch_silence(),
                    self._tell_durable(),
                )
                others = [group.create_task(side) for side in sides]
                await self._work()
                await self._leave()
                for task in others:
                    task.cancel()
        except BaseExceptionGroup as failures:
            # A programming error goes first: where it comes with the end of the link, the link's error would hide it.
            errors = failures.exceptions
            raise next((each for each in errors if not isinstance(each, ProfagentError)), errors[0]) from None
        finally:
            await self._capture.committed()

    async def open(self) -> None:
        """Send the opening message."""
        self._session.opened(_now())
        await self._send_all()

    async def take(self, message: ServerMessage | UnreachableError | None) -> None:
        """Pass one message to the session and handle the events that follow; None only handles events that wait.

        Raises the error that the reader has put in place of a message.
        """
        if isinstance(message, UnreachableError):
            raise message
        if message is not None:
            self._session.receive(message, _now())
        elif self._capture.stop.is_set() and not self._capture.asks_at_end:
            self._session.stop()
        await self.handle()

    async def flush(self) -> None:
        """Hand on gathered events if they are due."""
        self._session.tick(_now())
        await self.handle()

    async def handle(self) -> None:
        """Pass the session's events to the sink and the observer, and then its messages to the board."""
        while events := self._session.events_received():
            for event in events:
                await self._handle(event)
        self._capture.stand()
        await self._send_all()

    async def _work(self) -> None:
        while self._session.has_stream:
            if self._session.finish_by is not None and _now() >= self._session.finish_by:
                # Queued messages are dropped: there may be many, and the board still has what they carry.
                await self.flush()
                return
            try:
                async with asyncio.timeout_at(self._session.due):
                    message = await self._queue.get()
            except TimeoutError:
                await self.flush()
            else:
                await self.take(message)
            if self._queue.empty():
                # The queue is empty, so waiting for the disk here delays no message.
                await self._capture.committed()

    async def _leave(self) -> None:
        """Send the last acknowledgements and wait for the board to end the call.

        A call that is cancelled drops messages that are on their way.
        """
        await self._capture.committed()
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._send_durable()
                await self._stream.finish()
                while not isinstance(await self._queue.get(), UnreachableError):
                    pass  # the board still has what this message carries

    async def _read(self) -> None:
        try:
            await self._before_silence(self._stream.ready())
            await self.open()
            while True:
                self._is_listening = True
                message = await self._before_silence(self._stream.receive())
                self._is_listening = False
                await self._queue.put(message)
                # Only after the queue took the message: while the queue is full nobody listens, and the board is not
                # silent.
                self._session.heard(_now())
                self._capture.heard_us = _wall_us()
        except UnreachableError as error:
            # The error goes through the queue so that earlier messages, such as a Goodbye, are handled first.
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
            # On a slow link the answer may come too late; if the link is lost, the reader of the stream finds out.
            with suppress(UnreachableError):
                await self._capture.sink.sample_clock(self._channel)
            await asyncio.sleep(CLOCK_INTERVAL_S)

    async def _watch_stop(self) -> None:
        await self._capture.stop.wait()
        self._session.finish(_now(), asks=self._capture.asks_at_end)
        if self._patience is not None and self._session.finish_by is not None:
            self._patience.reschedule(self._session.finish_by + LEAVE_S)
        await self._queue.put(None)

    async def _watch_silence(self) -> None:
        await self._welcomed.wait()
        while True:
            await asyncio.sleep(max(self._session.quiet_at - _now(), SILENCE_LOOK_S))
            if self._is_listening and self._session.quiet(_now()):
                await self._queue.put(None)

    async def _handle(self, event: Event) -> None:
        """Pass an event to the sink and the observer, after the commits that it must follow."""
        sink, observer = self._capture.sink, self._capture.observer
        # Data and questions about logs may overtake a commit that is under way; every other event must find its rows.
        if not isinstance(event, Arrived | LogsAnnounced):
            await self._capture.committed()
        match event:
            case Arrived():
                observer.changed(await sink.take(event.events, self._acknowledge, more=not self._queue.empty()))
                # JOBs that the sink refuses are not followed further.
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
        is_ending = self._session.finish_by is not None
        patience_s = LEAVE_S if is_ending else SILENT_HEARTBEATS * self._session.heartbeat_s
        async with self._sending:
            try:
                async with asyncio.timeout(patience_s) as self._patience:
                    await self._stream.send(message)
            except TimeoutError:
                self._stream.cancel("it does not take what this host says")
            except UnreachableError:
                pass  # the reader of the stream gets the same error with its reason
            finally:
                self._patience = None
        self._session.spoke(_now())

    async def _acknowledge(self, logs: Sequence[Acknowledgement]) -> None:
        """Queue acknowledgements for a common message: a message costs both ends more than its entries do."""
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
    """Capture of one board, until `stop` is set.

    It owns the channel and the stream of each connection; the session, which outlives them, decides when to reconnect.
    """

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
        asks_at_end: bool = False,
    ) -> None:
        """`wants`, `gather_s` and `is_patient` are those of LinkSession.

        With `asks_at_end` a stopped capture waits for the board to confirm that everything has been sent.
        """
        self.address, self.sink, self.observer = address, sink, observer
        self.stop, self._access, self.asks_at_end = stop, access, asks_at_end
        self.coverage = Coverage(_wall_us())
        self.heard_us = 0  # time of the board's last message, by the host's wall clock
        self._why = ""  # the reason of the present interruption, for the coverage
        opening = Open(consumer, f"profagent {__version__}")
        self.session = LinkSession(address, opening, wants, gather_s=gather_s, is_patient=is_patient)

    async def run(self) -> None:
        """Follow the board until `stop`; reconnect after a lost link, and wait while the disk is full.

        Raises UnreachableError if the first connection fails and the capture is not patient.
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
                self.stand()
        finally:
            session.stop()
            self._note_unanswered()
            self.coverage.end(_wall_us())
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
            self._why = str(error)
            self.session.full(error, _now())

    async def _follow(self) -> None:
        # Each attempt has a channel of its own: nothing of a connection that failed is used again.
        async with connected(self.address, self._access) as channel, channel.follow() as stream:
            await FollowedStream(self, channel, stream).run()

    async def committed(self) -> None:
        """Wait until all taken events are durable, and pass the applied batches to the observer."""
        while applied := await self.sink.committed():
            self.observer.changed(applied)

    def tell(self, event: Event) -> None:
        """Pass an event that no sink needs to the observer."""
        match event:
            case JobsShown():
                behind = (job.name for job in event.jobs if not (job.caught_up or job.is_over))
                self.coverage.jobs(behind, _wall_us())
                self.observer.jobs_changed(event.jobs)
            case Unlinked():
                self._why = str(event.error)
                self.observer.unlinked(event.error, event.wait_s)
            case Remark():
                self.observer.remark(event.text)

    def stand(self) -> None:
        """Note in the coverage how the board is followed now."""
        session, before = self.session, self.coverage.board.standing
        standing = session.standing
        was_never_reached = standing is Standing.AWAY and before is Standing.CONNECTING
        if session.state is State.CLOSED or standing is before or was_never_reached:
            return
        now_us, silent_us = _wall_us(), QUIET_HEARTBEATS * session.heartbeat_s * US_PER_S
        was_linked = before in (Standing.COVERED, Standing.BEHIND)
        # A host that was suspended did not follow the board meanwhile, so the interval begins with the last message.
        is_late = was_linked and now_us - self.heard_us > silent_us
        detail = self._why if standing in (Standing.AWAY, Standing.PAUSED) else ""
        self.coverage.stand(standing, now_us, self.heard_us if is_late else None, detail)

    def _note_unanswered(self) -> None:
        if not self.asks_at_end or self.session.has_synced or self.coverage.board.standing is not Standing.COVERED:
            return
        now_us = _wall_us()
        if now_us - self.heard_us < ANSWER_S * US_PER_S:
            self.coverage.stand(Standing.BEHIND, now_us)
        else:
            self.coverage.stand(Standing.SILENT, now_us, self.heard_us)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _wall_us() -> int:
    return time.time_ns() // 1000
