"""Where things stand on a board."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from profagent.errors import UsageError

__all__ = ["DEFAULT_PREFIX", "Layout"]

DEFAULT_PREFIX = "/opt/profagent"
# Fit for a shell, a unit file and an init script without quotes.
_PATH = re.compile(r"(/[A-Za-z0-9_+-][A-Za-z0-9._+-]*)+")
# Of a file system that is always there, can be written to, and is not the prefix's.
_BOARD_LOCK = "/var/run/profagentd.deploying"
_KEY_FILES = ("ca.pem", "board.pem", "revoked.txt", "board.key")


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths on a board: the program's below the prefix, all others where a system has them (FHS).

    With another prefix than the usual one all of them are below it: nothing but the service's own files is elsewhere,
    and who is not root can deploy there.
    """

    prefix: str
    settings: str
    """The directory of profagentd.toml, board-id, keys/ and roots.d/."""
    state: str
    run: str
    log: str

    @classmethod
    def of(cls, prefix: str = DEFAULT_PREFIX) -> Self:
        """The paths for a prefix. Raises UsageError."""
        if not _PATH.fullmatch(prefix):
            raise UsageError(
                f"--prefix {prefix!r}: no absolute path of letters, digits and . _ + -",
                hint="take one such as /opt/profagent",
            )
        if prefix == DEFAULT_PREFIX:
            return cls(prefix, "/etc/profagent", "/var/lib/profagentd", "/var/run", "/var/log/profagentd.log")
        return cls(prefix, f"{prefix}/etc", f"{prefix}/state", f"{prefix}/run", f"{prefix}/profagentd.log")

    @property
    def is_usual(self) -> bool:
        """Whether the prefix is the one that the daemon and its service know by themselves."""
        return self.prefix == DEFAULT_PREFIX

    @property
    def versions(self) -> str:
        """The directory of version directories."""
        return f"{self.prefix}/versions"

    @property
    def current(self) -> str:
        """The link to the version that runs."""
        return f"{self.prefix}/current"

    @property
    def trial(self) -> str:
        """The file of what the host has not confirmed yet."""
        return f"{self.prefix}/trial.json"

    @property
    def setup(self) -> str:
        """The program that changes what is deployed."""
        return f"{self.prefix}/setup.py"

    def lock(self, init: str) -> str:
        """The file that a host has locked while it works here.

        The board's service is one, so its lock is, whatever the prefix; where there is none, another prefix than the
        usual one is for itself.
        """
        return f"{self.prefix}/deploying" if init == "none" and not self.is_usual else _BOARD_LOCK

    @property
    def config(self) -> str:
        """The daemon's settings."""
        return f"{self.settings}/profagentd.toml"

    @property
    def board_id(self) -> str:
        """The file of the board's identity."""
        return f"{self.settings}/board-id"

    @property
    def keys(self) -> str:
        """The directory of the board's certificate and key."""
        return f"{self.settings}/keys"

    @property
    def files(self) -> tuple[str, ...]:
        """The files of settings, identity, certificates and key."""
        return (self.config, self.board_id, *(f"{self.keys}/{name}" for name in _KEY_FILES))

    @property
    def roots_d(self) -> str:
        """The directory in which programs name theirs."""
        return f"{self.settings}/roots.d"

    def version(self, name: str) -> str:
        """A version directory."""
        return f"{self.versions}/{name}"
