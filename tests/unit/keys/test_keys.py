"""A CA's folder: what is made, what is handed out, what is revoked, and what is never overwritten."""

from __future__ import annotations

import json
import stat
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from profagent.cli.main import run
from profagent.errors import UsageError
from profagent.keys.keys import Issued, Keys, issue_board, issue_host, new_ca
from profagent.link.credentials import Certificate, Credentials

NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    made = Keys(tmp_path / "made" / "keys", NOW)
    made.init("lab")
    return made


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_init_makes_an_authority_and_this_hosts_own_certificate(keys: Keys) -> None:
    credentials = Credentials.read(keys.folder)
    assert credentials.authority.name == "lab"
    assert (credentials.own.kind, credentials.own.role) == ("host", "operator")
    assert credentials.own.until == NOW + timedelta(days=730)
    assert [entry.certificate.kind for entry in keys.entries()] == ["ca", "host"]


def test_keys_are_their_owners_alone(keys: Keys) -> None:
    board = keys.issue_board("euler", ("192.168.1.20",)).folder
    for folder in (keys.folder, board):
        assert mode(folder) == 0o700
    for key in keys.folder.rglob("*.key"):
        assert mode(key) == 0o600


def test_init_overwrites_nothing(keys: Keys, tmp_path: Path) -> None:
    before = tree(keys.folder)
    with pytest.raises(UsageError, match="already holds keys"):
        keys.init()
    assert tree(keys.folder) == before
    (tmp_path / "empty").mkdir()
    Keys(tmp_path / "empty").init()
    assert (tmp_path / "empty" / "ca.key").exists()


def test_what_a_board_needs_is_in_one_folder(keys: Keys) -> None:
    made = keys.issue_board("euler", ("192.168.1.20",), 30)
    assert {path.name for path in made.folder.iterdir()} == {"board.key", "board.pem", "ca.pem", "revoked.txt"}
    assert made.certificate.until == NOW + timedelta(days=30)
    assert b"PRIVATE" not in b"".join(
        content for name, content in tree(made.folder).items() if not name.endswith(".key")
    )
    assert (made.folder / "ca.pem").read_bytes() == (keys.folder / "ca.pem").read_bytes()


def test_the_command_issues_each_board_an_identity_of_its_own(keys: Keys) -> None:
    for name, words in (("euler", []), ("gauss", []), ("lab", ["--identity", "b0a2d"])):
        where = ["--address", "192.168.1.20", "--keys", str(keys.folder)]
        assert run(["keys", "issue", "board", name, *where, *words]) == 0
    issued = {each.certificate.name: each.certificate.identity for each in keys.entries()}
    assert len({issued["euler"], issued["gauss"], "b0a2d", ""}) == 4
    assert issued["lab"] == "b0a2d"
    for name in ("euler", "gauss", "lab"):
        assert (keys.folder / "boards" / name / "board-id").read_text() == f"{issued[name]}\n"


def test_what_a_host_needs_is_in_one_folder(keys: Keys) -> None:
    made = keys.issue_host("ci", "viewer")
    assert {path.name for path in made.folder.iterdir()} == {"host.key", "host.pem", "ca.pem", "revoked.txt"}
    assert Credentials.read(made.folder).own.role == "viewer"


def test_a_name_is_given_once_until_it_is_revoked(keys: Keys) -> None:
    first = keys.issue_board("euler", ("192.168.1.20",))
    before = tree(first.folder)
    with pytest.raises(UsageError, match="euler has a certificate, until 2028-11-20") as error:
        keys.issue_board("euler", ("192.168.1.21",))
    assert "revoke" in error.value.hint
    assert tree(first.folder) == before
    keys.issue_host("euler", "viewer")
    keys.revoke(first.certificate.fingerprint)
    second = keys.issue_board("euler", ("192.168.1.21",))
    assert second.folder == first.folder
    assert (second.folder / "board.pem").read_bytes() != before["board.pem"]
    assert first.certificate.fingerprint in (second.folder / "revoked.txt").read_text()
    assert not list(keys.folder.rglob("*.part"))


def test_revoking_reaches_the_list_and_every_folder_to_copy(keys: Keys) -> None:
    board, host = keys.issue_board("euler", ("192.168.1.20",)), keys.issue_host("ci", "viewer")
    assert keys.revoke("ci") == [host.certificate]
    line = f"{host.certificate.fingerprint}  # host ci, 2026-11-21\n"
    for folder in (keys.folder, board.folder, host.folder):
        assert (folder / "revoked.txt").read_text().endswith(line)
    assert {entry.certificate.name for entry in keys.entries() if entry.revoked} == {"ci"}


def test_an_authority_whose_key_others_may_read_issues_nothing(keys: Keys) -> None:
    (keys.folder / "ca.key").chmod(0o644)
    with pytest.raises(UsageError, match="users other than its owner"):
        keys.issue_host("ci", "viewer")


# The command


def test_the_command_from_a_workshop_to_a_revoked_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ("--keys", str(tmp_path / "keys"))
    assert run(["keys", "init", "--name", "lab", *folder]) == 0
    assert "keys issue board" in capsys.readouterr().out
    assert run(["keys", "issue", "board", "euler", "--address", "192.168.1.20", *folder]) == 0
    assert "--tls-revoked revoked.txt" in capsys.readouterr().out
    assert run(["keys", "issue", "host", "ci", "--role", "operator", "--days", "7", *folder, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["role"], Path(made["folder"]).name) == ("operator", "ci")
    assert run(["keys", "revoke", "ci", *folder]) == 0
    assert (
        f"revoked: host ci, operator, until {made['until'][:10]}, SHA-256 {made['fingerprint']}"
        in capsys.readouterr().out
    )
    assert run(["keys", "list", *folder, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [entry["kind"] for entry in listed] == ["ca", "board", "host", "host"]
    assert [entry["name"] for entry in listed if entry["revoked"]] == ["ci"]
    assert run(["keys", "list", *folder]) == 0
    text = capsys.readouterr().out
    assert made["fingerprint"] in text
    assert "192.168.1.20" in text


# Certificates as they are made, read by our own reader and by openssl's

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
BIRTH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def workshop() -> Issued:
    return new_ca("lab", NOON)


def read(issued: Issued) -> Certificate:
    return Certificate.read(issued.certificate, "certificate")


def test_a_board_is_known_by_the_identity_that_it_was_issued_for(workshop: Issued) -> None:
    for identity in ("0f0e0d0c-0b0a-4000-8000-000102030405", "euler / \u00e9"):
        issued = issue_board(workshop, "euler", ("192.168.1.20",), days=10, now=NOON, identity=identity)
        assert read(issued).identity == identity


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_a_host_has_its_role_where_the_daemon_finds_it(workshop: Issued, role: str) -> None:
    host = read(issue_host(workshop, "ci", role, days=10, now=NOON))
    assert (host.kind, host.role) == ("host", role)
    names = host.parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [f"profagent:role:{role}"]


@pytest.mark.parametrize("clock", [BIRTH, NOON, NOON + timedelta(days=9)], ids=["1970", "now", "the last day"])
def test_openssl_agrees_on_issuer_purpose_address_and_fingerprint(
    workshop: Issued, tmp_path: Path, clock: datetime
) -> None:
    board = issue_board(workshop, "euler", ("192.168.1.20",), days=10, now=NOON)
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
        issue_board(workshop, "euler", (address,), days=1, now=NOON)
