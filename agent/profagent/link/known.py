"""Boards that go by a name: where they are reached, and which board it has to be that answers there."""

from __future__ import annotations

from dataclasses import dataclass

from profagent.errors import RefusedError

_FORGET = "or, if the board was set up anew, `profagent boards remove {name}` and add it again"


@dataclass(frozen=True, slots=True)
class KnownBoard:
    """A board. `address` is HOST:PORT or unix:PATH; uuid and fingerprint (SHA-256 in hex) are empty if not known.

    `tls_name` is the host that its certificate must be for, where a Unix socket is a tunnel to a daemon with TLS.
    """

    name: str
    address: str
    uuid: str = ""
    fingerprint: str = ""
    tls_name: str = ""

    @property
    def shown(self) -> str:
        """What messages call it: a tunnel's socket tells nobody anything."""
        if self.name == self.address:
            return self.address
        return f"{self.name} (over SSH)" if self.address.startswith("unix:") else f"{self.name} ({self.address})"

    @property
    def place(self) -> str:
        """What messages about a connection call it."""
        return self.shown if self.tls_name else self.address

    def check_identity(self, identity: str) -> None:
        """Raises RefusedError when it is another board that says who it is."""
        if self.uuid and identity != self.uuid:
            raise RefusedError(
                f"another board answers for {self.name}: its identity is {identity or 'not told'}, and the one that"
                f" is known as {self.name} has {self.uuid}",
                hint="see which board has the address now, and put it right in boards.toml; "
                + _FORGET.format(name=self.name),
            )

    def check_fingerprint(self, fingerprint: str) -> None:
        """Raises RefusedError when the certificate that was shown is another one."""
        if self.fingerprint and fingerprint != self.fingerprint:
            raise RefusedError(
                f"{self.name} shows another certificate: its SHA-256 is {fingerprint}, and the known one"
                f" {self.fingerprint}",
                hint="if the board was issued a new one, put its fingerprint into boards.toml (`profagent keys list`); "
                + _FORGET.format(name=self.name),
            )
