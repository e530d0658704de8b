"""What a certificate says: whose it is, what it is for, how long it holds, who issued it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, TypeVar
from urllib.parse import unquote

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from profagent.errors import UsageError

if TYPE_CHECKING:
    from datetime import datetime

T = TypeVar("T", bound=x509.ExtensionType)

# A URI among the alternative names: where the daemon, which has no library for certificates, can read it.
ROLE_URI = "profagent:role:"
ROLES = ("viewer", "operator")
VIEWER = ROLES[0]
# Another one, in a board's: whose it is, where that was known when it was issued.
IDENTITY_URI = "profagent:board:"
LONGEST_TEXT = 253


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate. Kind: CA, board, host or unknown; the role is a host's, else empty."""

    name: str
    kind: str
    role: str
    fingerprint: str
    """SHA-256 of its DER, in hex."""
    since: datetime
    until: datetime
    addresses: tuple[str, ...]
    """Host names and IP addresses that it is for."""
    identity: str
    """The one that a board with it has; empty: not told."""
    issuer: str
    parsed: x509.Certificate = field(repr=False)

    @classmethod
    def of(cls, parsed: x509.Certificate) -> Self:
        """What it says."""
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
        """The first certificate of a PEM file. Raises UsageError, which names `source`."""
        try:
            return cls.of(x509.load_pem_x509_certificate(pem))
        except ValueError as error:
            raise UsageError(f"{source} holds no certificate", hint="copy it anew from where it was issued") from error

    def is_issued_by(self, authority: Certificate) -> bool:
        """Whether it carries that authority's signature."""
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
    """A text of somebody else's certificate, fit for a terminal."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text[:LONGEST_TEXT])
