"""A board's messages through a capture: what does not wait until a batch is on the disk, and what is told of it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from profagent.errors import UnreachableError
from profagent.ingest.mirror import digest_of
from profagent.link.messages import (
    Acknowledge,
    Acknowledgement,
    Announced,
    AnnouncedLog,
    Batch,
    ClientMessage,
    JobsListed,
    ServerMessage,
    Started,
    Welcome,
)
from profagent.record.capture import Capture, FollowedStream
from profagent.record.recording import Step
from tests.unit.record.link import Nobody, board, job_status
from tests.unit.record.test_recording import Kept, keeping
from tests.unit.watch.arriving_job import aicore_path, records

DATA = records(3)
OPENING = (Welcome(board(), 0), job_status(), JobsListed())


class Wire:
    """A stream of which the other end is here, and its channel."""

    def __init__(self) -> None:
        self.coming: asyncio.Queue[ServerMessage | UnreachableError] = asyncio.Queue()
        self.acknowledged: asyncio.Queue[Acknowledgement] = asyncio.Queue()
        self.is_over = False

    async def ready(self) -> None:
        """It is."""

    async def receive(self) -> ServerMessage:
        try:
            message = await self.coming.get()
        except asyncio.CancelledError:
            self.is_over = True  # as a call of gRPC
            raise
        if isinstance(message, UnreachableError):
            raise message
        return message

    async def finish(self) -> None:
        self.coming.put_nowait(UnreachableError("the board ended the stream", hint=""))

    async def clocks(self) -> Any:
        raise UnreachableError("it does not tell", hint="")

    async def send(self, message: ClientMessage) -> None:
        if self.is_over:
            raise UnreachableError("it is over", hint="")
        for each in message.logs if isinstance(message, Acknowledge) else ():
            self.acknowledged.put_nowait(each)


def followed(kept: Kept, wire: Any, stop: asyncio.Event) -> FollowedStream:
    observer: Any = Nobody()
    sink = kept.recording
    capture = Capture(
        "board:1", sink, observer, wants=lambda *_: True, consumer="test", gather_s=0.0, stop=stop, is_patient=True
    )
    capture.session.tick(asyncio.get_running_loop().time())
    return FollowedStream(capture, wire, wire)


async def test_logs_are_answered_while_a_batch_goes_to_the_disk(tmp_path: Path) -> None:
    is_on_disk = threading.Event()

    def sync(_: Path) -> None:
        assert is_on_disk.wait(60)

    async with keeping(tmp_path, sync=sync) as kept:
        talking = followed(kept, Wire(), asyncio.Event())
        await talking.open()
        for message in (*OPENING, announced(1)):
            await talking.take(message)
        talking._queue.put_nowait(announced(2))  # more is at hand
        await talking.take(Batch((Started(1, 1, 0, "new", DATA),)))
        await talking.flush()
        try:
            await asyncio.wait_for(talking.take(talking._queue.get_nowait()), 60)
        finally:
            is_on_disk.set()
        await talking.take(replace(job_status(), state="finished"))
        assert await kept.rows("SELECT state, (SELECT max(offset) FROM log) FROM job") == [("finished", len(DATA))]


async def test_what_is_durable_is_told_while_the_stream_goes_on_and_at_its_end(tmp_path: Path) -> None:
    stop, wire, is_taken = asyncio.Event(), Wire(), asyncio.Event()

    def reached(step: Step) -> None:
        if step is Step.ACKNOWLEDGED:
            is_taken.set()

    async with keeping(tmp_path, reached=reached) as kept:
        talking = asyncio.create_task(followed(kept, wire, stop).run())
        for message in (*OPENING, announced(1), announced(2), whole(1)):
            wire.coming.put_nowait(message)
        told = await asyncio.wait_for(wire.acknowledged.get(), 60)
        assert told == Acknowledgement(1, 1, len(DATA), complete=True)
        is_taken.clear()
        wire.coming.put_nowait(whole(2))
        await asyncio.wait_for(is_taken.wait(), 60)
        stop.set()
        await talking
        assert wire.acknowledged.get_nowait() == Acknowledgement(2, 1, len(DATA), complete=True)


def announced(number: int) -> Announced:
    """A log of the JOB."""
    return Announced((AnnouncedLog(number, 1, aicore_path(number).encode(), snapshot=False),))


def whole(number: int) -> Batch:
    """All of it."""
    return Batch((Started(number, 1, 0, "new", DATA, digest_of(DATA)),))
