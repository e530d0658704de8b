"""~/.ssh/config and /etc/ssh/ssh_config, read by asyncssh's parser, with what it knows and asyncssh leaves out."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from asyncssh.config import SSHClientConfig

if TYPE_CHECKING:
    from profagent.ssh.target import Target

__all__ = ["Config", "config_files", "named", "read_config"]

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")


class Config(SSHClientConfig):
    """What the files say of one target, with settings that asyncssh passes over: profagent heeds them itself."""

    _percent_expand = SSHClientConfig._percent_expand | {"UserKnownHostsFile"}  # noqa: SLF001 - the parser's own tables
    _handlers = {  # noqa: RUF012 - as in the class that is extended
        **SSHClientConfig._handlers,  # noqa: SLF001 - as above
        "hashknownhosts": ("HashKnownHosts", SSHClientConfig._set_bool),  # noqa: SLF001 - as above
        "stricthostkeychecking": ("StrictHostKeyChecking", SSHClientConfig._set_string),  # noqa: SLF001 - as above
    }

    def _set_tokens(self) -> None:
        """The tokens of ssh_config(5) that asyncssh does not have, too."""
        super()._set_tokens()
        self._tokens["k"] = cast("str | None", self.get("HostKeyAlias")) or self._tokens["h"]
        self._tokens["j"] = cast("str | None", self.get("ProxyJump")) or ""


def read_config(target: Target) -> Config:
    """What the files say of a target. Raises ValueError, which names file and line, and OSError."""
    given = (target.user or (), target.host, target.port or ())
    return cast("Config", Config.load(None, config_files(), False, False, False, getpass.getuser(), *given))


def named(target: Target) -> dict[str, str | int]:
    """What the command line says itself, which wins over the files."""
    given: dict[str, str | int | None] = {"username": target.user, "port": target.port}
    return {key: value for key, value in given.items() if value is not None}


def config_files() -> list[Path]:
    """The files that there are; what the first says of a setting holds."""
    return [file for file in (Path("~/.ssh/config").expanduser(), SYSTEM_CONFIG) if file.is_file()]
