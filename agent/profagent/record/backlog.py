"""What open JOBs hold when a capture begins, told at once, and what of it was not copied when it ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from profagent.errors import UnreachableError
from profagent.link.channel import connected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from profagent.link.credentials import Access
    from profagent.link.messages import JobMeasure

# How long copying is measured before it is told how long the rest will take.
MEASURE_S = 1.0
# The board looks for 5 s at most. A capture that is stopped does not wait for so long.
PATIENCE_S = 8.0
PATIENCE_AT_END_S = 1.5
# Less than this is copied before anybody has read that it will be.
LEAST_BYTES = 1 << 20
BYTES_PER_MB = 1e6


class Backlog:
    """The JOBs of one board that held something when they were found."""

    def __init__(
        self, address: str, access: Access, tell: Callable[[str], None], copied: Callable[[str], Awaitable[int]]
    ) -> None:
        """`copied` gives how many bytes of a JOB are here."""
        self._address = address
        self._access = access
        self._tell = tell
        self._copied = copied
        self._found: asyncio.Queue[str] = asyncio.Queue()
        self._known: set[str] = set()
        self._caught_up: set[str] = set()

    def find(self, job: str) -> None:
        """A JOB that was open when the board was asked for its JOBs is captured."""
        if job not in self._known:
            self._known.add(job)
            self._found.put_nowait(job)

    def catch_up(self, job: str) -> None:
        """All that the JOB held has come."""
        self._caught_up.add(job)

    async def run(self) -> None:
        """Tell of each JOB that is found. Runs until it is cancelled."""
        while True:
            await self._tell_of(await self._found.get())

    async def measure(self, job: str, patience_s: float = PATIENCE_AT_END_S) -> JobMeasure | None:
        """How much a JOB holds now; None where the board does not tell."""
        try:
            async with asyncio.timeout(patience_s), connected(self._address, self._access) as channel:
                return await channel.measure(job)
        except (UnreachableError, TimeoutError):
            return None

    async def _tell_of(self, job: str) -> None:
        before = await self._copied(job)
        held = await self.measure(job, PATIENCE_S)
        if held is None or held.bytes - before < LEAST_BYTES:
            return
        self._tell(f"{job} holds {_amount(held)} already: copying that first. --from-now leaves it out")
        begun = await self._copied(job)
        copied, measured_s = begun, 0.0
        # What is held already is compared first, which takes its time.
        while copied - begun < LEAST_BYTES and job not in self._caught_up:
            await asyncio.sleep(MEASURE_S)
            copied, measured_s = await self._copied(job), measured_s + MEASURE_S
        if job not in self._caught_up:
            left_s = (held.bytes - copied) / (copied - begun) * measured_s
            rate = (copied - begun) / measured_s / BYTES_PER_MB
            self._tell(f"{job}: about {max(left_s, 0):,.0f} s to copy it, at {rate:,.1f} MB/s")


def _amount(held: JobMeasure) -> str:
    least = "" if held.is_all else "more than "
    return f"{least}{_inferences(held.inferences)} ({held.bytes / BYTES_PER_MB:,.1f} MB)"


def not_copied_text(left: int | None, job: str) -> str:
    """How many inferences of a JOB were left behind; None: not known."""
    return f"{'some inferences' if left is None else _inferences(left)} of {job} not copied"


def _inferences(count: int) -> str:
    return "1 inference" if count == 1 else f"{count:,} inferences"
