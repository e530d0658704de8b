"""What ~/.ssh/config and /etc/ssh/ssh_config say of a target."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

import asyncssh

from profagent.errors import UsageError
from profagent.ssh.config import config_files, named, read_config
from profagent.ssh.target import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.ssh.config import Config

DEFAULT_KEYS = tuple(f"~/.ssh/id_{kind}" for kind in ("rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk"))
USER_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
GLOBAL_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
# What IdentityAgent is unless it is set.
_FROM_ENVIRONMENT = "SSH_AUTH_SOCK"
# What StrictHostKeyChecking means for a key that is not known: refused, asked about, taken. One that has changed is
# refused in any case.
STRICT, ASK, ACCEPT = "yes", "ask", "accept-new"
STRICTNESS = {"yes": STRICT, "true": STRICT, "ask": ASK, "accept-new": ACCEPT} | dict.fromkeys(
    ("no", "off", "false"), ACCEPT
)
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
    """The files in which its key may stand."""
    new_known_hosts: Path | None
    """The one that a new key is written to."""
    hashes_names: bool
    """Whether names are hashed there."""
    strictness: str
    """STRICT, ASK or ACCEPT."""
    key_kinds: str
    """HostKeyAlgorithms; empty where it is not set."""
    keys: tuple[Path, ...]
    """Where keys may be: IdentityFile, else what `ssh` looks for."""
    certificates: tuple[Path, ...]
    """CertificateFile: more of them than stand beside the keys."""
    only_named_keys: bool
    """Whether, of an agent's keys, those that are not named by `keys` stay out."""
    agent: str
    """The agent's socket; empty for none."""
    proxy: str | None
    """The shell command that makes the connection."""
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
            config = await asyncio.to_thread(read_config, target)
        except (ValueError, OSError, asyncssh.Error) as error:
            raise UsageError(f"the SSH configuration for {target}: {error}", hint="mend ~/.ssh/config") from error
        return await asyncio.to_thread(cls._of, target, options, config)

    @classmethod
    def _of(cls, target: Target, options: asyncssh.SSHClientConnectionOptions, config: Config) -> Self:
        alias = cast("str | None", config.get("HostKeyAlias"))
        jumps = cast("str | None", config.get("ProxyJump"))
        users = _paths(config, "UserKnownHostsFile", USER_KNOWN_HOSTS)
        return cls(
            target,
            host=options.host,
            port=options.port,
            user=options.username,
            jumps=tuple(Target.parse_hop(hop.strip()) for hop in jumps.split(",")) if jumps else (),
            known_as=(alias or options.host).lower(),
            has_alias=alias is not None,
            known_hosts=users + _paths(config, "GlobalKnownHostsFile", GLOBAL_KNOWN_HOSTS),
            new_known_hosts=users[0] if users else None,
            hashes_names=cast("bool", config.get("HashKnownHosts", False)),
            strictness=_strictness(target, cast("str | None", config.get("StrictHostKeyChecking"))),
            key_kinds=cast("str", config.get("HostKeyAlgorithms", "")),
            keys=_paths(config, "IdentityFile", DEFAULT_KEYS),
            certificates=_paths(config, "CertificateFile", ()),
            only_named_keys=cast("bool", config.get("IdentitiesOnly", False)),
            agent=_agent(cast("str | None", config.get("IdentityAgent", _FROM_ENVIRONMENT))),
            proxy=cast("str | None", config.get("ProxyCommand")),
            connect_s=options.connect_timeout or CONNECT_S,
            alive_s=float(options.keepalive_interval or ALIVE_S),
        )


def _paths(config: Config, option: str, default: Sequence[str]) -> tuple[Path, ...]:
    return tuple(Path(file).expanduser() for file in cast("Sequence[str]", config.get(option, default)))


def _agent(named: str | None) -> str:
    if named == _FROM_ENVIRONMENT or (named or "").startswith("$"):
        return os.environ.get((named or "").removeprefix("$"), "")
    return str(Path(named).expanduser()) if named else ""


def _strictness(target: Target, value: str | None) -> str:
    found = STRICTNESS.get((value or ASK).lower())
    if found is None:
        raise UsageError(
            f"the SSH configuration for {target}: StrictHostKeyChecking {value}",
            hint="mend ~/.ssh/config: it is yes, ask, accept-new or no",
        )
    return found
