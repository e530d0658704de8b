"""What is to run on a board: the daemon, with wheels for the board's Python."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from profagent import __version__
from profagent.commands.board_wheels import fetch_wheels
from profagent.deploy.daemon_tree import DaemonTree, launcher, own_packages, wheel_files

if TYPE_CHECKING:
    from pathlib import Path

    from profagent.deploy.wheels import BoardPython


async def system_version(python: BoardPython, wheelhouse: Path | None = None) -> DaemonTree:
    """The version directory for a board's own Python. Raises ProfagentError."""
    wheels = await fetch_wheels(python, wheelhouse)
    return await asyncio.to_thread(
        lambda: DaemonTree.of(__version__, launcher(python.path), {**own_packages(), **wheel_files(wheels)})
    )
