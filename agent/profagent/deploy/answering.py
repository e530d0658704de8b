"""Waiting until a daemon that was just started answers, as this host's other commands will call it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from profagent.errors import RefusedError, UnreachableError
from profagent.link.channel import connected
from profagent.link.credentials import Access, KnownBoard

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from profagent.deploy.settings import BoardSettings
    from profagent.deploy.units import Service
    from profagent.link.boards_file import BoardEntry
    from profagent.link.messages import Board
    from profagent.ssh.remote import Remote

__all__ = ["answered", "is_active"]

# An interpreter on a small board takes its time.
LIMIT_S = 90.0
_BETWEEN_S = 1.0
# One that ended once may have been started again meanwhile.
DEAD = 3


async def answered(remote: Remote, service: Service, settings: BoardSettings, entry: BoardEntry, keys: Path) -> Board:
    """Who answers: over mutual TLS, or through a tunnel where the daemon listens on the board alone.

    It is waited for as long as the board says that it runs. Raises RefusedError, UnreachableError.
    """

    async def runs() -> bool:
        return await is_active(remote, service)

    if settings.has_tls:
        return await _describe(entry.known, Access(keys, known={entry.name: entry.known}), runs)
    async with remote.forward(settings.own_address) as local:
        known = KnownBoard(entry.name, local, entry.uuid)
        return await _describe(known, Access(known={entry.name: known}), runs)


async def is_active(remote: Remote, service: Service) -> bool:
    """Whether the board says that the service runs. Raises UnreachableError."""
    return (await remote.run(service.is_active)).status == 0


async def _describe(known: KnownBoard, access: Access, runs: Callable[[], Awaitable[bool]]) -> Board:
    until = asyncio.get_running_loop().time() + LIMIT_S
    found_dead = 0
    while True:
        try:
            async with connected(known.name, access) as channel:
                return await channel.describe()
        except RefusedError:
            raise
        except UnreachableError:
            found_dead = 0 if await runs() else found_dead + 1
            if found_dead == DEAD or asyncio.get_running_loop().time() > until:
                raise
        await asyncio.sleep(_BETWEEN_S)
