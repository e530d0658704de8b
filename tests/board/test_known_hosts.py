"""What ~/.ssh says of host keys, and a real OpenSSH server: StrictHostKeyChecking, hashed names, authorities."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from profagent.errors import RefusedError, UsageError
from profagent.ssh.connection import connect
from tests.board.askers import Nobody, Ready
from tests.board.sshd import Sshd, make_key, public_key, running_sshd


async def whoami(target: str, asker: Nobody | Ready | None = None) -> str:
    async with connect(target, asker or Nobody()) as remote:
        return (await remote.must("id -un")).text


@pytest.fixture
def stranger(home: Path, sshd: Sshd) -> Sshd:
    """A server of which only the key to log in with is at home."""
    (home / ".ssh" / "id_ed25519").symlink_to(sshd.key)
    return sshd


def configure(home: Path, *lines: str) -> None:
    (home / ".ssh" / "config").write_text("".join(f"{line}\n" for line in lines), "ascii")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("authority") / "ca")


def certify(host_key: Path, authority: Path, principals: str) -> None:
    signing = ["ssh-keygen", "-q", "-s", str(authority), "-I", "board", "-h", "-n", principals]
    subprocess.run([*signing, f"{host_key}.pub"], check=True, capture_output=True)


def found_by_ssh(name: str, known_hosts: Path) -> str:
    """What OpenSSH's own tool finds under a name."""
    searching = ["ssh-keygen", "-F", name, "-f", str(known_hosts)]
    return subprocess.run(searching, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory, authority: Path) -> Iterator[Sshd]:
    """A server that shows a certificate for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("certified")
    certify(make_key(folder / "host"), authority, "127.0.0.1")
    with running_sshd(folder, settings=f"HostCertificate {folder}/host-cert.pub") as server:
        yield server


@pytest.fixture
def certified_stranger(home: Path, certified: Sshd) -> Sshd:
    (home / ".ssh" / "id_ed25519").symlink_to(certified.key)
    return certified


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("%d/.ssh/%h.known", "127.0.0.1.known"),
        ("~/.ssh/%n-%r.known", "euler-{user}.known"),
        ("${HOME}/.ssh/%k.known", "board.known"),
    ],
)
async def test_tokens_in_the_name_of_a_known_hosts_file(home: Path, stranger: Sshd, file: str, named: str) -> None:
    alias = ["HostKeyAlias board"] if "%k" in file else []
    host = ("Host euler", "HostName 127.0.0.1", f"Port {stranger.port}", f"User {stranger.user}")
    configure(home, *host, f"UserKnownHostsFile {file}", "HashKnownHosts no", *alias)
    assert await whoami("euler", Ready()) == stranger.user
    written = (home / ".ssh" / named.format(user=stranger.user)).read_text("ascii")
    assert written == (f"board {public_key(stranger.folder / 'host')}\n" if alias else stranger.known)
    assert await whoami("euler") == stranger.user
    assert not (home / ".ssh" / "known_hosts").exists()


async def test_no_known_hosts_file_at_all(home: Path, stranger: Sshd) -> None:
    configure(home, "UserKnownHostsFile none", "GlobalKnownHostsFile none")
    for _ in range(2):
        person = Ready()
        assert await whoami(stranger.target, person) == stranger.user
        assert len(person.asked) == 1
    assert not (home / ".ssh" / "known_hosts").exists()


async def test_names_are_hashed_where_that_is_wished(home: Path, stranger: Sshd) -> None:
    configure(home, "HashKnownHosts yes")
    assert await whoami(stranger.target, Ready()) == stranger.user
    known = home / ".ssh" / "known_hosts"
    assert known.read_text("ascii").startswith("|1|")
    assert "127.0.0.1" not in known.read_text("ascii")
    assert public_key(stranger.folder / "host") in found_by_ssh(f"[127.0.0.1]:{stranger.port}", known)
    assert await whoami(stranger.target) == stranger.user


async def test_an_unknown_key_is_not_asked_about_where_checking_is_strict(home: Path, stranger: Sshd) -> None:
    configure(home, "StrictHostKeyChecking yes")
    person = Ready()
    with pytest.raises(RefusedError, match="StrictHostKeyChecking is yes") as refused:
        await whoami(stranger.target, person)
    assert person.asked == []
    assert stranger.fingerprint in str(refused.value)
    assert f"ssh -o StrictHostKeyChecking=ask -p {stranger.port} " in refused.value.hint


@pytest.mark.parametrize("value", ["accept-new", "no", "off"])
async def test_an_unknown_key_is_taken_unasked_where_that_is_wished(home: Path, stranger: Sshd, value: str) -> None:
    configure(home, f"StrictHostKeyChecking {value}", "HashKnownHosts no")
    assert await whoami(stranger.target) == stranger.user
    assert (home / ".ssh" / "known_hosts").read_text("ascii") == stranger.known


@pytest.mark.parametrize("value", ["accept-new", "no"])
async def test_a_changed_key_is_refused_whatever_is_wished(home: Path, stranger: Sshd, value: str) -> None:
    configure(home, f"StrictHostKeyChecking {value}")
    known = home / ".ssh" / "known_hosts"
    known.write_text(f"[127.0.0.1]:{stranger.port} {public_key(make_key(home / 'other'))}\n", "ascii")
    with pytest.raises(RefusedError, match="has changed") as refused:
        await whoami(stranger.target)
    assert f"-f '{known}'" in refused.value.hint


async def test_a_setting_that_is_none_is_named(home: Path, stranger: Sshd) -> None:
    configure(home, "StrictHostKeyChecking sometimes")
    with pytest.raises(UsageError, match="StrictHostKeyChecking sometimes"):
        await whoami(stranger.target)


async def test_the_key_of_an_alias_stands_without_its_port(home: Path, stranger: Sshd) -> None:
    configure(home, "HostKeyAlias Board-7")
    key = public_key(stranger.folder / "host")
    (home / ".ssh" / "known_hosts").write_text(f"board-7 {key}\n", "ascii")
    assert await whoami(stranger.target) == stranger.user
    (home / ".ssh" / "known_hosts").write_text(stranger.known, "ascii")
    with pytest.raises(RefusedError, match="board-7"):
        await whoami(stranger.target)


@pytest.mark.parametrize("name", ["*", "[127.0.0.*]:*"])
async def test_an_authority_vouches_for_a_host(
    home: Path, certified_stranger: Sshd, authority: Path, name: str
) -> None:
    line = f"@cert-authority {name} {public_key(authority)}\n"
    (home / ".ssh" / "known_hosts").write_text(line, "ascii")
    assert await whoami(certified_stranger.target) == certified_stranger.user
    assert (home / ".ssh" / "known_hosts").read_text("ascii") == line


async def test_an_authority_that_is_revoked_vouches_for_nobody(
    home: Path, certified_stranger: Sshd, authority: Path
) -> None:
    lines = (f"@{marker} * {public_key(authority)}\n" for marker in ("cert-authority", "revoked"))
    (home / ".ssh" / "known_hosts").write_text("".join(lines), "ascii")
    with pytest.raises(RefusedError, match="is not known"):
        await whoami(certified_stranger.target)


async def test_a_revoked_key_is_refused_with_its_certificate(
    home: Path, certified_stranger: Sshd, authority: Path
) -> None:
    key = public_key(certified_stranger.folder / "host")
    lines = (f"@cert-authority * {public_key(authority)}\n", f"@revoked * {key}\n", certified_stranger.known)
    (home / ".ssh" / "known_hosts").write_text("".join(lines), "ascii")
    with pytest.raises(RefusedError, match="is revoked"):
        await whoami(certified_stranger.target, Ready())


async def test_the_key_of_a_host_without_a_certificate_is_looked_for_beside_authorities(
    home: Path, stranger: Sshd, authority: Path
) -> None:
    line = f"@cert-authority * {public_key(authority)}\n"
    (home / ".ssh" / "known_hosts").write_text(line, "ascii")
    with pytest.raises(RefusedError, match="is not known"):
        await whoami(stranger.target)
    (home / ".ssh" / "known_hosts").write_text(line + stranger.known, "ascii")
    assert await whoami(stranger.target) == stranger.user


async def test_a_certificate_for_another_name_is_as_good_as_none(
    home: Path, certified_stranger: Sshd, authority: Path
) -> None:
    configure(home, "HostKeyAlias board")
    line = f"@cert-authority * {public_key(authority)}\n"
    (home / ".ssh" / "known_hosts").write_text(line, "ascii")
    with pytest.raises(RefusedError, match="is not known"):
        await whoami(certified_stranger.target)
    key = public_key(certified_stranger.folder / "host")
    (home / ".ssh" / "known_hosts").write_text(f"{line}board {key}\n", "ascii")
    assert await whoami(certified_stranger.target) == certified_stranger.user


@pytest.mark.parametrize("kinds", ["+ssh-rsa", "-ssh-dss", "+ssh-*", "^ssh-ed25519"])
async def test_kinds_that_are_added_or_taken_away_leave_the_known_key_first(
    home: Path, several_keys: Sshd, kinds: str
) -> None:
    configure(home, f"HostKeyAlgorithms {kinds}")
    (home / ".ssh" / "known_hosts").write_text(several_keys.known, "ascii")
    assert await whoami(several_keys.target) == several_keys.user


async def test_a_kind_that_is_taken_away_is_not_asked_for(home: Path, several_keys: Sshd) -> None:
    configure(home, "HostKeyAlgorithms -ssh-ed*")
    (home / ".ssh" / "known_hosts").write_text(several_keys.known, "ascii")
    with pytest.raises(RefusedError, match=r"ssh-rsa .* is not the known"):
        await whoami(several_keys.target)


@pytest.fixture
def several_keys(home: Path, tmp_path: Path) -> Iterator[Sshd]:
    """A server that has an RSA key, too."""
    folder = tmp_path / "several"
    folder.mkdir()
    rsa = make_key(folder / "rsa", kind="rsa")
    with running_sshd(folder, settings=f"HostKey {rsa}") as server:
        (home / ".ssh" / "id_ed25519").symlink_to(server.key)
        yield server
