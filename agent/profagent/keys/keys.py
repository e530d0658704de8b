"""`keys`: the folder of a CA, with the CA, the certificates it issued, and the list of those it revoked.

ca.pem ca.key            the authority
host.pem host.key        this host's own certificate
revoked.txt              fingerprints that are no longer trusted
certificates/            every certificate that was issued
boards/NAME hosts/NAME   the folder to copy to a board, or to another host
"""

from __future__ import annotations

import ipaddress
import re
import shutil
import socket
import stat
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from profagent.errors import UsageError
from profagent.files import alone_in, write_atomically, write_folder_atomically
from profagent.link.credentials import (
    CA,
    CERT,
    IDENTITY_URI,
    KEY,
    OTHERS,
    REVOKED,
    ROLE_URI,
    ROLES,
    Certificate,
    issued_certificates,
    plain_fingerprint,
    revoked_fingerprints,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


# Certificates are valid from the epoch on: the clock of a board without a battery starts there.
SINCE = datetime(1970, 1, 1, tzinfo=UTC)
CA_DAYS = 20 * 365
_HOST_NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*")


@dataclass(frozen=True, slots=True)
class Issued:
    """A new certificate, and its key without a passphrase, as PEM."""

    certificate: bytes
    key: bytes


def new_ca(name: str, now: datetime) -> Issued:
    """Return a new, self-signed authority."""
    key, subject = ec.generate_private_key(ec.SECP256R1()), _name(name)
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    critical = (constraints, _usage(signs_certificates=True))
    return _signed(subject, subject, key, key, now + timedelta(days=CA_DAYS), critical)


def issue_board(
    authority: Issued, name: str, addresses: tuple[str, ...], *, days: int, now: datetime, identity: str = ""
) -> Issued:
    """Return a certificate for a daemon at these IP addresses and host names. Raises UsageError.

    With an identity, hosts accept it only from the board that has this identity.
    """
    alternatives = [alternative_name(each) for each in addresses]
    if identity:
        alternatives.append(x509.UniformResourceIdentifier(IDENTITY_URI + quote(identity, safe="")))
    return _issue(authority, name, alternatives, days, now, is_board=True)


def issue_host(authority: Issued, name: str, role: str, *, days: int, now: datetime) -> Issued:
    """Return a certificate for a host with a role. Raises UsageError."""
    return _issue(authority, name, [x509.UniformResourceIdentifier(ROLE_URI + role)], days, now, is_board=False)


def alternative_name(address: str) -> x509.GeneralName:
    """Return an IP address or host name as an X.509 name. Raises UsageError."""
    try:
        return x509.IPAddress(ipaddress.ip_address(address.strip("[]")))
    except ValueError:
        if not _HOST_NAME.fullmatch(address):
            raise UsageError(
                f"{address!r} is neither an IP address nor a host name", hint="leave ports and wildcards out"
            ) from None
        return x509.DNSName(address)


def _issue(
    authority: Issued, name: str, alternatives: list[x509.GeneralName], days: int, now: datetime, *, is_board: bool
) -> Issued:
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = serialization.load_pem_private_key(authority.key, password=None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if is_board else ExtendedKeyUsageOID.CLIENT_AUTH
    until = min(now + timedelta(days=days), issuer.not_valid_after_utc)
    critical = (x509.BasicConstraints(ca=False, path_length=None), _usage(signs_certificates=False))
    others = (
        x509.ExtendedKeyUsage([purpose]),
        x509.SubjectAlternativeName(alternatives),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
    )
    return _signed(_name(name), issuer.subject, key, issuer_key, until, critical, others)


def _signed(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    until: datetime,
    critical: Sequence[x509.ExtensionType],
    others: Sequence[x509.ExtensionType] = (),
) -> Issued:
    names = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = names.serial_number(x509.random_serial_number()).not_valid_before(SINCE).not_valid_after(until)
    for extension in (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), *critical, *others):
        builder = builder.add_extension(extension, critical=extension in critical)
    pem = serialization.Encoding.PEM
    return Issued(
        builder.sign(signer, hashes.SHA256()).public_bytes(pem),
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


CA_KEY = "ca.key"
BOARD_CERT, BOARD_KEY, BOARD_ID = "board.pem", "board.key", "board-id"
OPERATOR = ROLES[-1]
# The default validity of a board's or a host's certificate, in days.
DAYS = 730
SHORTEST_PREFIX = 8
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_LIST_HEAD = (
    "# Certificates that are no longer trusted: SHA-256 of the DER, then a remark. Written by profagent keys.\n"
)


@dataclass(frozen=True, slots=True)
class CertificateEntry:
    """A certificate of the CA, and its state: revoked or not, expired or not."""

    certificate: Certificate
    revoked: bool
    expired: bool = False


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A new certificate, and the folder to copy."""

    certificate: Certificate
    folder: Path


class Keys:
    """The folder of a CA."""

    def __init__(self, folder: Path, now: datetime | None = None) -> None:
        """Take the folder; `now` is the start of validity, None for this host's clock."""
        self.folder = folder
        self._now = now or datetime.now(UTC)

    def init(self, name: str = "", days: int = DAYS) -> IssuedCertificate:
        """Create the folder, with an authority and an operator's certificate for this host. Raises UsageError."""
        if self.folder.is_dir() and any(self.folder.iterdir()):
            raise UsageError(
                f"{self.folder} already holds keys", hint="nothing is overwritten: name another folder with --keys DIR"
            )
        host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).lstrip("._-")[:48] or "host"
        authority = new_ca(_checked(name) if name else f"profagent-{host}"[:63], self._now)
        own = issue_host(authority, host, OPERATOR, days=days, now=self._now)
        certificate = Certificate.read(own.certificate, CERT)
        files = {CA: authority.certificate, CA_KEY: authority.key, CERT: own.certificate, KEY: own.key}
        record = {_record(certificate): own.certificate, REVOKED: _LIST_HEAD.encode()}
        write_folder_atomically(self.folder, {**files, **record})
        return IssuedCertificate(certificate, self.folder)

    def issue_board(
        self, name: str, addresses: tuple[str, ...], days: int = DAYS, identity: str = ""
    ) -> IssuedCertificate:
        """Issue a certificate to a board, bound to an identity if one is given. Raises UsageError."""
        if not addresses:
            raise UsageError("a board's certificate needs an address", hint="--address for each that hosts call it by")
        authority = self._authority()
        issued = issue_board(authority, _checked(name), addresses, days=days, now=self._now, identity=identity)
        files = {BOARD_CERT: issued.certificate, BOARD_KEY: issued.key}
        return self._hand_out("board", name, issued, files | ({BOARD_ID: f"{identity}\n".encode()} if identity else {}))

    def issue_host(self, name: str, role: str, days: int = DAYS) -> IssuedCertificate:
        """Issue a certificate to another host. Raises UsageError."""
        issued = issue_host(self._authority(), _checked(name), role, days=days, now=self._now)
        return self._hand_out("host", name, issued, {CERT: issued.certificate, KEY: issued.key})

    def entries(self) -> list[CertificateEntry]:
        """Return the authority and the certificates it issued, by kind and name. Raises UsageError."""
        revoked = self._revoked()
        authority = Certificate.read(content(self.folder / CA), self.folder / CA)
        found = [authority, *issued_certificates(self.folder)]
        order = ("ca", "board", "host", "unknown")
        found.sort(key=lambda each: (order.index(each.kind), each.name, each.until))
        return [CertificateEntry(each, each.fingerprint in revoked, each.until < self._now) for each in found]

    def takes(self, certificate: Certificate) -> bool:
        """Return True if the CA issued the certificate, it is valid now, and it is not revoked. Raises UsageError."""
        authority = Certificate.read(content(self.folder / CA), CA)
        is_known = certificate.is_issued_by(authority) and certificate.fingerprint not in self._revoked()
        return is_known and self._now < certificate.until

    def revoke(self, what: str) -> list[Certificate]:
        """Revoke certificates by name or fingerprint, and return them. Raises UsageError."""
        self._authority()
        with alone_in(self.folder):
            chosen = self._chosen(what)
            day = f"{self._now:%Y-%m-%d}"
            lines = [f"{each.fingerprint}  # {each.kind} {each.name}, {day}\n" for each in chosen]
            text = content(self.folder / REVOKED).decode() + "".join(lines)
            handed_out = (file for kind in ("boards", "hosts") for file in self.folder.glob(f"{kind}/*/{REVOKED}"))
            for file in (self.folder / REVOKED, *handed_out):
                write_atomically(file, [text.encode()], durably=True)
        return chosen

    def _chosen(self, what: str) -> list[Certificate]:
        issued = [entry for entry in self.entries() if entry.certificate.kind != "ca"]
        prefix = plain_fingerprint(what)
        is_prefix = len(prefix) >= SHORTEST_PREFIX
        found = [
            entry
            for entry in issued
            if entry.certificate.name == what or (is_prefix and entry.certificate.fingerprint.startswith(prefix))
        ]
        fresh = [entry.certificate for entry in found if not entry.revoked]
        if not found:
            raise UsageError(f"this CA has issued no certificate for {what}", hint="see `profagent keys list`")
        if not fresh:
            raise UsageError(f"{what} is already revoked", hint="see `profagent keys list`")
        if len({certificate.kind for certificate in fresh}) > 1:
            raise UsageError(f"{what} names both a board and a host", hint="name one of them by its fingerprint")
        return fresh

    def _hand_out(self, kind: str, name: str, issued: Issued, files: dict[str, bytes]) -> IssuedCertificate:
        certificate = Certificate.read(issued.certificate, name)
        folder = self.folder / f"{kind}s" / name
        with alone_in(self.folder):
            for entry in self.entries():
                if (entry.certificate.kind, entry.certificate.name) == (kind, name) and not entry.revoked:
                    raise UsageError(
                        f"{kind} {name} has a certificate, until {entry.certificate.until:%Y-%m-%d}",
                        hint=f"`profagent keys revoke {name}` first, or take another name",
                    )
            write_atomically(self.folder / _record(certificate), [issued.certificate], durably=True)
            ca, revoked = (content(self.folder / each) for each in (CA, REVOKED))
            # A folder that exists belongs to a revoked certificate: one that is still trusted has raised above.
            shutil.rmtree(folder, ignore_errors=True)
            write_folder_atomically(folder, {CA: ca, REVOKED: revoked, **files})
        return IssuedCertificate(certificate, folder)

    def _authority(self) -> Issued:
        certificate, key = (content(self.folder / each) for each in (CA, CA_KEY))
        if stat.S_IMODE((self.folder / CA_KEY).stat().st_mode) & OTHERS:
            raise UsageError(
                f"{self.folder / CA_KEY}: users other than its owner may read this key",
                hint=f"chmod 600 {self.folder / CA_KEY}",
            )
        return Issued(certificate, key)

    def _revoked(self) -> frozenset[str]:
        file = self.folder / REVOKED
        return revoked_fingerprints(content(file).decode("utf-8", "replace"), file)


def _record(certificate: Certificate) -> str:
    return f"certificates/{certificate.fingerprint}.pem"


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a valid name for a certificate", hint="it is 1 to 63 of A-Z a-z 0-9 . _ -")
    return name


def content(path: Path) -> bytes:
    """Return the content of a file of the folder. Raises UsageError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}",
            hint="make a CA with `profagent keys init`, or name its --keys",
        ) from error
