"""ProxyCommand: a program of this host through which a board is reached."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["proxied"]

_END_S = 3.0


@asynccontextmanager
async def proxied(command: str) -> AsyncIterator[socket.socket]:
    """A connection that a command of the user's shell makes, on its input and output; it ends with the context.

    As with `ssh`, what it writes to standard error is seen on this process's. Raises OSError.
    """
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            # A session of its own: a Ctrl-C is for this process, which still has a farewell to send.
            process = await asyncio.create_subprocess_exec(
                *(os.environ.get("SHELL") or "/bin/sh", "-c", command),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                start_new_session=True,
            )
        try:
            yield ours
        finally:
            ours.close()
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Its input has ended, and so should it; else it is killed with what it has started."""
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await process.wait()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
