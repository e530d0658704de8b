"""What a daemon that is to end still does for a client that takes nothing: it waits for 5 s of its clock, and ends."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from tests.daemon.clocks import FastClock
from tests.daemon.daemon_process import make_job
from tests.daemon.own_daemon import own_daemon
from tests.daemon.wire_client import PATIENCE_S, following


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
