"""What a daemon that is to end still does for a client that takes nothing: it waits for 5 s of its clock, and ends."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from profagentd.loop import SystemClock
from tests.daemon.clocks import FastClock
from tests.daemon.daemon_process import AICORE_DONE, make_job
from tests.daemon.own_daemon import own_daemon
from tests.daemon.wire_client import PATIENCE_S, following

LOG = "aicore.0.m.3.0.1.1.1"
# Far more than gRPC and the kernel hold for a client that takes nothing.
SIZE_BYTES = 32 << 20
DRAIN_S = 5.0


class HeldClock(SystemClock):
    """A clock whose wait for clients ends when it is let go; nothing else waits for so long once the end has begun."""

    def __init__(self) -> None:
        self.is_ending = False
        self.asked, self.let_go = asyncio.Event(), asyncio.Event()

    async def sleep(self, delay_s: float) -> None:
        """Wait."""
        if not (self.is_ending and delay_s == DRAIN_S):
            await super().sleep(delay_s)
            return
        self.asked.set()
        await self.let_go.wait()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A JOB with more than a client can be sent unasked."""
    job = make_job(tmp_path / "root")
    with (job / "data" / LOG).open("wb") as file:
        file.truncate(SIZE_BYTES)
    (job / "data" / f"{LOG}.done").write_bytes(AICORE_DONE % SIZE_BYTES)
    return tmp_path / "root"


async def test_a_client_that_takes_nothing_is_waited_for_5_s_and_no_longer(root: Path) -> None:
    clock = HeldClock()
    async with own_daemon(root, clock) as (address, daemon), following(address) as client:
        await client.start()
        await client.until(lambda: client.has(LOG))
        clock.is_ending = True
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(clock.asked.wait(), PATIENCE_S)
        assert not daemon.done()
        clock.let_go.set()
        await asyncio.wait_for(daemon, PATIENCE_S)


async def test_a_client_that_does_not_answer_holds_it_up_for_a_while_only(tmp_path: Path) -> None:
    make_job(tmp_path)
    async with own_daemon(tmp_path, FastClock()) as (address, daemon):
        async with following(address) as client:
            client.answers = False
            await client.start()
            await client.until(lambda: client.is_listed)
            os.kill(os.getpid(), signal.SIGTERM)
            await client.until_ended()
            assert client.goodbye is not None
        await asyncio.wait_for(daemon, PATIENCE_S)
