"""A conversation with a board over a stream that a test writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from profagent.errors import ProfagentError, ProtocolError, StoreError, UnreachableError, UnsupportedBoardError
from profagent.ingest.changes import JobChanges
from profagent.link import following, pulse
from profagent.link.actions import Connect
from profagent.link.following import is_over
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
    Clocks,
    Goodbye,
    Heartbeat,
    Holding,
    Holdings,
    JobsListed,
    JobStatus,
    Loss,
    Open,
    Profiling,
    Select,
    ServerMessage,
    Started,
    Welcome,
)
from profagent.link.states import State
from profagent.record import capture as conversation
from profagent.record.capture import QUEUED_MESSAGES, Capture, Conversation
from tests.unit.commands.link import JOB, board

if TYPE_CHECKING:
    from profagent.link.session import FollowedLog, Happened

PATH = b"data/aicore.0.m.3.0.1.1.0"
OTHER_JOB = JOB[:-1] + "B"
LISTED: tuple[ServerMessage, ...] = (JobsListed(),)


class _Stream:
    """A board that says what a test has it say, then nothing more."""

    def __init__(self) -> None:
        self.sent: list[ClientMessage] = []
        self._to_come: asyncio.Queue[ServerMessage | ProfagentError] = asyncio.Queue()
        self._spoke = asyncio.Event()

    def say(self, *messages: ServerMessage | ProfagentError) -> None:
        for message in messages:
            self._to_come.put_nowait(message)

    @property
    def has_more(self) -> bool:
        return not self._to_come.empty()

    async def ready(self) -> None:
        return

    async def send(self, message: ClientMessage) -> None:
        self.sent.append(message)
        self._spoke.set()

    async def receive(self) -> ServerMessage:
        message = await self._to_come.get()
        if isinstance(message, ProfagentError):
            raise message
        return message

    async def until_sent(self, kind: type[ClientMessage], count: int = 1) -> list[ClientMessage]:
        async with asyncio.timeout(30):
            while len(found := [each for each in self.sent if isinstance(each, kind)]) < count:
                self._spoke.clear()
                await self._spoke.wait()
        return found


class _Sink:
    """Holds nothing; notes everything, in order."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.batches: list[list[Happened]] = []
        self.fails: Exception | None = None
        self.clock_error: ProfagentError | None = None
        self.refused: dict[str, UnsupportedBoardError] = {}
        self.jobs_listed: list[str] | None = None
        self.may_take = asyncio.Event()
        self.may_take.set()

    async def begin(self, board: Board, address: str) -> None:
        self.seen.append(("begin", board.identity, address))

    def know_job(self, name: str, directory: str, profiling: Profiling | None = None) -> None:
        self.seen.append(("know", name, directory))

    async def listed(self, names: Collection[str]) -> Sequence[JobChanges]:
        self.jobs_listed = sorted(names)
        return ()

    async def holdings(self, logs: Sequence[FollowedLog]) -> list[Holding]:
        return [Holding(log.handle) for log in logs]

    async def take(self, events: Sequence[Happened], acknowledge: Any) -> Sequence[JobChanges]:
        if self.fails is not None:
            raise self.fails
        await self.may_take.wait()
        self.batches.append(list(events))
        self.seen.append("take")
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
        raise AssertionError


class _Observer:
    def __init__(self) -> None:
        self.seen: list[Any] = []
        self._saw = asyncio.Event()

    async def until(self, seen: Any) -> None:
        """Wait until something was seen."""
        async with asyncio.timeout(30):
            while seen not in self.seen:
                self._saw.clear()
                await self._saw.wait()

    def _note(self, seen: Any) -> None:
        self.seen.append(seen)
        self._saw.set()

    def linked(self, board: Board, role: str) -> None:
        self._note(("linked", board.identity))

    def unlinked(self, error: ProfagentError, wait_s: float) -> None:
        self._note(("unlinked", str(error)))

    def remark(self, text: str) -> None:
        self._note(("remark", text))

    def changed(self, changes: Sequence[JobChanges]) -> None:
        self._note(("changed", len(changes)))

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        self._note(("jobs", [(job.name, job.state, job.caught_up) for job in jobs]))


class Talk:
    """A conversation under way, and who takes part in it."""

    def __init__(self, gather_s: float) -> None:
        self.stream, self.sink, self.observer = _Stream(), _Sink(), _Observer()
        self.stop = asyncio.Event()
        self.unwanted: set[str] = set()
        self.capture = Capture(
            "euler:50151",
            self.sink,
            self.observer,
            wants=lambda job, _: job.name not in self.unwanted,
            consumer="test",
            gather_s=gather_s,
            stop=self.stop,
        )
        assert self.capture.link.tick(0.0) == [Connect()]
        channel: Any = None
        stream: Any = self.stream
        self.running = asyncio.create_task(Conversation(self.capture, channel, stream).run())

    async def end(self) -> None:
        self.stop.set()
        async with asyncio.timeout(30):
            await self.running


@asynccontextmanager
async def talking(gather_s: float = 0.0) -> AsyncIterator[Talk]:
    """A conversation that has been welcomed."""
    talk = Talk(gather_s)
    talk.stream.say(Welcome(board(), 5_000_000))
    try:
        yield talk
        if not talk.running.done():
            await talk.end()
    finally:
        talk.running.cancel()
        await asyncio.wait([talk.running])


def _job(state: str = "open", *, name: str = JOB, handle: int = 1, caught_up: bool = False) -> JobStatus:
    return JobStatus(handle, name, f"/root/{handle}", state, caught_up)


def _events() -> Batch:
    return Batch((Started(1, 1, 0, "new"), Chunk(1, 1, 0, b"data")))


ANNOUNCED = Announced((AnnouncedLog(1, 1, PATH, snapshot=False, size=4),))


async def test_it_opens_and_is_welcomed() -> None:
    async with talking() as talk:
        await talk.observer.until(("linked", "board-1"))
    opened = talk.stream.sent[0]
    assert isinstance(opened, Open)
    assert opened.consumer == "test"
    assert talk.sink.seen[0] == ("begin", "board-1", "euler:50151")
    assert "clock" in talk.sink.seen


async def test_jobs_that_are_wanted_are_selected() -> None:
    async with talking() as talk:
        talk.unwanted.add(OTHER_JOB)
        talk.stream.say(_job(), _job(name=OTHER_JOB, handle=2), *LISTED)
        await talk.observer.until(("jobs", [(JOB, "open", False)]))
        assert await talk.stream.until_sent(Select) == [Select((1,))]
    assert ("know", JOB, "/root/1") in talk.sink.seen
    assert ("state", JOB, "open", False) in talk.sink.seen


async def test_of_two_directories_of_one_name_the_first_that_stands_is_followed() -> None:
    async with talking() as talk:
        talk.stream.say(_job(), _job(handle=2), *LISTED)
        await talk.observer.until(("jobs", [(JOB, "open", False)]))
        talk.stream.say(_job("removed"))
        assert await talk.stream.until_sent(Select, 2) == [Select((1,)), Select((2,))]


async def test_logs_are_answered_and_events_acknowledged() -> None:
    async with talking() as talk:
        talk.stream.say(_job(), *LISTED, ANNOUNCED, _events())
        assert await talk.stream.until_sent(Holdings) == [Holdings((Holding(1),))]
        assert await talk.stream.until_sent(Acknowledge) == [Acknowledge((Acknowledgement(1, 1, 4, complete=False),))]
        await talk.observer.until(("changed", 1))
    (batch,) = talk.sink.batches
    assert [type(happened.event) for happened in batch] == [Started, Chunk]


async def test_what_has_gathered_is_taken_before_a_state_and_before_the_end() -> None:
    async with talking(gather_s=3600.0) as talk:
        talk.stream.say(_job(), *LISTED, ANNOUNCED, _events(), _job("finished"))
        await talk.observer.until(("jobs", [(JOB, "finished", False)]))
        assert talk.sink.seen.index("take") < talk.sink.seen.index(("state", JOB, "finished", False))
        more = Chunk(1, 1, 4, b"more")
        talk.stream.say(Batch((more,)), _job("finished", handle=9, name=OTHER_JOB))
        talk.unwanted.add(OTHER_JOB)
        await talk.end()
    assert [len(batch) for batch in talk.sink.batches] == [2, 1]


async def test_a_large_batch_is_not_gathered_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LARGEST_BATCH_BYTES", 4)
    async with talking(gather_s=3600.0) as talk:
        talk.stream.say(_job(), *LISTED, ANNOUNCED, _events())
        await talk.observer.until(("changed", 1))


async def test_whoever_watches_hears_that_a_job_has_caught_up_before_what_follows() -> None:
    async with talking() as talk:
        talk.stream.say(_job(), *LISTED, _job(caught_up=True))
        await talk.observer.until(("jobs", [(JOB, "open", True)]))
        await talk.end()
    told = talk.observer.seen
    assert told.index(("jobs", [(JOB, "open", True)])) < len(told) - 1 - told[::-1].index(("changed", 0))


@pytest.mark.parametrize("was_heard", [True, False])
async def test_a_removed_job_has_caught_up_where_the_board_had_heard_that_it_is_followed(*, was_heard: bool) -> None:
    async with talking() as talk:
        talk.stream.say(_job(), *LISTED, *([ANNOUNCED] if was_heard else []), _job("removed"))
        await talk.observer.until(("jobs", [(JOB, "removed", False)]))
    assert ("state", JOB, "removed", was_heard) in talk.sink.seen


async def test_long_answers_go_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "ENTRIES_PER_MESSAGE", 2)
    logs = tuple(AnnouncedLog(handle, 1, PATH + b"%d" % handle, snapshot=False, size=4) for handle in range(1, 6))
    async with talking() as talk:
        talk.stream.say(_job(), *LISTED, Announced(logs))
        pages = await talk.stream.until_sent(Holdings, 3)
    assert [len(page.logs) for page in pages if isinstance(page, Holdings)] == [2, 2, 1]


async def test_a_goodbye_ends_the_stream_in_good_order() -> None:
    async with talking() as talk:
        talk.stream.say(Goodbye("the daemon is stopping", 0))
        await talk.running
    assert ("unlinked", "the daemon at euler:50151 says goodbye: the daemon is stopping") in talk.observer.seen


async def test_what_came_before_the_end_of_the_stream_is_taken_before() -> None:
    async with talking() as talk:
        talk.stream.say(_job(), *LISTED, ANNOUNCED, _events(), Goodbye("stopping", 0), UnreachableError("x", hint="y"))
        await talk.running
    assert talk.capture.link.state is State.WAITING
    assert any(seen[0] == "unlinked" and "goodbye" in seen[1] for seen in talk.observer.seen)


async def test_a_wish_to_stop_does_not_wait_for_all_that_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "STOP_S", 0.0)
    async with talking() as talk:
        talk.sink.may_take.clear()
        loss = Batch((Loss(0, 1, "unreadable", "no permission", 0),))
        talk.stream.say(_job(), *LISTED, *[loss] * QUEUED_MESSAGES)
        async with asyncio.timeout(30):
            while talk.stream.has_more:  # noqa: ASYNC110 - nothing tells that the queue is full
                await asyncio.sleep(0.01)
        talk.stop.set()
        await asyncio.sleep(0.01)
        talk.sink.may_take.set()
        await talk.end()
    assert sum(map(len, talk.sink.batches)) < QUEUED_MESSAGES
    assert talk.capture.link.state is State.CLOSED


async def test_how_far_behind_the_board_is_is_told() -> None:
    async with talking() as talk:
        talk.stream.say(Heartbeat(Clocks(0, 0), 0, 0, (), 20_000_000))
        await talk.observer.until(("remark", "behind the board: 20.0 MB are still to come"))


async def test_a_lost_link_ends_every_task() -> None:
    async with talking() as talk:
        await talk.observer.until(("linked", "board-1"))
        talk.stream.say(UnreachableError("gone", hint="wait"))
        with pytest.raises(UnreachableError, match="gone"):
            await talk.running


async def test_a_board_that_breaks_the_contract_is_refused() -> None:
    async with talking() as talk:
        talk.stream.say(Welcome(board(), 0))
        with pytest.raises(ProtocolError):
            await talk.running


async def test_silence_is_a_lost_link() -> None:
    async with talking() as talk:
        await talk.observer.until(("linked", "board-1"))
        talk.capture.link.pulse.heartbeat_s = 0.0
        talk.stream.say(*LISTED)
        with pytest.raises(UnreachableError, match="silent"):
            await talk.running


async def test_clocks_that_cannot_be_compared_in_time_end_nothing() -> None:
    async with talking() as talk:
        talk.sink.clock_error = UnreachableError("too late", hint="wait")
        await talk.observer.until(("linked", "board-1"))
        talk.stream.say(_job(), *LISTED)
        await talk.observer.until(("jobs", [(JOB, "open", False)]))
    assert "clock" in talk.sink.seen


async def test_a_store_that_fails_ends_the_conversation_with_its_error() -> None:
    async with talking() as talk:
        talk.sink.fails = StoreError("disk full", hint="make room")
        talk.stream.say(_job(), *LISTED, ANNOUNCED, _events())
        with pytest.raises(StoreError, match="disk full"):
            await talk.running


async def test_a_fault_of_ours_passes_as_it_is() -> None:
    async with talking() as talk:
        talk.sink.fails = BrokenPipeError()
        talk.stream.say(_job(), *LISTED, ANNOUNCED, _events())
        with pytest.raises(BrokenPipeError):
            await talk.running


def test_a_fault_of_ours_is_not_hidden_behind_a_lost_link() -> None:
    lost, fault = UnreachableError("gone", hint="wait"), BrokenPipeError()
    for errors in ([lost, fault], [fault, lost]):
        assert conversation._cause(ExceptionGroup("both", errors)) is fault
    assert conversation._cause(ExceptionGroup("one", [lost])) is lost


async def test_heartbeats_go_as_often_as_the_board_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "SHORTEST_S", 0.05)
    monkeypatch.setattr(pulse, "SILENT_HEARTBEATS", 1000)
    talk = Talk(0.0)
    talk.stream.say(Welcome(board(), 50_000))
    await talk.stream.until_sent(ClientHeartbeat, 3)
    await talk.end()


@pytest.mark.parametrize(
    ("state", "caught_up", "over"),
    [("open", True, False), ("finished", False, False), ("finished", True, True), ("quiet", True, True)],
)
def test_a_job_is_over_when_it_has_ended_and_has_come(state: str, caught_up: bool, over: bool) -> None:
    assert is_over(_job(state, caught_up=caught_up)) is over


def test_a_removed_job_is_over() -> None:
    assert is_over(_job("removed"))


async def test_every_job_that_there_is_is_told_to_the_sink() -> None:
    async with talking() as talk:
        talk.unwanted.add(OTHER_JOB)
        talk.stream.say(
            _job(), _job("finished", name=OTHER_JOB, handle=2), _job("removed", name="JOB" + "X" * 29, handle=3)
        )
        talk.stream.say(JobsListed())
        await talk.observer.until(("jobs", [(JOB, "open", False)]))
        assert talk.sink.jobs_listed == [JOB, OTHER_JOB]
