"""A board's messages through a capture: what does not wait until a batch is on the disk."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from profagent.link.messages import (
    Acknowledge,
    Announced,
    AnnouncedLog,
    Batch,
    Chunk,
    ClientMessage,
    JobsListed,
    Started,
    Welcome,
)
from profagent.record.capture import Capture, FollowedStream
from tests.unit.record.link import board, job_status
from tests.unit.record.test_recording import keeping
from tests.unit.watch.arriving_job import aicore_path, records


class Nobody:
    """An observer who does not look."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None


class Wire:
    """A stream that takes no acknowledgement before `is_open`, which each batch ends with."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()

    async def send(self, message: ClientMessage) -> None:
        if isinstance(message, Acknowledge):
            await self.is_open.wait()


async def test_logs_are_answered_while_a_batch_goes_to_the_disk(tmp_path: Path) -> None:
    channel: Any = None
    wire: Any = Wire()
    observer: Any = Nobody()
    async with keeping(tmp_path) as kept:
        capture = Capture(
            "board:1",
            kept.recording,
            observer,
            wants=lambda *_: True,
            consumer="test",
            gather_s=0.0,
            stop=asyncio.Event(),
        )
        talking = FollowedStream(capture, channel, wire)
        await talking.open()
        for message in (Welcome(board(), 0), job_status(), JobsListed(), announced(1)):
            await talking.take(message)
        talking._queue.put_nowait(announced(2))  # more is at hand
        data = records(3)
        await talking.take(Batch((Started(1, 1, 0, "new"), Chunk(1, 1, 0, data))))
        await talking.flush()
        try:
            await asyncio.wait_for(talking.take(talking._queue.get_nowait()), 60)
        finally:
            wire.is_open.set()
        await talking.take(replace(job_status(), state="finished"))
        assert await kept.rows("SELECT state, (SELECT max(offset) FROM log) FROM job") == [("finished", len(data))]


def announced(number: int) -> Announced:
    """A log of the JOB."""
    return Announced((AnnouncedLog(number, 1, aicore_path(number).encode(), snapshot=False),))
