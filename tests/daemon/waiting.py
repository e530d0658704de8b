"""Waiting until something is so, while the loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

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
