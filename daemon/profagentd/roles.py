"""Who calls, and what it may do: both are read from the certificate that it has shown."""

from __future__ import annotations

import base64
import enum
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# A URI among the alternative names of a host's certificate; a certificate without one is a viewer's.
OPERATOR_URI = b"profagent:role:operator"


class Role(enum.Enum):
    """What a client may do; the numbers are the wire's."""

    VIEWER = 1
    OPERATOR = 2


@dataclass(frozen=True)
class Caller:
    """A client: its certificate's common name, fingerprint (SHA-256 of the DER, in hex) and role."""

    name: str
    fingerprint: str
    role: Role

    def __str__(self) -> str:
        return f"{self.name} ({self.fingerprint[:16]}…)" if self.fingerprint else "a client without a certificate"


def caller_of(context: Any) -> Caller:
    """Who makes the call of a gRPC context. Without a certificate, where none is demanded, it is an operator."""
    shown: Mapping[str, Sequence[bytes]] = context.auth_context()
    certificates = shown.get("x509_pem_cert")
    if not certificates:
        return Caller("", "", Role.OPERATOR)
    name = b"".join(shown.get("x509_common_name", ())).decode("utf-8", "backslashreplace")
    # It is written into the log: nothing in it may look like a line of its own.
    name = "".join(letter if letter.isprintable() else "\ufffd" for letter in name)
    role = Role.OPERATOR if OPERATOR_URI in shown.get("peer_uri", ()) else Role.VIEWER
    return Caller(name, fingerprint_of(certificates[0]), role)


def fingerprint_of(pem: bytes) -> str:
    """SHA-256 of a certificate's DER, in hex."""
    _, _, after = pem.partition(b"-----BEGIN CERTIFICATE-----")
    body, _, _ = after.partition(b"-----END CERTIFICATE-----")
    return hashlib.sha256(base64.b64decode(body)).hexdigest()
