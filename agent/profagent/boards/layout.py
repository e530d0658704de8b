"""Paths of the daemon and of its settings on a board."""

from __future__ import annotations

import re

from profagent.errors import UsageError

DEFAULT_PREFIX = "/opt/profagent"
# Paths that need no quotes in a shell, a unit file or an init script.
_PATH = re.compile(r"(/[A-Za-z0-9_+-][A-Za-z0-9._+-]*)+")
_KEY_FILES = ("ca.pem", "board.pem", "revoked.txt", "board.key")


class Layout:
    """Paths of a deployment: the program's below the prefix, the others where the FHS puts them.

    With a prefix other than DEFAULT_PREFIX, all paths but the service's files are below it, so that a user who is not
    root can deploy there.
    """

    def __init__(self, prefix: str = DEFAULT_PREFIX) -> None:
        """Raise UsageError unless the prefix is an absolute path of plain characters."""
        if not _PATH.fullmatch(prefix):
            raise UsageError(
                f"--prefix {prefix!r}: no absolute path of letters, digits and . _ + -",
                hint="take one such as /opt/profagent",
            )
        self.prefix = prefix
        # True if the prefix is the default of the daemon and of its service.
        self.is_usual = prefix == DEFAULT_PREFIX
        self.settings = "/etc/profagent" if self.is_usual else f"{prefix}/etc"
        self.state = "/var/lib/profagentd" if self.is_usual else f"{prefix}/state"
        self.run = "/var/run" if self.is_usual else f"{prefix}/run"
        self.log = "/var/log/profagentd.log" if self.is_usual else f"{prefix}/profagentd.log"
        # `versions` holds the version directories; `current` is a link to the one that runs.
        self.versions, self.current = f"{prefix}/versions", f"{prefix}/current"
        # `trial` saves what an unconfirmed deployment replaced; `setup` is the program that changes deployments.
        self.trial, self.setup = f"{prefix}/trial.json", f"{prefix}/setup.py"
        self.config, self.board_id = f"{self.settings}/profagentd.toml", f"{self.settings}/board-id"
        # In roots.d programs enter their own roots.
        self.keys, self.roots_d = f"{self.settings}/keys", f"{self.settings}/roots.d"
        self.files = (self.config, self.board_id, *(f"{self.keys}/{name}" for name in _KEY_FILES))
