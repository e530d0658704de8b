"""The paths of the daemon and of its settings on a board."""

from __future__ import annotations

import re

from profagent.errors import UsageError

DEFAULT_PREFIX = "/opt/profagent"
# Fit for a shell, a unit file and an init script without quotes.
_PATH = re.compile(r"(/[A-Za-z0-9_+-][A-Za-z0-9._+-]*)+")
_KEY_FILES = ("ca.pem", "board.pem", "revoked.txt", "board.key")


class Layout:
    """Paths on a board: the program's below the prefix, all others where a system has them (FHS).

    With another prefix than the usual one all of them are below it: nothing but the service's own files is elsewhere,
    and who is not root can deploy there.
    """

    def __init__(self, prefix: str = DEFAULT_PREFIX) -> None:
        """Raises UsageError."""
        if not _PATH.fullmatch(prefix):
            raise UsageError(
                f"--prefix {prefix!r}: no absolute path of letters, digits and . _ + -",
                hint="take one such as /opt/profagent",
            )
        self.prefix = prefix
        # Whether the prefix is the one that the daemon and its service know by themselves.
        self.is_usual = prefix == DEFAULT_PREFIX
        self.settings = "/etc/profagent" if self.is_usual else f"{prefix}/etc"
        self.state = "/var/lib/profagentd" if self.is_usual else f"{prefix}/state"
        self.run = "/var/run" if self.is_usual else f"{prefix}/run"
        self.log = "/var/log/profagentd.log" if self.is_usual else f"{prefix}/profagentd.log"
        # Below `versions` are version directories; `current` leads to the one that runs.
        self.versions, self.current = f"{prefix}/versions", f"{prefix}/current"
        # What the host has not confirmed yet, and the program that changes what is deployed.
        self.trial, self.setup = f"{prefix}/trial.json", f"{prefix}/setup.py"
        self.config, self.board_id = f"{self.settings}/profagentd.toml", f"{self.settings}/board-id"
        # In roots.d programs name theirs.
        self.keys, self.roots_d = f"{self.settings}/keys", f"{self.settings}/roots.d"
        self.files = (self.config, self.board_id, *(f"{self.keys}/{name}" for name in _KEY_FILES))
