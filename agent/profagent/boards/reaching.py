"""Running a command on boards that are reached directly, or through tunnels."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from profagent.cli.running import run_until_stopped, tell
from profagent.errors import UsageError
from profagent.link.boards_file import BoardsFile

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Sequence

    from profagent.boards.tunnel import OverSsh
    from profagent.link.credentials import Access

T = TypeVar("T")
F = TypeVar("F", bound="Callable[..., Any]")


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
    from profagent.boards.tunnel import reached  # noqa: PLC0415 - asyncssh takes time to import

    async def through_tunnels(stop: asyncio.Event) -> T:
        async with reached(boards, access, over, tell, stop) as tunnelled:
            return await command(tunnelled, stop)

    return run_until_stopped(through_tunnels)


def via(function: F) -> F:
    """`--via ssh`, `--root DIR` and `--bundle FILE`, which the command is given as one `over`."""

    @click.option(
        "--via",
        type=click.Choice(["ssh"]),
        is_flag=False,
        flag_value="ssh",
        help="Reach the board through SSH; BOARD may be USER@HOST.",
    )
    @click.option(
        "--root",
        "roots",
        multiple=True,
        metavar="DIR",
        help="With --via ssh: start a temporary daemon for this directory of the board. May be repeated.",
    )
    @click.option(
        "--bundle",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="With --root: a file of `profagent bundle`, for a board without Python.",
    )
    @functools.wraps(function)
    def with_way(*args: Any, via: str | None, roots: tuple[str, ...], bundle: Path | None, **others: Any) -> Any:
        if roots and via is None:
            raise UsageError("--root goes with --via ssh", hint="add --via ssh, or start profagentd with --root there")
        if bundle and not roots:
            raise UsageError("--bundle goes with --root", hint="name the directories to serve, --via ssh --root DIR")
        if via is None:
            return function(*args, over=None, **others)
        from profagent.boards.tunnel import OverSsh  # noqa: PLC0415 - asyncssh takes time to import

        return function(*args, over=OverSsh(roots, bundle), **others)

    return cast("F", with_way)
