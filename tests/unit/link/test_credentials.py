"""Which boards are reached over TLS, and the keys for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagent.errors import UsageError
from profagent.keys.keys import Keys
from profagent.link.credentials import Access, Credentials, KnownBoard, default_keys, is_local


def at(address: str) -> KnownBoard:
    return KnownBoard(address, address)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys") / "keys"
    Keys(folder).init("lab")
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A host's folder, of the test's own."""
    host = tmp_path / "config" / "profagent" / "keys"
    host.mkdir(parents=True)
    for name in ("ca.pem", "host.pem", "host.key", "revoked.txt"):
        (host / name).write_bytes((original / name).read_bytes())
    (host / "host.key").chmod(0o600)
    return host


@pytest.fixture
def is_default(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is where keys are looked for."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder.parents[1]))


def test_default_keys_are_in_the_users_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/c")
    assert default_keys() == Path("/c/profagent/keys")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_keys() == Path("/home/me/.config/profagent/keys")


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:1", True),
        ("127.8.9.1:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("127.0.0.2", True),
        ("192.0.2.1", False),
        ("unix:/run/d.sock", True),
        ("192.168.1.20:1", False),
        ("0.0.0.0:1", False),
        ("[fe80::1]:1", False),
        ("euler:1", False),
        ("localhost.example:1", False),
    ],
)
@pytest.mark.usefixtures("is_default")
def test_what_leaves_this_host_goes_over_tls(address: str, local: bool, folder: Path) -> None:
    assert is_local(address) is local
    credentials = Access().credentials(at(address))
    assert (credentials is None) is local
    if credentials is not None:
        assert credentials.folder == folder


def test_keys_that_are_named_are_used_for_local_boards_too(folder: Path) -> None:
    credentials = Access(folder).credentials(at("127.0.0.1:1"))
    assert credentials is not None
    assert (credentials.own.kind, credentials.own.role, credentials.authority.name) == ("host", "operator", "lab")


@pytest.mark.usefixtures("is_default")
def test_insecure_is_plain_text_to_any() -> None:
    assert Access(insecure=True).credentials(at("192.168.1.20:1")) is None


def test_without_keys_a_board_that_is_not_local_is_not_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"no keys for the board at euler:1") as error:
        Access().credentials(at("euler:1"))
    assert error.value.hint.startswith("--via ssh")
    assert "`profagent boards`" in error.value.hint
    assert "profagent keys init" in error.value.hint


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "euler:0", "euler:", "euler:ssh", "[::1]:-1", "fe80::abcd"])
def test_a_port_that_none_can_have_is_refused(address: str) -> None:
    for access, board in ((Access(), address), (Access(known={"euler": KnownBoard("euler", address)}), "euler")):
        with pytest.raises(UsageError, match="is no port"):
            access.check(board)


def test_options_that_contradict_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="exclude"):
        Access(folder, insecure=True).credentials(at("127.0.0.1:1"))
    with pytest.raises(UsageError, match="Unix socket"):
        Access(folder).credentials(at("unix:/run/d.sock"))


def test_a_list_of_the_revoked_may_be_missing(folder: Path) -> None:
    (folder / "revoked.txt").unlink()
    assert Credentials.read(folder).revoked == frozenset()
    credentials = Access(folder).credentials(at("192.168.1.20:1"))
    assert credentials is not None
    assert credentials.revoked == frozenset()


def test_a_list_that_vanishes_or_is_emptied_frees_nobody(folder: Path) -> None:
    access = Access(folder)
    access.credentials(at("192.168.1.20:1"))
    listed = (folder / "revoked.txt").read_bytes()
    (folder / "revoked.txt").write_bytes(b"")
    with pytest.raises(UsageError, match="is empty"):
        access.credentials(at("192.168.1.20:1"))
    (folder / "revoked.txt").unlink()
    with pytest.raises(UsageError, match="has vanished") as caught:
        access.credentials(at("192.168.1.20:1"))
    assert "copy it anew" in caught.value.hint
    (folder / "revoked.txt").write_bytes(listed)
    assert access.credentials(at("192.168.1.20:1")) is not None


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_key_that_others_may_read_is_refused(folder: Path, mode: int) -> None:
    (folder / "host.key").chmod(mode)
    with pytest.raises(UsageError, match="others than its owner") as error:
        Credentials.read(folder)
    assert error.value.hint.startswith("chmod 600")


def test_what_is_no_certificate_is_named(folder: Path) -> None:
    (folder / "host.pem").write_text("nothing")
    with pytest.raises(UsageError, match=r"host\.pem holds no certificate"):
        Credentials.read(folder)


@pytest.mark.parametrize(
    "key", [b"", b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"]
)
def test_what_is_no_key_is_named_and_nobody_is_asked_for_a_passphrase(folder: Path, key: bytes) -> None:
    (folder / "host.key").write_bytes(key)
    with pytest.raises(UsageError, match="no certificate with its key"):
        Access(folder).check("127.0.0.1:1")


@pytest.mark.usefixtures("is_default")
def test_a_tunnel_to_a_daemon_with_tls_goes_over_tls(folder: Path) -> None:
    tunnel = KnownBoard("euler", "unix:/tmp/0", tls_name="192.168.1.20")
    for access in (Access(), Access(folder)):
        credentials = access.credentials(tunnel)
        assert credentials is not None
        assert credentials.folder == folder
