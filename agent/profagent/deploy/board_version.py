"""What is to run on a board: the daemon with wheels for the board's Python, or a bundle that has its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from profagent import __version__
from profagent.deploy.board_wheels import fetch_wheels
from profagent.deploy.bundle.archive import unpack
from profagent.deploy.daemon_tree import DaemonTree, launcher, own_packages, wheel_files
from profagent.deploy.plan import choose_python

if TYPE_CHECKING:
    from pathlib import Path

    from profagent.deploy.survey import BoardFacts
    from profagent.deploy.wheels import BoardPython


async def system_version(python: BoardPython, wheelhouse: Path | None = None) -> DaemonTree:
    """The version directory for a board's own Python. Raises ProfagentError."""
    wheels = await fetch_wheels(python, wheelhouse)
    return await asyncio.to_thread(
        lambda: DaemonTree.of(__version__, launcher(python.path), {**own_packages(), **wheel_files(wheels)})
    )


async def chosen_version(facts: BoardFacts, wish: str, bundle: Path | None, wheelhouse: Path | None) -> DaemonTree:
    """The version directory for a board: of a bundle, or for its own Python. Raises ProfagentError, UsageError."""
    bundled = await asyncio.to_thread(unpack, bundle) if bundle else None
    if choose_python(facts, wish, bundled.about["machine"] if bundled else None) == "bundled":
        assert bundled is not None, "it was chosen"
        return bundled
    assert facts.python is not None, "it was chosen"
    return await system_version(facts.python, wheelhouse)
