"""Having a board to oneself while it is worked on."""

from __future__ import annotations

import asyncio
import secrets
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from profagent.deploy.lock import LOST_S, held
from profagent.errors import ProfagentError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from profagent.ssh.remote import Program, Remote

__all__ = ["locked"]

_BEAT_S = LOST_S / 12
_END_S = 15.0


@asynccontextmanager
async def locked(remote: Remote, lock: str) -> AsyncIterator[str]:
    """The lock at that place of a board, by the owner's name; it ends with the context, and on the board with the link.

    Raises ProfagentError where another host has it, UnreachableError.
    """
    owner = f"{socket.gethostname()} {secrets.token_hex(8)}"
    async with remote.stream(held(lock, owner)) as program:
        try:
            await _take(program, remote.host)
            beating = asyncio.create_task(_beat(program))
            try:
                yield owner
            finally:
                beating.cancel()
                await asyncio.wait([beating])
        finally:
            await _let_go(program)


async def _take(program: Program, host: str) -> None:
    answer = (await program.read_line()).decode("utf-8", "replace").strip()
    if answer == "held":
        return
    if answer.startswith("busy"):
        raise ProfagentError(
            f"{host} is being worked on from {answer.partition(' ')[2] or 'another host'}",
            hint=f"try again when that is done; a host that was not heard for {LOST_S} s does not count",
        )
    said = (await program.complaint()).strip().splitlines()
    raise ProfagentError(
        f"nothing can be changed on {host}: {said[-1] if said else 'its shell ended'}",
        hint="log in as root, and see that the file system can be written to and has room (`df`)",
    )


async def _beat(program: Program) -> None:
    while True:
        await asyncio.sleep(_BEAT_S)
        with suppress(OSError):
            program.stdin.write(b"\n")


async def _let_go(program: Program) -> None:
    """Close its input, and wait until the lock is gone; a link that is lost takes no farewell."""
    with suppress(OSError):
        program.stdin.write_eof()
    with suppress(TimeoutError, UnreachableError):
        async with asyncio.timeout(_END_S):
            await program.wait()
