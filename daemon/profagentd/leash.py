"""Serving as long as somebody holds on: at the other end of standard input, and not silent for too long."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import sys
from typing import TYPE_CHECKING

from profagentd.errors import DaemonError
from profagentd.supervisor import until_first

if TYPE_CHECKING:
    from profagentd.clock import Clock

_LOGGER = logging.getLogger(__name__)
_SOME_BYTES = 4096


async def held(leash_s: float, clock: Clock) -> None:
    """Return when standard input is closed, or silent for `leash_s`. Raises DaemonError when nobody can hold it."""
    heard = asyncio.Event()
    reader = asyncio.StreamReader()
    if not _can_be_held(sys.stdin.fileno()):
        hint = "keep a pipe, a socket or a terminal open there, e.g. through ssh"
        raise DaemonError("--leash: standard input is nothing that somebody holds", hint=hint)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        await until_first(_hear(reader, heard), _mind_silence(heard, leash_s, clock))
    finally:
        transport.close()


async def _hear(reader: asyncio.StreamReader, heard: asyncio.Event) -> None:
    while await reader.read(_SOME_BYTES):
        heard.set()
    _LOGGER.info("standard input was closed")


async def _mind_silence(heard: asyncio.Event, leash_s: float, clock: Clock) -> None:
    while True:
        heard.clear()
        await clock.sleep(leash_s)
        if not heard.is_set():
            _LOGGER.warning("nothing came on standard input for %g s", leash_s)
            return


def _can_be_held(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
