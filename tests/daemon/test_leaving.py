"""A daemon that is asked to end as soon as it has told a client of its JOBs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from profagent_wire.v1 import board_pb2 as wire
from profagentd.access import Caller, Role
from profagentd.follow.client import CHOICE_S, ClientStream
from profagentd.follow.registry import JobRegistry
from profagentd.follow.table import Quotas
from profagentd.retention.losses import KeptLosses
from profagentd.sources.job import Place
from tests.daemon.clocks import FakeClock
from tests.daemon.daemon_process import make_job
from tests.daemon.waiting import PATIENCE_S, until
from tests.daemon.wire_client import message, open_message


class StillClock(FakeClock):
    """Time goes on only when the test says so; whoever sleeps is not woken."""

    async def sleep(self, delay_s: float) -> None:
        await asyncio.Event().wait()


class Site:
    """A daemon with one JOB, and a client of it: what was said to the client, by kind."""

    roots: tuple[bytes, ...] = ()

    def __init__(self, root: Path) -> None:
        self.clock = StillClock()
        self.quotas = Quotas()
        self.board = JobRegistry(self.clock, 60.0)
        self.board.found(Place(bytes(root), make_job(root).name.encode()), 1, 1, is_scanned=False)
        self.retention = SimpleNamespace(losses=KeptLosses(None))
        self.said: list[str | None] = []
        caller = Caller("ci", "", Role.VIEWER)
        self.conversation = ClientStream(self, self._incoming(), self._write, caller)  # type: ignore[arg-type]
        self.chooses = True

    async def ready(self) -> None:
        return

    def describe(self) -> wire.Description:
        return wire.Description()

    async def _write(self, said: wire.ServerMessage) -> None:
        self.said.append(said.WhichOneof("message"))

    async def _incoming(self) -> AsyncIterator[wire.ClientMessage]:
        """Of a client that chooses a JOB a moment after it was told of it, or chooses none."""
        yield open_message()
        await self._until("jobs_listed")
        self.conversation.drain()
        await asyncio.sleep(0.1)
        if self.chooses:
            yield message(select=wire.Select(follow=[1]))
            await self._until("announced")
            yield message(holdings=wire.Holdings(logs=[wire.Holding(handle=1)]))
        else:
            assert "goodbye" not in self.said
            self.clock.advance(CHOICE_S)
            self.conversation.drain()
        await self._until("goodbye")

    async def _until(self, kind: str) -> None:
        await until(lambda: bool({kind, "goodbye"} & {*self.said}))


@pytest.mark.parametrize("chooses", [True, False])
async def test_a_client_has_a_moment_to_choose_what_comes_before_the_goodbye(*, chooses: bool, tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.chooses = chooses
    await asyncio.wait_for(site.conversation.run(), PATIENCE_S)
    sent = ["announced", "batch"] if chooses else []
    assert [kind for kind in site.said if kind != "job_status"] == ["welcome", "jobs_listed", *sent, "goodbye"]
