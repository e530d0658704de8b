"""Removing what was deployed to a board: all but the JOBs."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

from profagent.deploy.plan import is_deployed
from profagent.deploy.steps import lost_root, named_roots, removed
from profagent.deploy.units import left_behind
from profagent.deploy.visiting import visited
from profagent.errors import UsageError
from profagent.keys.keys import Keys
from profagent.link.boards_file import BoardsFile
from profagent.link.credentials import CA

if TYPE_CHECKING:
    from collections.abc import Callable

    from profagent.deploy.deploying import DeployOptions

__all__ = ["remove"]


async def remove(options: DeployOptions, show: Callable[[str], None]) -> bool:
    """Stop the service and remove its files, on the board and from boards.toml; whether there was anything.

    Where the service starts another deployment's daemon, it and the name stay. Raises UsageError, also where JOBs are
    among what would be removed, UnreachableError, ProfagentError.
    """
    async with visited(options, show) as visit:
        facts, layout = visit.facts, options.layout
        if not is_deployed(facts, layout):
            return False
        left = left_behind(layout, facts.files)
        service, kept = left or (visit.service, ())
        own = tomllib.loads(facts.files.get(layout.config, "")).get("roots", ())
        lost = lost_root(layout, service, (*own, *named_roots(facts.files, layout)))
        if lost is not None:
            raise UsageError(f"JOBs below {lost} would be removed, too", hint="move them elsewhere first")
        what = "" if left else ", its service"
        show(f"change   remove what was deployed below {layout.prefix}{what} and {layout.settings}")
        if not options.is_dry:
            async with visit.alone():
                # It may have been interrupted before there was a service.
                await visit.remote.run(service.stop)
                await visit.remote.must(removed(layout, service, kept))
            if not left:
                _forget(visit.entry.uuid, Keys(options.keys))
        return True


def _forget(identity: str, keys: Keys) -> None:
    # Deployed again, the board has a new identity, and needs a certificate of that.
    if (keys.folder / CA).exists():
        issued = [each.certificate for each in keys.entries() if not each.revoked]
        for certificate in issued:
            if certificate.identity == identity:
                keys.revoke(certificate.fingerprint)
    file = BoardsFile()
    for entry in file.entries().values():
        if entry.uuid == identity:
            file.remove(entry.name)
