"""Removing what was deployed to a board: all but the JOBs."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

from profagent.commands.boards_file import BoardsFile
from profagent.commands.visiting import visited
from profagent.deploy.plan import check_service, is_deployed
from profagent.deploy.steps import lost_root, named_roots, removed
from profagent.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from profagent.commands.deploying import DeployOptions

__all__ = ["remove"]


async def remove(options: DeployOptions, show: Callable[[str], None]) -> bool:
    """Stop the service and remove its files, on the board and from boards.toml; whether there was anything.

    Raises UsageError, also where JOBs are among what would be removed or the service starts another deployment's
    daemon, UnreachableError, ProfagentError.
    """
    async with visited(options, show) as visit:
        facts, layout = visit.facts, options.layout
        if not is_deployed(facts, layout):
            return False
        check_service(facts, layout)
        own = tomllib.loads(facts.files.get(layout.config, "")).get("roots", ())
        lost = lost_root(layout, visit.service, (*own, *named_roots(facts.files, layout)))
        if lost is not None:
            raise UsageError(f"JOBs below {lost} would be removed, too", hint="move them elsewhere first")
        show(f"change   remove what was deployed below {layout.prefix}, its service and {layout.settings}")
        if not options.is_dry:
            async with visit.alone():
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
