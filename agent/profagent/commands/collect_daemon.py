"""The daemon that serves what a collected program records: the board's own, or a temporary one."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

from profagent.collect.roots_steps import registered, unregistered
from profagent.commands.tunnelling import OverSsh, reached
from profagent.errors import ProfagentError, UnreachableError
from profagent.link.channel import connected
from profagent.link.credentials import Access, full_address, is_local

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from profagent.collect.place import Place
    from profagent.commands.boards_file import BoardEntry
    from profagent.commands.patient_ssh import PatientSsh
    from profagent.deploy.layout import Layout
    from profagent.ssh.passwords import Asker

__all__ = ["CollectDaemon"]

# A daemon that is told of a root serves it at once; it may be busy.
_ROOT_S = 15.0
_LOOK_S = 0.3


class CollectDaemon:
    """How the JOBs below a run's output directory are reached; `board` is what links call the board."""

    def __init__(
        self, ssh: PatientSsh, place: Place, board: str, entry: BoardEntry | None, layout: Layout, asker: Asker
    ) -> None:
        self._ssh = ssh
        self._output = place.output
        self._state = f"{place.own}/state"
        self._board = board
        self._entry = entry
        self._layout = layout
        self._asker = asker

    @asynccontextmanager
    async def serving(
        self, bundle: Path | None, consumer: str, *, releases: bool, tell: Callable[[str], None], stop: asyncio.Event
    ) -> AsyncIterator[Access]:
        """How to reach the installed daemon, where it serves the directory or may be told to; else a temporary one.

        That deletes what `consumer` has when it `releases`. Raises ProfagentError, UnreachableError.
        """
        async with AsyncExitStack() as stack:
            access = await self._installed(stack, tell, stop)
            if access is None:
                release = ("--retain", "delivered", "--retain-for", consumer) if releases else ()
                settings = ("--state", self._state, *release)
                over = OverSsh((self._output,), bundle, settings, is_own=True, asker=self._asker)
                access = await stack.enter_async_context(reached([self._board], Access(), over, tell, stop))
            yield access

    async def _installed(
        self, stack: AsyncExitStack, tell: Callable[[str], None], stop: asyncio.Event
    ) -> Access | None:
        """None where there is none that serves the directory."""
        try:
            access = await self._way(stack, tell, stop)
            if access is None:
                return None
            if self._is_below(await self._roots(access)):
                return access
            if await self._register(stack) and await self._has_taken(access):
                tell(f"{self._output} is a root of the board's daemon for this run")
                return access
        except UnreachableError as error:
            tell(f"the daemon that runs there is not used: {error}")
        return None

    async def _way(self, stack: AsyncExitStack, tell: Callable[[str], None], stop: asyncio.Event) -> Access | None:
        """Directly to a board that has a name and an address; else through a tunnel, where one listens on loopback."""
        address = full_address("127.0.0.1" if self._entry is None else self._entry.address)
        if self._entry is not None and not is_local(address):
            return Access(known={self._board: self._entry.known})
        if not await self._ssh.remote.answers(address):
            return None
        return await stack.enter_async_context(reached([self._board], Access(), OverSsh(asker=self._asker), tell, stop))

    async def _register(self, stack: AsyncExitStack) -> bool:
        ran = await self._ssh.remote.run(registered(self._layout.prefix, self._layout.roots_d, self._output))
        if ran.status != 0:
            return False
        stack.push_async_callback(self._unregister)
        return True

    async def _unregister(self) -> None:
        """What stays when the link is lost is replaced, and taken away, by the next collect."""
        with suppress(ProfagentError):
            await self._ssh.remote.run(unregistered(self._layout.roots_d))

    async def _has_taken(self, access: Access) -> bool:
        until = asyncio.get_running_loop().time() + _ROOT_S
        while not self._is_below(await self._roots(access)):
            if asyncio.get_running_loop().time() > until:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    async def _roots(self, access: Access) -> Sequence[str]:
        async with connected(self._board, access) as channel:
            return (await channel.describe()).roots

    def _is_below(self, roots: Sequence[str]) -> bool:
        return any(f"{self._output}/".startswith(f"{root.rstrip('/')}/") for root in roots)
