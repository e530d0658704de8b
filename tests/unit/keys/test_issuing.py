"""Certificates as they are made, read by our own reader and by openssl's."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from profagent.errors import UsageError
from profagent.keys.keys import Issued, issue_board, issue_host, new_ca
from profagent.link.credentials import Certificate

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
BIRTH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def workshop() -> Issued:
    return new_ca("lab", NOW)


def read(issued: Issued) -> Certificate:
    return Certificate.read(issued.certificate, "certificate")


def test_a_board_is_known_by_the_identity_that_it_was_issued_for(workshop: Issued) -> None:
    for identity in ("0f0e0d0c-0b0a-4000-8000-000102030405", "euler / \u00e9"):
        issued = issue_board(workshop, "euler", ("192.168.1.20",), days=10, now=NOW, identity=identity)
        assert read(issued).identity == identity


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_a_host_has_its_role_where_the_daemon_finds_it(workshop: Issued, role: str) -> None:
    host = read(issue_host(workshop, "ci", role, days=10, now=NOW))
    assert (host.kind, host.role) == ("host", role)
    names = host.parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [f"profagent:role:{role}"]


@pytest.mark.parametrize("clock", [BIRTH, NOW, NOW + timedelta(days=9)], ids=["1970", "now", "the last day"])
def test_openssl_agrees_on_issuer_purpose_address_and_fingerprint(
    workshop: Issued, tmp_path: Path, clock: datetime
) -> None:
    board = issue_board(workshop, "euler", ("192.168.1.20",), days=10, now=NOW)
    (tmp_path / "ca.pem").write_bytes(workshop.certificate)
    (tmp_path / "board.pem").write_bytes(board.certificate)
    at = str(int(clock.timestamp()))
    verify = ["openssl", "verify", "-x509_strict", "-attime", at, "-purpose", "sslserver", "-verify_ip", "192.168.1.20"]
    subprocess.run([*verify, "-CAfile", "ca.pem", "board.pem"], cwd=tmp_path, check=True, capture_output=True)
    shown = subprocess.run(
        ["openssl", "x509", "-in", "board.pem", "-noout", "-fingerprint", "-sha256"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert shown.stdout.strip().rpartition("=")[2].replace(":", "").lower() == read(board).fingerprint


@pytest.mark.parametrize("address", ["", "euler:50151", "*.local", "a b", "x" * 64, "-" * 300, "192.168.1.20/24", "ä"])
def test_an_address_is_an_ip_address_or_a_host_name(workshop: Issued, address: str) -> None:
    with pytest.raises(UsageError, match="neither an IP address nor a host name"):
        issue_board(workshop, "euler", (address,), days=1, now=NOW)
