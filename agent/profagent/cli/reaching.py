"""Running a command on boards that are reached directly, or through tunnels."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from profagent.cli.running import run_until_stopped, tell
from profagent.commands.boards_file import BoardsFile

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Sequence

    from profagent.commands.tunnelling import OverSsh
    from profagent.link.credentials import Access

T = TypeVar("T")


def run_on_boards(
    boards: Sequence[str],
    access: Access,
    over: OverSsh | None,
    command: Callable[[Access, asyncio.Event], Awaitable[T]],
) -> T:
    """Run a command as `run_until_stopped` does, with the access by which the boards are reached.

    `over`: all through tunnels; without it only those to which nothing else leads.
    """
    if over is None and not BoardsFile().behind_ssh(boards):
        return run_until_stopped(lambda stop: command(access, stop))
    from profagent.commands.tunnelling import reached  # noqa: PLC0415 - asyncssh takes time to import

    async def through_tunnels(stop: asyncio.Event) -> T:
        async with reached(boards, access, over, tell, stop) as tunnelled:
            return await command(tunnelled, stop)

    return run_until_stopped(through_tunnels)
