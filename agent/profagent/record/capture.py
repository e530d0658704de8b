"""Following one board: the link's machine with a real clock, real channels, a sink and an observer."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING

from profagent import __version__
from profagent.errors import DiskFullError, ProfagentError, UnreachableError
from profagent.link.actions import (
    Ask,
    Begin,
    ChangeState,
    Close,
    Connect,
    FindRoom,
    Know,
    List,
    Send,
    ShowJobs,
    Take,
    Tell,
    Unlink,
)
from profagent.link.channel import connected
from profagent.link.choice import JobChoice
from profagent.link.credentials import BY_ADDRESS
from profagent.link.following import ENTRIES_PER_MESSAGE
from profagent.link.machine import Link
from profagent.link.messages import Acknowledge, Open, ServerMessage
from profagent.link.states import State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from profagent.link.actions import Action
    from profagent.link.channel import Channel, Stream
    from profagent.link.credentials import Access
    from profagent.link.messages import Acknowledgement, ClientMessage, JobStatus
    from profagent.record.sink import Observer, Sink


# Messages that wait between the link and the disk; each is at most 256 KiB of a log.
QUEUED_MESSAGES = 32
# What came before a wish to stop is taken for so long; then the board has it still.
STOP_S = 0.25
CLOCK_INTERVAL_S = 60.0


class Conversation:
    """One stream. Its tasks live no longer than `run`."""

    def __init__(self, capture: Capture, channel: Channel, stream: Stream) -> None:
        self._capture = capture
        self._link = capture.link
        self._channel = channel
        self._stream = stream
        # What came, in order; last an error when the stream has ended, or None when the capture is stopped.
        self._queue: asyncio.Queue[ServerMessage | UnreachableError | None] = asyncio.Queue(QUEUED_MESSAGES)
        self._welcomed = asyncio.Event()
        self._stop_at = float("inf")

    async def run(self) -> None:
        """Converse until the link waits or is closed; raises what ends the stream before."""
        try:
            async with asyncio.TaskGroup() as group:
                sides = (self._read(), self._beat(), self._compare_clocks(), self._watch_stop())
                others = [group.create_task(side) for side in sides]
                await self._work()
                for task in others:
                    task.cancel()
        except BaseExceptionGroup as failures:
            raise _cause(failures) from None

    async def take(self, message: ServerMessage | UnreachableError | None) -> None:
        """Let a message have its effect; None for the end. Raises the error that it may be."""
        if isinstance(message, UnreachableError):
            raise message
        now = asyncio.get_running_loop().time()
        await self._perform(self._link.stop() if message is None else self._link.receive(message, now))

    async def open(self) -> None:
        """Say the first words."""
        await self._perform(self._link.opened(asyncio.get_running_loop().time()))

    async def flush(self) -> None:
        """Hand on what has gathered, if it is time."""
        await self._perform(self._link.tick(asyncio.get_running_loop().time()))

    async def _read(self) -> None:
        try:
            await self._listen()
        except UnreachableError as error:
            # What came before is taken before: a goodbye, for one.
            await self._queue.put(error)

    async def _listen(self) -> None:
        now = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout_at(self._link.pulse.silent_at):
                await self._stream.ready()
        except TimeoutError:
            raise self._link.silence() from None
        await self.open()
        while True:
            try:
                async with asyncio.timeout_at(self._link.pulse.silent_at):
                    message = await self._stream.receive()
            except TimeoutError:
                raise self._link.silence() from None
            await self._queue.put(message)
            # Not before: a board that nobody listens to is not silent.
            self._link.pulse.heard(now())

    async def _beat(self) -> None:
        await self._welcomed.wait()
        now = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(self._link.pulse.speak_at - now())
            await self._perform(self._link.beat(now()))

    async def _compare_clocks(self) -> None:
        await self._welcomed.wait()
        while True:
            # Over a slow link an answer may come too late; whether the link is gone, the stream itself tells.
            with suppress(UnreachableError):
                await self._capture.sink.sample_clock(self._channel)
            await asyncio.sleep(CLOCK_INTERVAL_S)

    async def _watch_stop(self) -> None:
        await self._capture.stop.wait()
        self._stop_at = asyncio.get_running_loop().time() + STOP_S
        await self._queue.put(None)

    async def _work(self) -> None:
        """Take messages one at a time; hand on what has gathered when its time has come."""
        now = asyncio.get_running_loop().time
        while self._link.has_stream:
            if now() >= self._stop_at:
                await self.take(None)
                return
            try:
                async with asyncio.timeout_at(self._link.due):
                    message = await self._queue.get()
            except TimeoutError:
                await self.flush()
            else:
                await self.take(message)

    async def _perform(self, actions: Sequence[Action]) -> None:
        for action in actions:
            await self._do(action)

    async def _do(self, action: Action) -> None:
        sink, observer = self._capture.sink, self._capture.observer
        match action:
            case Send():
                await self._send(action.message)
            case Begin():
                await sink.begin(action.board, self._capture.address)
                self._welcomed.set()
                observer.linked(action.board, action.role)
            case List():
                observer.changed(await sink.listed(action.names))
            case Know():
                sink.know_job(action.job.name, action.job.directory, action.job.profiling)
            case Ask():
                await self._perform(self._link.held(await sink.holdings(action.logs)))
            case Take():
                observer.changed(await sink.take(action.events, self._acknowledge))
                await self._perform(self._link.took(sink.refused))
            case ChangeState(job, caught_up):
                observer.changed(await sink.change_state(job.name, job.state, caught_up=caught_up))
            case ShowJobs():
                observer.jobs_changed(action.jobs)
            case Unlink() | Tell() | Close():
                self._capture.observe(action)
            case _:
                raise AssertionError(action)

    async def _send(self, message: ClientMessage) -> None:
        # Whoever reads the stream is told that it has ended, and why.
        with suppress(UnreachableError):
            await self._stream.send(message)
        self._link.pulse.spoke(asyncio.get_running_loop().time())

    async def _acknowledge(self, logs: Sequence[Acknowledgement]) -> None:
        for start in range(0, len(logs), ENTRIES_PER_MESSAGE):
            await self._send(Acknowledge(tuple(logs[start : start + ENTRIES_PER_MESSAGE])))


def _cause(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """What to raise of a stream's tasks that failed together: a fault of ours rather than the link's end."""
    errors = failures.exceptions
    return next((error for error in errors if not isinstance(error, ProfagentError)), errors[0])


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
        """`wants` as of JobChoice; what comes within `gather_s` is handed to the sink together.

        One that `is_patient` waits for a board that has never answered as for one that was lost.
        """
        self.address = address
        self.sink = sink
        self.observer = observer
        self.stop = stop
        self.access = access
        self.link = Link(
            address,
            Open(consumer, f"profagent {__version__}"),
            JobChoice(wants),
            gather_s=gather_s,
            is_patient=is_patient,
            uniform=random.uniform,
        )

    async def run(self) -> None:
        """Follow the board; a link that is lost is tried again, a full disk is waited for.

        A first connection that fails raises UnreachableError unless the capture is patient.
        """
        now = asyncio.get_running_loop().time
        while self.link.state is not State.CLOSED:
            await self._pause()
            await self._perform(self.link.stop() if self.stop.is_set() else self.link.tick(now()))

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout_at(self.link.due):
                await self.stop.wait()
        except TimeoutError:
            return

    async def _perform(self, actions: Sequence[Action]) -> None:
        now = asyncio.get_running_loop().time
        for action in actions:
            match action:
                case Connect():
                    await self._converse()
                case FindRoom():
                    await self._perform(self.link.room(await self.sink.has_room(), now()))
                case Unlink() | Tell() | Close():
                    self.observe(action)
                case _:
                    raise AssertionError(action)

    async def _converse(self) -> None:
        now = asyncio.get_running_loop().time
        try:
            await self._follow()
        except UnreachableError as error:
            await self._perform(self.link.lost(error, now()))
        except DiskFullError as error:
            if self.link.state is State.CLOSED:
                raise
            await self._perform(self.link.full(error, now()))

    async def _follow(self) -> None:
        async with connected(self.address, self.access) as channel, channel.follow() as stream:
            await Conversation(self, channel, stream).run()

    def observe(self, action: Unlink | Tell | Close) -> None:
        """Tell the observer; raises what closed the link."""
        match action:
            case Unlink():
                self.observer.unlinked(action.error, action.wait_s)
            case Tell():
                self.observer.remark(action.text)
            case Close() if action.error is not None:
                raise action.error
