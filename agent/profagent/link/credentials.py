"""A host's keys, and whether a board is reached over TLS with them, or in plain text."""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from profagent.errors import RefusedError, UsageError
from profagent.link.certificate import Certificate
from profagent.link.known import KnownBoard
from profagent.link.revocation import revoked_fingerprints

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_PORT, LARGEST_PORT = 50151, 65535

# The files of a host's key folder.
CA, CERT, KEY, REVOKED = "ca.pem", "host.pem", "host.key", "revoked.txt"
# Bits of a key file's mode with which others than its owner could use it.
OTHERS = 0o077


def default_keys() -> Path:
    """The folder in which keys are looked for."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "profagent" / "keys"


@dataclass(frozen=True, slots=True)
class Credentials:
    """A host's certificate and key, the CA that issued the boards', and whom not to trust any more."""

    folder: Path
    authority: Certificate
    own: Certificate
    ca_pem: bytes = field(repr=False)
    own_pem: bytes = field(repr=False)
    key_pem: bytes = field(repr=False)
    revoked: frozenset[str]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The credentials in a folder. Raises UsageError."""
        ca, cert, key = (_content(folder / name) for name in (CA, CERT, KEY))
        if stat.S_IMODE((folder / KEY).stat().st_mode) & OTHERS:
            raise UsageError(
                f"{folder / KEY}: others than its owner may use this key", hint=f"chmod 600 {folder / KEY}"
            )
        revoked = folder / REVOKED
        text = _content(revoked).decode("utf-8", "replace") if revoked.exists() else None
        return cls(
            folder,
            Certificate.read(ca, folder / CA),
            Certificate.read(cert, folder / CERT),
            ca,
            cert,
            key,
            frozenset() if text is None else revoked_fingerprints(text, revoked),
        )

    def context(self) -> ssl.SSLContext:
        """TLS 1.3 with this host's certificate, for boards of the CA. Raises UsageError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.hostname_checks_common_name = False
        context.set_alpn_protocols(["h2"])
        try:
            context.load_verify_locations(cadata=self.ca_pem.decode("ascii"))
            # An empty passphrase rather than a question at the terminal.
            context.load_cert_chain(self.folder / CERT, self.folder / KEY, password="")
        except (ssl.SSLError, OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"{self.folder / CERT} and {self.folder / KEY} are no certificate with its key: {error}",
                hint="copy both from one folder of `profagent keys issue host`",
            ) from error
        return context


@dataclass(frozen=True, slots=True)
class Access:
    """How boards are reached: TLS with `keys`, plain text if `insecure`, else by the address, with the default keys.

    A board of `known` is called by its name there; any other by its address.
    """

    keys: Path | None = None
    insecure: bool = False
    known: Mapping[str, KnownBoard] = field(default_factory=dict)
    # Folders that had a list of the revoked: one that vanishes from them frees nobody.
    _with_list: set[Path] = field(default_factory=set, init=False, repr=False, compare=False)

    def named(self, board: str) -> KnownBoard:
        """The board of that name, else the one at that address. Raises UsageError for a port that none can have."""
        found = self.known.get(board)
        if found is None:
            return KnownBoard(checked_address(board), checked_address(board))
        return replace(found, address=checked_address(found.address))

    def check(self, board: str) -> None:
        """Raises UsageError when there are no keys for a board, or none that fit."""
        credentials = self.credentials(self.named(board))
        if credentials is not None:
            credentials.context()

    def credentials(self, board: KnownBoard) -> Credentials | None:
        """The credentials for a board, by its address; None for plain text. Raises UsageError."""
        address = board.address
        if self.keys and self.insecure:
            raise UsageError("--keys and --insecure exclude each other", hint="leave one of them out")
        if self.keys and address.startswith("unix:") and not board.tls_name:
            raise UsageError("a Unix socket has no TLS", hint="leave --keys out")
        if self.keys:
            return self._read(self.keys)
        if self.insecure or (is_local(address) and not board.tls_name):
            return None
        if not (default_keys() / CERT).exists():
            raise UsageError(
                f"no keys for the board at {board.place}: {default_keys() / CERT} is not there",
                hint="--via ssh needs none (or is BOARD a name? `profagent boards` lists those); else make some with"
                " `profagent keys init`, or name others with --keys DIR (docs/reference/security.md)",
            )
        return self._read(default_keys())

    def check_identity(self, board: KnownBoard, identity: str, shown: Certificate | None) -> None:
        """Raises RefusedError when a board is not who it says: by its name, or by the certificate that it has shown.

        In plain text none is: nothing tells one board from another there.
        """
        board.check_identity(identity)
        if shown is None:
            return
        if shown.identity not in ("", identity):
            raise RefusedError(
                f"the board at {board.place} says that it is {identity}, and its certificate is that of"
                f" {shown.identity}",
                hint="see which board has the address now; a board that got another identity wants another certificate",
            )
        known = {each.fingerprint: each.name for each in self.known.values() if identity and each.uuid == identity}
        known.pop("", None)
        if known and shown.fingerprint not in known:
            name = next(iter(known.values()))
            raise RefusedError(
                f"the board at {board.place} says that it is {name}, and shows another certificate than {name}: its"
                f" SHA-256 is {shown.fingerprint}",
                hint="give each board an identity of its own (identity in profagentd.toml); if it is that board with a"
                f" new certificate, `profagent boards remove {name}` and add it again",
            )

    def _read(self, folder: Path) -> Credentials:
        if (folder / REVOKED).exists():
            self._with_list.add(folder)
        elif folder in self._with_list:
            raise UsageError(f"{folder / REVOKED} has vanished", hint="copy it anew from the CA, or from a board")
        return Credentials.read(folder)


# As the address has it: plain text within this host, TLS with the default keys beyond.
BY_ADDRESS = Access()


def full_address(address: str) -> str:
    """`HOST` or `HOST:PORT` with the port filled in; IPv6 hosts stand in brackets."""
    if address.startswith("unix:"):
        return address
    has_port = ":" in address.rpartition("]")[2]
    return address if has_port else f"{address}:{DEFAULT_PORT}"


def checked_address(address: str) -> str:
    """As `full_address`, of what can be reached. Raises UsageError for a port that none can have."""
    full = full_address(address)
    port = full.rpartition(":")[2]
    if not full.startswith("unix:") and not (port.isascii() and port.isdecimal() and 0 < int(port) <= LARGEST_PORT):
        raise UsageError(
            f"{address}: {port or 'nothing'} is no port",
            hint=f"write HOST:PORT with a port from 1 to {LARGEST_PORT}; an IPv6 host stands in brackets",
        )
    return full


def host_of(address: str) -> str:
    """The host of `HOST:PORT`, an IPv6 one without its brackets."""
    return address.rpartition(":")[0].strip("[]")


def is_local(address: str) -> bool:
    """Whether an address does not leave this host: a loopback one, or a Unix socket."""
    host = host_of(full_address(address))
    try:
        return address.startswith("unix:") or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}",
            hint="a host's keys are ca.pem, host.pem and host.key in one folder",
        ) from error


def own_consumer() -> str:
    """Under which name boards count what this host's `record` has, unless it is given another."""
    return f"record-{socket.gethostname()[:48]}"
