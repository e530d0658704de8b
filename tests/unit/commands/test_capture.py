"""A capture: a link's session with a clock, over a stream that a test writes, and what becomes of one that ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from profagent.errors import DiskFullError, ProfagentError, ProtocolError, StoreError, UnreachableError
from profagent.ingest.changes import JobChanges
from profagent.link import session
from profagent.link.messages import (
    Acknowledge,
    Acknowledgement,
    Announced,
    AnnouncedLog,
    Batch,
    Board,
    Chunk,
    ClientHeartbeat,
    ClientMessage,
    Goodbye,
    Holding,
    Holdings,
    JobsListed,
    JobStatus,
    Loss,
    Open,
    Profiling,
    ServerMessage,
    Started,
    Welcome,
)
from profagent.link.session import State
from profagent.record import capture as module
from profagent.record.capture import QUEUED_MESSAGES, Capture, Conversation
from tests.unit.commands.link import JOB, board

if TYPE_CHECKING:
    from profagent.link.messages import FollowedLog, Happened

PATH = b"data/aicore.0.m.3.0.1.1.0"
FULL = DiskFullError("the disk is full", hint="make room")
GONE = UnreachableError("gone", hint="wait")
TIMEOUT_S = 30


class _Stream:
    """A board that says what a test has it say, then nothing more."""

    def __init__(self) -> None:
        self.sent: list[ClientMessage] = []
        self.to_come: asyncio.Queue[ServerMessage | ProfagentError] = asyncio.Queue()
        self._spoke = asyncio.Event()

    def say(self, *messages: ServerMessage | ProfagentError) -> None:
        for message in messages:
            self.to_come.put_nowait(message)

    async def ready(self) -> None:
        return

    async def send(self, message: ClientMessage) -> None:
        self.sent.append(message)
        self._spoke.set()

    async def receive(self) -> ServerMessage:
        message = await self.to_come.get()
        if isinstance(message, ProfagentError):
            raise message
        return message

    async def until_sent(self, kind: type[ClientMessage], count: int = 1) -> list[ClientMessage]:
        async with asyncio.timeout(TIMEOUT_S):
            while len(found := [each for each in self.sent if isinstance(each, kind)]) < count:
                self._spoke.clear()
                await self._spoke.wait()
        return found


class _Sink:
    """Holds nothing; notes everything, in order."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.batches: list[Sequence[Happened]] = []
        self.fails: Exception | None = None
        self.clock_error: ProfagentError | None = None
        self.refused: dict[str, Any] = {}
        self.asked_for_room = 0
        self.may_take = asyncio.Event()
        self.may_take.set()

    async def begin(self, board: Board, address: str) -> None:
        self.seen.append(("begin", board.identity, address))

    def know_job(self, name: str, directory: str, profiling: Profiling | None = None) -> None:
        self.seen.append(("know", name, directory))

    async def listed(self, names: Collection[str]) -> Sequence[JobChanges]:
        self.seen.append(("listed", sorted(names)))
        return ()

    async def holdings(self, logs: Sequence[FollowedLog]) -> list[Holding]:
        return [Holding(log.handle) for log in logs]

    async def take(self, events: Sequence[Happened], acknowledge: Callable[[Any], Awaitable[None]]) -> Any:
        if self.fails is not None:
            raise self.fails
        await self.may_take.wait()
        self.batches.append(events)
        await acknowledge([Acknowledgement(1, 1, 4, complete=False)])
        return (JobChanges(JOB, "/root", ()),)

    async def change_state(self, name: str, state: str, *, caught_up: bool) -> Sequence[JobChanges]:
        self.seen.append(("state", name, state, caught_up))
        return ()

    async def sample_clock(self, channel: Any) -> None:
        self.seen.append("clock")
        if self.clock_error is not None:
            raise self.clock_error

    async def has_room(self) -> bool:
        self.asked_for_room += 1
        return self.asked_for_room == 3


class _Observer:
    """Notes what it is told; stops the capture after so many lost links."""

    def __init__(self, stop: asyncio.Event, losses: int) -> None:
        self.seen: list[Any] = []
        self.waits_s: list[float] = []
        self._stop, self._losses = stop, losses
        self._saw = asyncio.Event()

    async def until(self, seen: Any) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not any(each == seen or each[0] == seen for each in self.seen):
                self._saw.clear()
                await self._saw.wait()

    def _note(self, *seen: Any) -> None:
        self.seen.append(seen)
        self._saw.set()

    def linked(self, board: Board, role: str) -> None:
        self._note("linked", board.identity)

    def unlinked(self, error: ProfagentError, wait_s: float) -> None:
        self.waits_s.append(wait_s)
        self._note("unlinked", str(error))
        if len(self.waits_s) >= self._losses:
            self._stop.set()

    def remark(self, text: str) -> None:
        self._note("remark", text)

    def changed(self, changes: Sequence[JobChanges]) -> None:
        self._note("changed", len(changes))

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        self._note("jobs", [(job.name, job.state, job.caught_up) for job in jobs])


class Talk:
    """A capture, and a stream of it once it is begun."""

    def __init__(self, losses: int = 99, *, is_patient: bool = False) -> None:
        self.stop = asyncio.Event()
        self.stream, self.sink, self.observer = _Stream(), _Sink(), _Observer(self.stop, losses)
        self.capture = Capture(
            "127.0.0.1:1",
            self.sink,
            self.observer,
            wants=lambda *_: True,
            consumer="test",
            gather_s=0.0,
            stop=self.stop,
            is_patient=is_patient,
        )
        self.running: asyncio.Task[None] = asyncio.create_task(asyncio.sleep(0))

    def begin(self) -> None:
        self.capture.session.tick(0.0)
        channel: Any = None
        stream: Any = self.stream
        self.running = asyncio.create_task(Conversation(self.capture, channel, stream).run())

    async def end(self) -> None:
        self.stop.set()
        async with asyncio.timeout(TIMEOUT_S):
            await self.running


@asynccontextmanager
async def talking() -> AsyncIterator[Talk]:
    """A conversation that has been welcomed."""
    talk = Talk()
    talk.begin()
    talk.stream.say(Welcome(board(), 5_000_000))
    try:
        yield talk
        if not talk.running.done():
            await talk.end()
    finally:
        talk.running.cancel()
        await asyncio.wait([talk.running])


LISTED = (JobStatus(1, JOB, "/root/1", "open", caught_up=False), JobsListed())
ANNOUNCED = Announced((AnnouncedLog(1, 1, PATH, snapshot=False, size=4),))
EVENTS = Batch((Started(1, 1, 0, "new"), Chunk(1, 1, 0, b"data")))


async def test_it_opens_is_welcomed_and_tells_of_jobs() -> None:
    async with talking() as talk:
        talk.stream.say(*LISTED)
        await talk.observer.until(("jobs", [(JOB, "open", False)]))
    assert talk.observer.seen[0] == ("linked", "board-1")
    opened = talk.stream.sent[0]
    assert isinstance(opened, Open)
    assert opened.consumer == "test"
    known = [("know", JOB, "/root/1"), ("state", JOB, "open", False), ("listed", [JOB])]
    assert [each for each in talk.sink.seen if each != "clock"] == [("begin", "board-1", "127.0.0.1:1"), *known]
    assert "clock" in talk.sink.seen


async def test_logs_are_answered_and_events_acknowledged() -> None:
    async with talking() as talk:
        talk.stream.say(*LISTED, ANNOUNCED, EVENTS)
        assert await talk.stream.until_sent(Holdings) == [Holdings((Holding(1),))]
        assert await talk.stream.until_sent(Acknowledge) == [Acknowledge((Acknowledgement(1, 1, 4, complete=False),))]
        await talk.observer.until(("changed", 1))
    (batch,) = talk.sink.batches
    assert [type(happened.event) for happened in batch] == [Started, Chunk]


async def test_what_came_before_the_end_of_the_stream_is_taken_before() -> None:
    async with talking() as talk:
        talk.stream.say(*LISTED, ANNOUNCED, EVENTS, Goodbye("stopping", 0), GONE)
        await talk.running
    assert talk.capture.session.state is State.WAITING
    assert ("unlinked", "the daemon at 127.0.0.1:1 says goodbye: stopping") in talk.observer.seen


async def test_a_wish_to_stop_does_not_wait_for_all_that_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_S", 0.0)
    async with talking() as talk:
        talk.sink.may_take.clear()
        loss = Batch((Loss(0, 1, "unreadable", "no permission", 0),))
        talk.stream.say(*LISTED, *[loss] * QUEUED_MESSAGES)
        async with asyncio.timeout(TIMEOUT_S):
            while not talk.stream.to_come.empty():  # noqa: ASYNC110 - nothing tells that the queue is full
                await asyncio.sleep(0.01)
        talk.stop.set()
        await asyncio.sleep(0.01)
        talk.sink.may_take.set()
        await talk.end()
    assert sum(map(len, talk.sink.batches)) < QUEUED_MESSAGES
    assert talk.capture.session.state is State.CLOSED


@pytest.mark.parametrize(
    ("said", "error"), [((GONE,), UnreachableError), ((Welcome(board(), 0),), ProtocolError)], ids=["gone", "twice"]
)
async def test_what_ends_a_stream_is_raised(said: tuple[Any, ...], error: type[Exception]) -> None:
    async with talking() as talk:
        talk.stream.say(*said)
        with pytest.raises(error):
            await talk.running


@pytest.mark.parametrize("error", [StoreError("disk full", hint="make room"), BrokenPipeError()])
async def test_what_fails_on_the_host_is_raised_rather_than_the_links_end(error: Exception) -> None:
    async with talking() as talk:
        talk.sink.fails = error
        talk.stream.say(*LISTED, ANNOUNCED, EVENTS)
        with pytest.raises(type(error)):
            await talk.running


async def test_silence_is_a_lost_link() -> None:
    async with talking() as talk:
        await talk.observer.until("linked")
        talk.capture.session.heartbeat_s = 0.0
        talk.stream.say(*LISTED)
        with pytest.raises(UnreachableError, match="silent"):
            await talk.running


async def test_clocks_that_cannot_be_compared_in_time_end_nothing() -> None:
    async with talking() as talk:
        talk.sink.clock_error = UnreachableError("too late", hint="wait")
        talk.stream.say(*LISTED)
        await talk.observer.until("jobs")
    assert "clock" in talk.sink.seen


async def test_heartbeats_go_as_often_as_the_board_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SHORTEST_HEARTBEAT_S", 0.05)
    monkeypatch.setattr(session, "SILENT_HEARTBEATS", 1000)
    talk = Talk()
    talk.begin()
    talk.stream.say(Welcome(board(), 50_000))
    await talk.stream.until_sent(ClientHeartbeat, 3)
    await talk.end()


# Over several streams


def losing(talk: Talk, fails: Callable[[], ProfagentError]) -> Talk:
    """Its streams end at once, when the board has told its JOBs."""

    async def follow() -> None:
        now = asyncio.get_running_loop().time()
        talk.capture.session.opened(now)
        talk.capture.session.receive(Welcome(board(), 0), now)
        talk.capture.session.receive(JobsListed(), now)
        raise fails()

    talk.capture._follow = follow  # type: ignore[method-assign]
    return talk


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda *_: 0.0)
    monkeypatch.setattr(session, "ROOM_S", 0.0)


async def test_a_first_connection_that_fails_is_an_error() -> None:
    with pytest.raises(UnreachableError):
        await Talk().capture.run()


@pytest.mark.usefixtures("no_waits")
async def test_a_patient_capture_waits_for_a_board_that_never_answered() -> None:
    talk = Talk(3, is_patient=True)
    await talk.capture.run()
    assert len(talk.observer.waits_s) == 3


@pytest.mark.usefixtures("no_waits")
async def test_a_lost_link_is_tried_again() -> None:
    talk = losing(Talk(4), lambda: GONE)
    await talk.capture.run()
    assert talk.observer.waits_s == [0.0] * 4


async def test_stopping_ends_a_wait() -> None:
    talk = losing(Talk(), lambda: GONE)
    talk.capture.session._uniform = lambda *_: 3600.0
    running = asyncio.create_task(talk.capture.run())
    async with asyncio.timeout(TIMEOUT_S):
        await talk.observer.until("unlinked")
        talk.stop.set()
        await running


@pytest.mark.usefixtures("no_waits")
async def test_a_full_disk_is_waited_for_and_said_once() -> None:
    talk = Talk(1)
    losing(talk, lambda: GONE if talk.sink.asked_for_room == 3 else FULL)
    await talk.capture.run()
    first, second = (seen[1] for seen in talk.observer.seen if seen[0] == "remark")
    assert str(FULL) in first
    assert "room again" in second


async def test_a_disk_that_is_full_at_the_end_and_a_store_that_fails_otherwise_are_errors() -> None:
    talk = Talk()
    with pytest.raises(StoreError, match="broken"):
        await losing(talk, lambda: StoreError("broken", hint="see to it")).capture.run()
    talk = Talk()

    def full() -> ProfagentError:
        talk.capture.session.stop()
        return FULL

    with pytest.raises(DiskFullError):
        await losing(talk, full).capture.run()
