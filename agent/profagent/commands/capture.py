"""Following one board: connect, choose JOBs, hand what comes to a sink, come back after the link is lost."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from profagent.commands.conversation import Conversation
from profagent.errors import UnreachableError
from profagent.link.backoff import LONGEST_S, delay_s
from profagent.link.channel import connected
from profagent.link.credentials import BY_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Callable

    from profagent.commands.sink import Observer, Sink
    from profagent.link.credentials import Access
    from profagent.link.messages import JobStatus

# A link that held for so long was a good one: the next loss is the first of its kind.
SETTLED_S = LONGEST_S


class JobChoice:
    """Which JOBs of a board are followed; what was once chosen stays so over reconnections."""

    def __init__(self, wants: Callable[[JobStatus, bool], bool]) -> None:
        """`wants(job, listed)` chooses; `listed`: the JOB was there when the first stream was opened."""
        self._wants = wants
        self._followed: set[str] = set()
        self._passed_over: set[str] = set()
        self._refused: set[str] = set()
        self.was_listed = False

    def follows(self, job: JobStatus) -> bool:
        """Whether a JOB is followed; asked each time that the board tells of it."""
        if job.name in self._followed or job.name in self._refused:
            return job.name in self._followed
        listed = not self.was_listed or job.name in self._passed_over
        chosen = self._followed if self._wants(job, listed) else self._passed_over
        chosen.add(job.name)
        return job.name in self._followed

    def refuse(self, name: str) -> None:
        """Follow a JOB no longer, whatever becomes of it."""
        self._followed.discard(name)
        self._refused.add(name)


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
        self.choice = JobChoice(wants)
        self.consumer = consumer
        self.gather_s = gather_s
        self.stop = stop
        self.is_patient = is_patient
        self.access = access

    async def run(self) -> None:
        """Follow the board; a link that is lost is tried again.

        A first connection that fails raises UnreachableError unless the capture is patient.
        """
        attempt = 0
        loop = asyncio.get_running_loop()
        while not self.stop.is_set():
            begun = loop.time()
            try:
                await self._converse()
            except UnreachableError as error:
                if not (self.choice.was_listed or self.is_patient):
                    raise
                attempt = 0 if loop.time() - begun > SETTLED_S else attempt
                wait_s = delay_s(attempt, random.uniform)
                attempt += 1
                self.observer.unlinked(error, wait_s)
                await self._pause(wait_s)

    async def _converse(self) -> None:
        async with connected(self.address, self.access) as channel, channel.follow() as stream:
            await Conversation(self, channel, stream).run()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.stop.wait()
        except TimeoutError:
            return
