"""Keys of a host, and the choice between TLS and plain text for a board."""

from __future__ import annotations

import re
import socket
import ssl
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar
from urllib.parse import unquote

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from profagent.errors import RefusedError, UsageError
from profagent.limits import LONGEST_IDENTITY
from profagent.link.addresses import KnownBoard, checked_address, default_keys, is_local

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


T = TypeVar("T", bound=x509.ExtensionType)

# The role stands in a URI among the alternative names, where the daemon can read it without a certificate library.
ROLE_URI = "profagent:role:"
ROLES = ("viewer", "operator")
VIEWER = ROLES[0]
# URI in a board's certificate with the board's identity, if that was known when it was issued.
IDENTITY_URI = "profagent:board:"


@dataclass(frozen=True, slots=True)
class Certificate:
    """Parsed certificate. `kind` is ca, board, host or unknown; `role` is a host's, else empty."""

    name: str
    kind: str
    role: str
    fingerprint: str
    """SHA-256 of its DER, in hex."""
    since: datetime
    until: datetime
    addresses: tuple[str, ...]
    """Host names and IP addresses for which it is valid."""
    identity: str
    """The identity of its board; empty if the certificate names none."""
    issuer: str
    parsed: x509.Certificate = field(repr=False)

    @classmethod
    def of(cls, parsed: x509.Certificate) -> Self:
        """Return the values of a certificate; an unknown role counts as viewer."""
        kind = _kind(parsed)
        names = _extension(parsed, x509.SubjectAlternativeName) or x509.SubjectAlternativeName([])
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        identities = [uri.removeprefix(IDENTITY_URI) for uri in uris if uri.startswith(IDENTITY_URI)]
        roles = [role for role in ROLES if ROLE_URI + role in uris]
        addresses = (*names.get_values_for_type(x509.DNSName), *names.get_values_for_type(x509.IPAddress))
        return cls(
            name=_common_name(parsed.subject),
            kind=kind,
            role=(roles[-1] if roles else VIEWER) if kind == "host" else "",
            fingerprint=parsed.fingerprint(hashes.SHA256()).hex(),
            since=parsed.not_valid_before_utc,
            until=parsed.not_valid_after_utc,
            addresses=tuple(_shown(str(address)) for address in addresses),
            identity=_shown(unquote(identities[0])) if identities else "",
            issuer=_common_name(parsed.issuer),
            parsed=parsed,
        )

    @classmethod
    def read(cls, pem: bytes, source: object) -> Self:
        """Return the first certificate of a PEM file. Raises UsageError, which names `source`."""
        try:
            return cls.of(x509.load_pem_x509_certificate(pem))
        except ValueError as error:
            raise UsageError(f"{source} holds no certificate", hint="copy it again from where it was issued") from error

    def is_issued_by(self, authority: Certificate) -> bool:
        """Return True if the certificate carries that authority's signature."""
        try:
            self.parsed.verify_directly_issued_by(authority.parsed)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True


def _kind(parsed: x509.Certificate) -> str:
    constraints = _extension(parsed, x509.BasicConstraints)
    if constraints is not None and constraints.ca:
        return "ca"
    usages = _extension(parsed, x509.ExtendedKeyUsage) or ()
    if ExtendedKeyUsageOID.SERVER_AUTH in usages:
        return "board"
    return "host" if ExtendedKeyUsageOID.CLIENT_AUTH in usages else "unknown"


def _extension(parsed: x509.Certificate, kind: type[T]) -> T | None:
    try:
        return parsed.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _common_name(name: x509.Name) -> str:
    return _shown(" ".join(str(attribute.value) for attribute in name.get_attributes_for_oid(NameOID.COMMON_NAME)))


def _shown(text: str) -> str:
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text[:LONGEST_IDENTITY])


_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


def plain_fingerprint(text: str) -> str:
    """Return a fingerprint in lower case and without colons."""
    return text.strip().replace(":", "").lower()


def revoked_fingerprints(text: str, source: object) -> frozenset[str]:
    """Return the fingerprints of a revocation list. Raises UsageError, which names `source`.

    Errors are a line that is no fingerprint, and an empty list: one that revokes no certificate has a comment line, so
    that a file truncated to nothing is noticed.
    """
    if not text.strip():
        raise UsageError(
            f"{source} is empty, without even its first line",
            hint="copy it again from the CA, or from a board; one that revokes nobody has a line with #",
        )
    found = set()
    for number, line in enumerate(text.splitlines(), 1):
        entry = plain_fingerprint(line.partition("#")[0])
        if entry and not _FINGERPRINT.fullmatch(entry):
            raise UsageError(
                f"{source}: line {number} is not a SHA-256 fingerprint",
                hint="write 64 hexadecimal digits, then # a remark",
            )
        if entry:
            found.add(entry)
    return frozenset(found)


# The files of a host's key folder.
CA, CERT, KEY, REVOKED = "ca.pem", "host.pem", "host.key", "revoked.txt"
# Bits of a key file's mode with which others than its owner could use it.
OTHERS = 0o077


def issued_certificates(folder: Path) -> list[Certificate]:
    """Return what the CA of a folder has issued; nothing in the folder of a host that has no CA. Raises UsageError."""
    return [Certificate.read(_content(file), file) for file in sorted((folder / "certificates").glob("*.pem"))]


@dataclass(frozen=True, slots=True)
class Credentials:
    """Certificate and key of a host, the CA of its boards, and the fingerprints of revoked certificates."""

    folder: Path
    authority: Certificate
    own: Certificate
    ca_pem: bytes = field(repr=False)
    own_pem: bytes = field(repr=False)
    key_pem: bytes = field(repr=False)
    revoked: frozenset[str]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Return the credentials in a folder. Raises UsageError."""
        ca, cert, key = (_content(folder / name) for name in (CA, CERT, KEY))
        # Before the key is used: a key that other users can read proves nothing about this host.
        if stat.S_IMODE((folder / KEY).stat().st_mode) & OTHERS:
            raise UsageError(
                f"{folder / KEY}: users other than its owner may read this key", hint=f"chmod 600 {folder / KEY}"
            )
        # The list is optional; Access notices one that vanishes.
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
        """Return a TLS 1.3 context with this host's certificate that trusts boards of the CA. Raises UsageError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.hostname_checks_common_name = False
        context.set_alpn_protocols(["h2"])
        try:
            context.load_verify_locations(cadata=self.ca_pem.decode("ascii"))
            # The empty password keeps OpenSSL from asking at the terminal for the passphrase of an encrypted key.
            context.load_cert_chain(self.folder / CERT, self.folder / KEY, password="")
        except (ssl.SSLError, OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"{self.folder / CERT} and {self.folder / KEY} are no certificate with its key: {error}",
                hint="copy both from one folder of `profagent keys issue host`",
            ) from error
        return context


@dataclass(frozen=True, slots=True)
class Access:
    """Way in which boards are reached: TLS with `keys`, plain text if `insecure`, else by address with default keys.

    Boards in `known` are called by their names; any other board by its address.
    """

    keys: Path | None = None
    insecure: bool = False
    known: Mapping[str, KnownBoard] = field(default_factory=dict)
    # Folders that had a revocation list: if the list vanishes, the keys are refused instead of trusting revoked boards.
    _with_list: set[Path] = field(default_factory=set, init=False, repr=False, compare=False)

    def named(self, board: str) -> KnownBoard:
        """Return the board of that name, else a board at that address. Raises UsageError for an impossible port."""
        found = self.known.get(board)
        if found is None:
            return KnownBoard(checked_address(board), checked_address(board))
        return replace(found, address=checked_address(found.address))

    def check(self, board: str) -> None:
        """Raise UsageError if a board needs keys that are missing or do not fit each other."""
        credentials = self.credentials(self.named(board))
        if credentials is not None:
            credentials.context()

    def credentials(self, board: KnownBoard) -> Credentials | None:
        """Return the credentials for a board by its address; None for plain text. Raises UsageError."""
        address = board.address
        if self.keys and self.insecure:
            raise UsageError("--keys and --insecure cannot be given together", hint="give only one of them")
        if self.keys and address.startswith("unix:") and not board.tls_name:
            raise UsageError("a Unix socket has no TLS", hint="leave --keys out")
        if self.keys:
            return self._read(self.keys)
        if self.insecure or (is_local(address) and not board.tls_name):
            return None
        if not (default_keys() / CERT).exists():
            raise UsageError(
                f"no keys for the board at {board.place}: {default_keys() / CERT} does not exist",
                hint="--via ssh needs none (or is BOARD a name? `profagent boards` lists those); else make some with"
                " `profagent keys init`, or name others with --keys DIR (docs/reference/security.md)",
            )
        return self._read(default_keys())

    def check_identity(self, board: KnownBoard, identity: str, shown: Certificate | None) -> None:
        """Raise RefusedError if the reported identity does not belong to the board's name or to its certificate.

        In plain text (`shown` is None) only the name is checked: there is no certificate.
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
        pinned = [each for each in (board, *self.known.values()) if identity and each.uuid == identity]
        known = {each.fingerprint: each.name for each in pinned if each.fingerprint}
        if known and shown.fingerprint not in known:
            name = next(iter(known.values()))
            raise RefusedError(
                f"the board at {board.place} says that it is {name}, and shows another certificate than {name}: its"
                f" SHA-256 is {shown.fingerprint}",
                hint="give each board an identity of its own (identity in profagentd.toml); if it is that board with a"
                f" new certificate, `profagent boards remove {name}` and add it again",
            )
        if not (shown.identity or known) and identity and (pinned or identity in self._issued_identities()):
            raise RefusedError(
                f"the board at {board.place} says that it is {identity}, and its certificate could be any board's: it"
                " names no identity",
                hint=f"issue it another: `profagent keys issue board NAME --address ADDRESS --identity {identity}`",
            )

    def _issued_identities(self) -> frozenset[str]:
        return frozenset(each.identity for each in issued_certificates(self.keys or default_keys()))

    def _read(self, folder: Path) -> Credentials:
        if (folder / REVOKED).exists():
            self._with_list.add(folder)
        elif folder in self._with_list:
            raise UsageError(f"{folder / REVOKED} no longer exists", hint="copy it again from the CA, or from a board")
        return Credentials.read(folder)


# Default access: plain text within this host, TLS with the default keys beyond it.
BY_ADDRESS = Access()


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}",
            hint="a host's keys are ca.pem, host.pem and host.key in one folder",
        ) from error


def own_consumer() -> str:
    """Return the default name under which boards count the deliveries to this host's `record`."""
    return f"record-{socket.gethostname()[:48]}"
