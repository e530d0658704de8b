"""Waiting until something is so, while the loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

POLL_S = 0.001
# So generous that a slow machine does not fail a test.
PATIENCE_S = 20.0
# What it may take longer than it should.
SLACK_S = 10.0


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until it is so; AssertionError when it never is."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE_S
    while not is_so():
        assert loop.time() < end, "it never was so"
        await asyncio.sleep(POLL_S)


async def run_until(work: Coroutine[object, object, None], is_so: Callable[[], bool]) -> None:
    """Let work go on until it is so."""
    running = asyncio.ensure_future(work)
    try:
        await until(is_so)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
