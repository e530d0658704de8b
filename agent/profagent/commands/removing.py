"""Removing what was deployed to a board: all but the JOBs."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

from profagent.commands.boards_file import BoardsFile
from profagent.commands.deploying import visited
from profagent.deploy.steps import removed
from profagent.deploy.units import installed_init
from profagent.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from profagent.commands.deploying import DeployOptions

__all__ = ["remove"]


async def remove(options: DeployOptions, show: Callable[[str], None]) -> bool:
    """Stop the service and remove its files, on the board and from boards.toml; whether there was anything.

    Raises UsageError, also where JOBs are among what would be removed, UnreachableError, ProfagentError.
    """
    async with visited(options, show) as visit:
        facts, layout = visit.facts, options.layout
        is_there = installed_init(layout, facts.files) or facts.versions or layout.config in facts.files
        if not is_there:
            return False
        lost = (layout.versions, layout.settings, layout.state)
        for root in tomllib.loads(facts.files.get(layout.config, "")).get("roots", ()):
            if any(f"{root}/".startswith(f"{each}/") for each in lost):
                raise UsageError(f"JOBs below {root} would be removed, too", hint="move them elsewhere first")
        show(f"change   remove what was deployed below {layout.prefix}, its service and {layout.settings}")
        if not options.is_dry:
            # It may have been interrupted before there was a service.
            await visit.remote.run(visit.service.stop)
            await visit.remote.must(removed(layout, visit.service))
            _forget(visit.entry.uuid)
        return True


def _forget(identity: str) -> None:
    file = BoardsFile()
    for entry in file.entries().values():
        if entry.uuid == identity:
            file.remove(entry.name)
