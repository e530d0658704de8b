"""What ~/.ssh/config and /etc/ssh/ssh_config say of a target."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

import asyncssh

from profagent.errors import UsageError
from profagent.ssh.target import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
DEFAULT_KEYS = tuple(f"~/.ssh/id_{kind}" for kind in ("rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk"))
GLOBAL_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
# Without a ConnectTimeout: for all up to the login, questions to people apart.
CONNECT_S = 15.0
# A link that is dead is found after some of these without an answer, where ServerAliveInterval says nothing.
ALIVE_S = 5.0


@dataclass(frozen=True, slots=True)
class Settings:
    """A target with its settings filled in."""

    target: Target
    host: str
    """The name or address that is connected to."""
    port: int
    user: str
    jumps: tuple[Target, ...]
    known_as: str
    """The name under which known_hosts has it, without a port."""
    has_alias: bool
    """Whether that name is a HostKeyAlias, which goes without the port."""
    known_hosts: tuple[Path, ...]
    """The files in which its key may stand; the first is written to."""
    has_key_kinds: bool
    """Whether HostKeyAlgorithms is set."""
    keys: tuple[Path, ...]
    """The private keys that there are: of IdentityFile, else of those that `ssh` looks for."""
    connect_s: float
    alive_s: float

    @classmethod
    async def read(cls, target: Target) -> Self:
        """What the files say. Raises UsageError for a file that cannot be understood."""
        try:
            # Without keys: a missing or encrypted one is no reason not to know the rest.
            options = await asyncssh.SSHClientConnectionOptions.construct(
                host=target.host, **named(target), config=config_files(), client_keys=None, known_hosts=None
            )
        except (ValueError, OSError, asyncssh.Error) as error:
            raise UsageError(f"the SSH configuration for {target}: {error}", hint="mend ~/.ssh/config") from error
        return await asyncio.to_thread(cls._of, target, options)

    @classmethod
    def _of(cls, target: Target, options: asyncssh.SSHClientConnectionOptions) -> Self:
        config = options.config
        alias = cast("str | None", config.get("HostKeyAlias"))
        jumps = cast("str | None", config.get("ProxyJump"))
        users = cast("list[str]", config.get("UserKnownHostsFile", ["~/.ssh/known_hosts", "~/.ssh/known_hosts2"]))
        others = cast("Sequence[str]", config.get("GlobalKnownHostsFile", GLOBAL_KNOWN_HOSTS))
        identities = cast("Sequence[str]", config.get("IdentityFile", DEFAULT_KEYS))
        return cls(
            target,
            host=options.host,
            port=options.port,
            user=options.username,
            jumps=tuple(Target.parse_hop(hop.strip()) for hop in jumps.split(",")) if jumps else (),
            known_as=(alias or options.host).lower(),
            has_alias=alias is not None,
            known_hosts=tuple(Path(file).expanduser() for file in (*users, *others)),
            has_key_kinds=config.get("HostKeyAlgorithms") is not None,
            keys=tuple(key for key in (Path(file).expanduser() for file in identities) if key.is_file()),
            connect_s=options.connect_timeout or CONNECT_S,
            alive_s=float(options.keepalive_interval or ALIVE_S),
        )


def named(target: Target) -> dict[str, str | int]:
    """What the command line says itself, which wins over the files."""
    given: dict[str, str | int | None] = {"username": target.user, "port": target.port}
    return {key: value for key, value in given.items() if value is not None}


def config_files() -> list[Path]:
    """The files that there are; what the first says of a setting holds."""
    return [file for file in (Path("~/.ssh/config").expanduser(), SYSTEM_CONFIG) if file.is_file()]
