"""A client that comes while JOBs are still being looked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from profagent_wire.v1 import board_pb2 as wire
from profagentd.access import Caller, Role
from profagentd.follow.client import SILENCE_S, ClientStream
from profagentd.follow.table import Quota
from tests.daemon.clocks import FakeClock
from tests.daemon.wire_client import open_message

MANY = 10


class SharedClock(FakeClock):
    """Goes on to whichever sleeper is to wake first."""

    def __init__(self) -> None:
        super().__init__()
        self._wakes: list[float] = []

    async def sleep(self, delay_s: float) -> None:
        wake = self.now + delay_s
        self._wakes.append(wake)
        while self.now < wake:
            await asyncio.sleep(0)
            if wake == min(self._wakes):
                self.now = max(self.now, wake)
        self._wakes.remove(wake)


class FoundError(Exception):
    """The JOBs have been found."""


class SlowSite:
    """A daemon that is ready when `MANY` heartbeats have been sent."""

    retention = SimpleNamespace(space=SimpleNamespace(free_bytes=[]))

    def __init__(self) -> None:
        self.clock = SharedClock()
        self.quota = Quota()
        self.heartbeats = 0
        self.has_beaten = asyncio.Event()

    @property
    def board(self) -> None:
        raise FoundError

    def describe(self) -> wire.Description:
        return wire.Description()

    async def ready(self) -> None:
        await self.has_beaten.wait()

    async def write(self, message: wire.ServerMessage) -> None:
        self.heartbeats += message.HasField("heartbeat")
        if self.heartbeats == MANY:
            self.has_beaten.set()


async def test_a_client_hears_heartbeats_until_the_jobs_are_found() -> None:
    async def incoming() -> AsyncIterator[wire.ClientMessage]:
        yield open_message()
        await asyncio.Event().wait()

    site = SlowSite()
    began = site.clock.now
    conversation = ClientStream(site, incoming(), site.write, Caller("ci", "", Role.VIEWER))  # type: ignore[arg-type]
    with pytest.raises(FoundError):
        await conversation.run()
    assert site.heartbeats >= MANY
    assert site.clock.now - began > SILENCE_S
