"""Whom to log in to: `HOST`, `USER@HOST`, `ssh://USER@HOST:PORT`, or an alias of ~/.ssh/config."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from profagent.errors import UsageError

_URL = re.compile(r"ssh://(?:(?P<user>[^@/]+)@)?(?P<host>\[[^\]]+\]|[^:/\[\]]+)(?::(?P<port>\d{1,5}))?/?")
_PLAIN = re.compile(r"(?:(?P<user>.+)@)?(?P<host>[^@\s/-][^@\s/]*)(?P<port>(?!))?")
_MOST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Target:
    """A host, or an alias for one; user and port where they were named."""

    host: str
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        """The target as people write it."""
        named = f"{self.user}@{self.host}" if self.user else self.host
        return f"{named} port {self.port}" if self.port else named

    @classmethod
    def parse(cls, text: str) -> Self:
        """What a command line names. Raises UsageError."""
        match = (_URL if text.startswith("ssh://") else _PLAIN).fullmatch(text)
        if match is None or int(match["port"] or 0) > _MOST_PORT:
            raise UsageError(
                f"{text!r} is nobody to log in to",
                hint="write USER@HOST, ssh://USER@HOST:PORT, or a Host of ~/.ssh/config",
            )
        return cls(match["host"].strip("[]"), match["user"], int(match["port"]) if match["port"] else None)
