"""Following one board: a link's session with a real clock, real channels, a sink and an observer."""

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
from profagent.link.session import US_PER_S, LinkSession, State

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

# How often a board that is silent is looked at.
SILENCE_LOOK_S = 0.25
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

    async def listed(self, names: Collection[str]) -> Sequence[Applied]:
        """The board has told every JOB that it has; returns what is over because it is not among them."""

    async def holdings(self, logs: Sequence[FollowedLog]) -> list[Holding]:
        """What is held of announced logs; what was taken of them counts."""

    async def take(
        self,
        events: Sequence[Received],
        acknowledge: Callable[[Sequence[Acknowledgement]], Awaitable[None]],
        *,
        more: bool,
    ) -> Sequence[Applied]:
        """Take events in order. `more`: others are at hand, and these may be durable later.

        Returns what has become of those that are durable and were not returned yet, as the other methods do.
        """

    async def committed(self) -> Sequence[Applied]:
        """Wait until all events that were given are durable, and their `acknowledge` was called.

        Nothing is left to return where it returns nothing.
        """

    async def change_state(self, name: str, state: str, *, caught_up: bool) -> Sequence[Applied]:
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

    def changed(self, applied: Sequence[Applied]) -> None:
        """Batches were taken, and are durable where anything is kept."""

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
        self._is_listening = False  # the board is waited for, and not our own work
        self._sending = asyncio.Lock()
        self._patience: asyncio.Timeout | None = None  # with the message that the board is to take

    async def run(self) -> None:
        """Converse until the link waits or is closed; raises what ends the stream before."""
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
            # A fault of ours rather than the link's end, where both came together.
            errors = failures.exceptions
            raise next((each for each in errors if not isinstance(each, ProfagentError)), errors[0]) from None
        finally:
            await self._capture.committed()

    async def open(self) -> None:
        """Say the first words."""
        self._session.opened(_now())
        await self._send_all()

    async def take(self, message: ServerMessage | UnreachableError | None) -> None:
        """Let a message have its effect; None: the session has something to tell. Raises the error that it may be."""
        if isinstance(message, UnreachableError):
            raise message
        if message is not None:
            self._session.receive(message, _now())
        elif self._capture.stop.is_set() and not self._capture.asks_at_end:
            self._session.stop()
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
        self._capture.stand()
        await self._send_all()

    async def _work(self) -> None:
        """Take messages one at a time; hand on what has gathered when its time has come."""
        while self._session.has_stream:
            if self._session.finish_by is not None and _now() >= self._session.finish_by:
                # Messages that wait may be many, and the board has them still.
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
                # There is nothing to do meanwhile.
                await self._capture.committed()

    async def _leave(self) -> None:
        """Let the board hear the last: a call that is cancelled takes back what is on its way."""
        await self._capture.committed()
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
                self._is_listening = True
                message = await self._before_silence(self._stream.receive())
                self._is_listening = False
                await self._queue.put(message)
                # Not before: a board that nobody listens to is not silent.
                self._session.heard(_now())
                self._capture.heard_us = _wall_us()
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

    async def _know(self, event: Event) -> None:
        sink, observer = self._capture.sink, self._capture.observer
        if not isinstance(event, Arrived | LogsAnnounced):
            await self._capture.committed()
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
        is_ending = self._session.finish_by is not None
        patience_s = LEAVE_S if is_ending else SILENT_HEARTBEATS * self._session.heartbeat_s
        async with self._sending:
            try:
                async with asyncio.timeout(patience_s) as self._patience:
                    await self._stream.send(message)
            except TimeoutError:
                self._stream.cancel("it does not take what this host says")
            except UnreachableError:
                pass  # whoever reads the stream is told that it has ended, and why
            finally:
                self._patience = None
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
        asks_at_end: bool = False,
    ) -> None:
        """`wants`, `gather_s` and `is_patient` as of LinkSession.

        With `asks_at_end` a capture that is stopped waits for the board's word that everything has come.
        """
        self.address, self.sink, self.observer = address, sink, observer
        self.stop, self._access, self.asks_at_end = stop, access, asks_at_end
        self.coverage = Coverage(_wall_us())
        self.heard_us = 0  # when the board spoke last, by the host's wall clock
        self._why = ""  # there is no link, or nothing can be written
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
        async with connected(self.address, self._access) as channel, channel.follow() as stream:
            await FollowedStream(self, channel, stream).run()

    async def committed(self) -> None:
        """Wait until all that was taken is durable, and let the observer know."""
        while applied := await self.sink.committed():
            self.observer.changed(applied)

    def tell(self, event: Event) -> None:
        """Let the observer know of what no sink needs."""
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
        """Note how the board is followed now."""
        session, before = self.session, self.coverage.board.standing
        standing = session.standing
        was_never_reached = standing is Standing.AWAY and before is Standing.CONNECTING
        if session.state is State.CLOSED or standing is before or was_never_reached:
            return
        now_us, silent_us = _wall_us(), QUIET_HEARTBEATS * session.heartbeat_s * US_PER_S
        was_linked = before in (Standing.COVERED, Standing.BEHIND)
        # A host that slept has not followed meanwhile either.
        is_late = was_linked and now_us - self.heard_us > silent_us
        detail = self._why if standing in (Standing.AWAY, Standing.PAUSED) else ""
        self.coverage.stand(standing, now_us, self.heard_us if is_late else None, detail)

    def _note_unanswered(self) -> None:
        """At its end a board that was covered did not say that everything has come."""
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
