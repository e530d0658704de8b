"""A CA's folder: what is made, what is handed out, what is revoked, and what is never overwritten."""

from __future__ import annotations

import json
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from profagent.cli.main import run
from profagent.errors import ProfagentError, UsageError
from profagent.keys.keys import Keys
from profagent.link.credentials import Credentials

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


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        Keys(tmp_path / "keys").init()
    finally:
        os.umask(before)
    assert (mode(tmp_path / "keys"), mode(tmp_path / "keys" / "ca.key")) == (0o700, 0o600)


def test_init_overwrites_nothing(keys: Keys, tmp_path: Path) -> None:
    before = tree(keys.folder)
    with pytest.raises(UsageError, match="holds keys already"):
        keys.init()
    assert tree(keys.folder) == before
    (tmp_path / "empty").mkdir()
    Keys(tmp_path / "empty").init()
    assert (tmp_path / "empty" / "ca.key").exists()


def test_init_that_is_interrupted_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []

    def interrupted(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Keys(tmp_path / "keys").init()
    assert list(tmp_path.iterdir()) == []


def test_what_a_board_needs_is_in_one_folder(keys: Keys) -> None:
    made = keys.issue_board("euler", ("192.168.1.20",), 30)
    assert {path.name for path in made.folder.iterdir()} == {"board.key", "board.pem", "ca.pem", "revoked.txt"}
    assert made.certificate.until == NOW + timedelta(days=30)
    assert b"PRIVATE" not in b"".join(
        content for name, content in tree(made.folder).items() if not name.endswith(".key")
    )
    assert (made.folder / "ca.pem").read_bytes() == (keys.folder / "ca.pem").read_bytes()


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


def test_a_renewal_that_fails_keeps_the_old_folder(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    first = keys.issue_board("euler", ("192.168.1.20",))
    keys.revoke("euler")
    before = tree(first.folder)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ProfagentError, match="No space left"):
        keys.issue_board("euler", ("192.168.1.20",))
    assert tree(first.folder) == before


def test_revoking_reaches_the_list_and_every_folder_to_copy(keys: Keys) -> None:
    board, host = keys.issue_board("euler", ("192.168.1.20",)), keys.issue_host("ci", "viewer")
    assert keys.revoke("ci") == [host.certificate]
    line = f"{host.certificate.fingerprint}  # host ci, 2026-11-21\n"
    for folder in (keys.folder, board.folder, host.folder):
        assert (folder / "revoked.txt").read_text().endswith(line)
    assert {entry.certificate.name for entry in keys.entries() if entry.revoked} == {"ci"}


@pytest.mark.parametrize("form", [str, str.upper, lambda text: text[:8], lambda text: f"{text[:2]}:{text[2:8]}"])
def test_a_fingerprint_may_be_short_and_have_colons(keys: Keys, form: object) -> None:
    host = keys.issue_host("ci", "viewer").certificate
    assert keys.revoke(form(host.fingerprint)) == [host]  # type: ignore[operator]


def test_what_cannot_be_revoked_is_said(keys: Keys) -> None:
    for what in ("nobody", "", "ab", "lab", Credentials.read(keys.folder).authority.fingerprint):
        with pytest.raises(UsageError, match="issued nothing"):
            keys.revoke(what)
    keys.issue_host("ci", "viewer")
    keys.revoke("ci")
    with pytest.raises(UsageError, match="revoked already"):
        keys.revoke("ci")
    keys.issue_host("euler", "viewer")
    keys.issue_board("euler", ("192.168.1.20",))
    with pytest.raises(UsageError, match="a board and a host"):
        keys.revoke("euler")


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "ä", "x" * 64, "a b"])
def test_names_are_plain(keys: Keys, name: str) -> None:
    with pytest.raises(UsageError, match="is no name"):
        keys.issue_host(name, "viewer")


def test_a_board_has_an_address(keys: Keys) -> None:
    with pytest.raises(UsageError, match="needs an address"):
        keys.issue_board("euler", ())


def test_without_a_workshop_nothing_is_issued(tmp_path: Path) -> None:
    for act in (
        Keys(tmp_path).entries,
        lambda: Keys(tmp_path).revoke("x"),
        lambda: Keys(tmp_path).issue_host("x", "viewer"),
    ):
        with pytest.raises(UsageError, match="holds no keys") as error:
            act()
        assert "keys init" in error.value.hint


def test_an_authority_whose_key_others_may_read_issues_nothing(keys: Keys) -> None:
    (keys.folder / "ca.key").chmod(0o644)
    with pytest.raises(UsageError, match="others than its owner"):
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


def test_what_has_expired_is_listed_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "keys"
    long_ago = Keys(folder, datetime.now(UTC) - timedelta(days=9))
    long_ago.init("lab")
    long_ago.issue_host("over", "viewer", days=8)
    long_ago.issue_host("gone", "viewer", days=8)
    long_ago.issue_host("going-on", "viewer", days=10)
    long_ago.revoke("gone")
    assert run(["keys", "list", "--keys", str(folder)]) == 0
    lines = {words[1]: words for words in map(str.split, capsys.readouterr().out.splitlines()) if len(words) > 1}
    assert [lines[name][4] for name in ("over", "gone", "going-on")] == ["expired", "revoked", "valid"]
    assert run(["keys", "list", "--keys", str(folder), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {entry["name"] for entry in listed if entry["expired"]} == {"over", "gone"}


def test_the_default_folder_is_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert run(["keys", "init"]) == 0
    assert (tmp_path / "profagent" / "keys" / "ca.pem").exists()
    assert run(["keys", "init"]) == 2
    assert "holds keys already" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["issue", "host", "ci", "--role", "king"], ["issue", "host", "ci", "--days", "0"], ["issue", "board"]]
)
def test_a_command_line_that_cannot_be_right_is_refused(arguments: list[str]) -> None:
    assert run(["keys", *arguments]) == 2
