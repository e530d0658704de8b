"""Addresses of boards, and what links know of a board; apart from the certificate code, which takes long to load."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_PORT, LAST_PORT = 50151, 65535
_FORGET = "or, if the board was set up anew, `profagent boards remove {name}` and add it again"


@dataclass(frozen=True, slots=True)
class KnownBoard:
    """Board of a link. `address` is HOST:PORT or unix:PATH; uuid, fingerprint (SHA-256 in hex) are empty if not known.

    `tls_name` is the host that its certificate must be for, if a Unix socket is a tunnel to a daemon with TLS. `labels`
    are for its sessions.
    """

    name: str
    address: str
    uuid: str = ""
    fingerprint: str = ""
    tls_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def shown(self) -> str:
        """The board's name in messages; a tunnel's socket path is left out, because it means nothing to the reader."""
        if self.name == self.address:
            return self.address
        return f"{self.name} (over SSH)" if self.address.startswith("unix:") else f"{self.name} ({self.address})"

    @property
    def place(self) -> str:
        """The board's name in messages about a connection."""
        return self.shown if self.tls_name else self.address

    def check_identity(self, identity: str) -> None:
        """Raise RefusedError if the board reports an identity other than the known one."""
        if self.uuid and identity != self.uuid:
            raise RefusedError(
                f"another board answers for {self.name}: its identity is {identity or 'unknown'}, and the one that"
                f" is known as {self.name} has {self.uuid}",
                hint="see which board has the address now, and put it right in boards.toml; "
                + _FORGET.format(name=self.name),
            )

    def check_fingerprint(self, fingerprint: str) -> None:
        """Raise RefusedError if the board's certificate is not the known one."""
        if self.fingerprint and fingerprint != self.fingerprint:
            raise RefusedError(
                f"{self.name} shows another certificate: its SHA-256 is {fingerprint}, and the known one"
                f" {self.fingerprint}",
                hint="if the board was issued a new one, put its fingerprint into boards.toml (`profagent keys list`); "
                + _FORGET.format(name=self.name),
            )


def default_keys() -> Path:
    """Return the folder in which keys are looked for by default."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "profagent" / "keys"


def full_address(address: str) -> str:
    """Return `HOST` or `HOST:PORT` with the default port filled in; IPv6 hosts stand in brackets."""
    if address.startswith("unix:"):
        return address
    has_port = ":" in address.rpartition("]")[2]
    return address if has_port else f"{address}:{DEFAULT_PORT}"


def checked_address(address: str) -> str:
    """Return the address as `full_address` does. Raises UsageError for an impossible port."""
    full = full_address(address)
    port = full.rpartition(":")[2]
    if not full.startswith("unix:") and not (port.isascii() and port.isdecimal() and 0 < int(port) <= LAST_PORT):
        raise UsageError(
            f"{address}: {port or 'nothing'} is not a valid port",
            hint=f"write HOST:PORT with a port from 1 to {LAST_PORT}; an IPv6 host stands in brackets",
        )
    return full


def host_of(address: str) -> str:
    """Return the host of `HOST:PORT`, an IPv6 one without its brackets."""
    return address.rpartition(":")[0].strip("[]")


def is_local(address: str) -> bool:
    """Return True if an address does not leave this host: a loopback address, or a Unix socket."""
    host = host_of(full_address(address))
    try:
        return address.startswith("unix:") or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
