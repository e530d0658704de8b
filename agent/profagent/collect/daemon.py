"""The daemon that serves what a collected program records: the board's own, or a temporary one."""

from __future__ import annotations

import asyncio
import shlex
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

from profagent.boards.tunnel import OverSsh, reached
from profagent.errors import ProfagentError, UnreachableError
from profagent.link.channel import connected
from profagent.link.credentials import Access, full_address, is_local

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from profagent.collect.board_run import PatientSsh
    from profagent.collect.look import Place
    from profagent.deploy.units import Layout
    from profagent.link.boards_file import BoardEntry
    from profagent.link.messages import Board
    from profagent.ssh.passwords import Asker


_NAME = "profagent-collect.conf"


def registered(prefix: str, roots_d: str, output: str) -> str:
    """Names the directory in roots.d and has the daemon read that; exit status 3 where one may not, or none runs."""
    file, text = f"{roots_d}/{_NAME}", f"# of a `profagent collect`, which takes it away at its end\n{output}"
    own, usual = f"{prefix}/profagentd.init", "/etc/init.d/profagentd"
    return f"""[ -d {roots_d} ] && [ -w {roots_d} ] || exit 3
echo {shlex.quote(text)} >{file} || exit 3
if [ -x {own} ]; then {own} reload
elif [ -d /run/systemd/system ]; then systemctl reload profagentd
elif [ -x {usual} ]; then {usual} reload
else false
fi >/dev/null 2>&1 && exit
rm -f {file}
exit 3"""


def unregistered(roots_d: str) -> str:
    """Takes the name away; the daemon serves the directory until it is started again."""
    return f"rm -f {roots_d}/{_NAME}"


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

        Where what `consumer` has is to be deleted (`releases`), one that does so while it comes. Raises ProfagentError,
        UnreachableError.
        """
        deleting_for = consumer if releases else ""
        async with AsyncExitStack() as stack:
            access = await self._installed(stack, deleting_for, tell, stop)
            if access is None:
                release = ("--retain", "delivered", "--retain-for", deleting_for) if deleting_for else ()
                settings = ("--state", self._state, *release)
                prefix = "" if self._layout.is_usual else self._layout.prefix
                over = OverSsh((self._output,), bundle, settings, is_own=True, asker=self._asker, prefix=prefix)
                try:
                    access = await stack.enter_async_context(reached([self._board], Access(), over, tell, stop))
                except UnreachableError:
                    raise
                except ProfagentError as error:
                    # One that does not delete serves as well.
                    access = await self._installed(stack, "", tell, stop) if deleting_for else None
                    if access is None:
                        raise
                    tell(f"{error}: the board's own daemon serves, and what has come is deleted at the end")
            yield access

    async def _installed(
        self, stack: AsyncExitStack, deleting_for: str, tell: Callable[[str], None], stop: asyncio.Event
    ) -> Access | None:
        """None where there is none that serves the directory, and deletes what a consumer has where one is named."""
        try:
            access = await self._way(stack, tell, stop)
            if access is None:
                return None
            board = await self._described(access)
            if deleting_for and not _deletes(board, deleting_for):
                return None
            if self._is_below(board.roots):
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
        while not self._is_below((await self._described(access)).roots):
            if asyncio.get_running_loop().time() > until:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    async def _described(self, access: Access) -> Board:
        async with connected(self._board, access) as channel:
            return await channel.describe()

    def _is_below(self, roots: Sequence[str]) -> bool:
        return any(f"{self._output}/".startswith(f"{root.rstrip('/')}/") for root in roots)


def _deletes(board: Board, consumer: str) -> bool:
    kept = board.retention
    return kept is not None and kept.policy == "delivered" and consumer in kept.retain_for
