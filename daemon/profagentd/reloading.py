"""Other settings for a daemon that goes on serving: what can change does, what cannot is named in the log."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import fields
from typing import TYPE_CHECKING, Callable

from profagentd.named_roots import lie_together, real_roots

if TYPE_CHECKING:
    from profagentd.config import DaemonConfig, Examined
    from profagentd.custody import Custody
    from profagentd.notify import Notifier
    from profagentd.servicer import Servicer
    from profagentd.watch import Watch

_LOGGER = logging.getLogger(__name__)

_RETENTION = frozenset(("retain", "retain_for", "min_free", "delete_undelivered"))
_LIVE = frozenset(("roots", "roots_d", "acl_json", "log_level")) | _RETENTION


class Reloading:
    """Reads the settings anew when it is asked to."""

    def __init__(
        self, config: DaemonConfig, reread: Callable[[], Examined], watch: Watch, custody: Custody, servicer: Servicer
    ) -> None:
        self._config = config  # as it was at the start: what takes a restart is told until there was one
        self._reread = reread
        self._watch = watch
        self._custody = custody
        self._servicer = servicer

    async def run(self, asked: asyncio.Event, notifier: Notifier, status: Callable[[], str]) -> None:
        """Read them whenever that is asked for, until cancelled."""
        while True:
            await asked.wait()
            asked.clear()
            notifier.reloading()
            await self.reload()
            notifier.ready(status())

    async def reload(self) -> None:
        """Read them now; with a mistake in them everything stays as it was."""
        examined = await asyncio.to_thread(self._reread)
        for mistake in examined.mistakes:
            _LOGGER.error("%s; %s", mistake, mistake.hint)
        if examined.mistakes:
            _LOGGER.error("the settings stay as they were")
            return
        roots = await asyncio.to_thread(real_roots, examined.config.roots)
        self._apply(examined.config, roots)
        _LOGGER.info("the settings were read again")

    def _apply(self, config: DaemonConfig, roots: list[bytes]) -> None:
        logging.getLogger().setLevel(config.log_level.upper())
        self._watch.acl_json = config.acl_json
        if config.policy != self._custody.policy:
            self._custody.change_policy(config.policy)
            # Clients come back, and tell anew what they have.
            self._servicer.close("another retention holds from now on")
        self._change_roots(roots)
        for key in (field.name for field in fields(config) if field.name not in _LIVE):
            if getattr(config, key) != getattr(self._config, key):
                _LOGGER.warning("another %s takes a restart", key)

    def _change_roots(self, roots: list[bytes]) -> None:
        served = list(self._watch.roots)
        for root in served:
            if root not in roots:
                _LOGGER.warning("%s is a root still: to leave it out takes a restart", os.fsdecode(root))
        for root in roots:
            if root in served:
                continue
            if any(lie_together(root, other) for other in served):
                _LOGGER.warning("%s lies together with a root: to change this takes a restart", os.fsdecode(root))
            else:
                self._watch.roots.add(root)
                _LOGGER.info("%s is a root from now on", os.fsdecode(root))
