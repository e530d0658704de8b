"""Making keys and certificates of a workshop. Nothing is read or written here."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from profagent.errors import UsageError
from profagent.link.certificate import IDENTITY_URI, ROLE_URI

# Boards without a battery wake up here.
SINCE = datetime(1970, 1, 1, tzinfo=UTC)
WORKSHOP_DAYS = 20 * 365
_HOST_NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*")


@dataclass(frozen=True, slots=True)
class Issued:
    """A new certificate, and its key without a passphrase, as PEM."""

    certificate: bytes
    key: bytes


def new_workshop(name: str, now: datetime) -> Issued:
    """An authority of its own."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    builder = _builder(subject, subject, key.public_key(), now + timedelta(days=WORKSHOP_DAYS))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return _issued(builder, key, key)


def issue_board(
    authority: Issued, name: str, addresses: tuple[str, ...], *, days: int, now: datetime, identity: str = ""
) -> Issued:
    """A certificate for a daemon that is reached by these IP addresses and host names. Raises UsageError.

    With an identity, no board of another one can have it.
    """
    alternatives = [alternative_name(each) for each in addresses]
    if identity:
        alternatives.append(x509.UniformResourceIdentifier(IDENTITY_URI + quote(identity, safe="")))
    return _issue(authority, name, alternatives, days, now, is_board=True)


def issue_host(authority: Issued, name: str, role: str, *, days: int, now: datetime) -> Issued:
    """A certificate for a host with a role. Raises UsageError."""
    return _issue(authority, name, [x509.UniformResourceIdentifier(ROLE_URI + role)], days, now, is_board=False)


def alternative_name(address: str) -> x509.GeneralName:
    """An IP address, or a host name, as certificates have them. Raises UsageError."""
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
    builder = _builder(_name(name), issuer.subject, key.public_key(), until)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    return _issued(builder.add_extension(signer, critical=False), key, issuer_key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(SINCE)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _issued(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> Issued:
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
