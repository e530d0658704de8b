"""Roles and fingerprints from what gRPC tells of a client."""

from __future__ import annotations

import base64
import hashlib

import pytest

from profagentd.access import Role, caller_of

DER = b"any bytes"
PEM = b"-----BEGIN CERTIFICATE-----\n" + base64.b64encode(DER) + b"\n-----END CERTIFICATE-----\n"
SHOWN = {"x509_pem_cert": [PEM], "x509_common_name": [b"ci"]}
OPERATOR = b"profagent:role:operator"


class Context:
    """A call of somebody who showed this."""

    def __init__(self, **shown: list[bytes]) -> None:
        self._shown = shown

    def auth_context(self) -> dict[str, list[bytes]]:
        return self._shown


@pytest.mark.parametrize(
    ("shown", "role"),
    [
        ({}, Role.VIEWER),
        ({"peer_uri": [OPERATOR]}, Role.OPERATOR),
        ({"peer_uri": [b"profagent:role:viewer", OPERATOR]}, Role.OPERATOR),
        ({"peer_uri": [b"profagent:role:viewer"]}, Role.VIEWER),
        ({"peer_uri": [b"PROFAGENT:ROLE:OPERATOR"]}, Role.VIEWER),
        ({"peer_dns": [OPERATOR], "x509_subject_alternative_name": [OPERATOR]}, Role.VIEWER),
    ],
)
def test_only_a_uri_makes_an_operator(shown: dict[str, list[bytes]], role: Role) -> None:
    assert caller_of(Context(**SHOWN, **shown)).role is role


def test_a_caller_has_the_certificates_name_and_fingerprint() -> None:
    caller = caller_of(Context(**SHOWN))
    assert caller.name == "ci"
    assert caller.fingerprint == hashlib.sha256(DER).hexdigest()
    assert str(caller) == f"ci ({caller.fingerprint[:16]}…)"


def test_where_no_certificate_is_demanded_everybody_is_an_operator() -> None:
    caller = caller_of(Context())
    assert (caller.fingerprint, caller.role) == ("", Role.OPERATOR)
    assert str(caller) == "a client without a certificate"
