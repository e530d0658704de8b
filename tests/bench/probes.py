"""What a second client feels while others are served: how long the daemon takes to answer, when a line is printed."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from profagent_wire.v1 import board_pb2 as wire
from tests.daemon.wire_client import connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from subprocess import Popen

PERIOD_S = 0.05
POLL_S = 0.1


class Answers:
    """How long each Describe took that was asked for every 50 ms; the next waits for the one before."""

    def __init__(self) -> None:
        self._took: list[tuple[float, float]] = []

    def between(self, begin: float, end: float) -> list[float]:
        """Milliseconds of each answer to what was asked between these times of the monotonic clock."""
        return [took * 1000 for asked, took in self._took if begin <= asked < end]

    async def ask(self, address: str) -> None:
        """Ask until cancelled."""
        async with connect(address) as stub:
            while True:
                asked = time.monotonic()
                await stub.Describe(wire.DescribeRequest())
                self._took.append((asked, time.monotonic() - asked))
                await asyncio.sleep(max(0.0, asked + PERIOD_S - time.monotonic()))


@asynccontextmanager
async def asking(address: str) -> AsyncIterator[Answers]:
    """Answers of the daemon at an address, as long as this is entered."""
    answers = Answers()
    task = asyncio.create_task(answers.ask(address))
    try:
        yield answers
    finally:
        task.cancel()
        await asyncio.wait([task])


class PrintedLines:
    """What a `profagent watch --json` prints: by `current_pic_count`, when its inference was read from the pipe."""

    def __init__(self, watch: Popen[str]) -> None:
        self.seen: dict[int, float] = {}
        assert watch.stdout is not None
        self._lines = watch.stdout
        threading.Thread(target=self._read, name="printed-lines", daemon=True).start()

    def delays_ms(self, written: dict[int, float], begin: float, end: float) -> list[float]:
        """Milliseconds from the write to the line, for what was written between these times and has been printed."""
        times = [(at, self.seen.get(number)) for number, at in written.items() if begin <= at < end]
        return [(seen - at) * 1000 for at, seen in times if seen is not None]

    def _read(self) -> None:
        for line in self._lines:
            now = time.monotonic()
            event = msgspec.json.decode(line)
            if event["event"] == "inference":
                self.seen[event["current_pic_count"]] = now


async def until(is_so: Callable[[], bool]) -> float:
    """Wait until something is so; when it was, on the monotonic clock."""
    while not is_so():  # noqa: ASYNC110 - it becomes so in another process or thread
        await asyncio.sleep(POLL_S)
    return time.monotonic()
