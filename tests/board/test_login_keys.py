"""With which keys a real OpenSSH server is tried: of agents and files, encrypted or not, and what a person is asked."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from profagent.errors import RefusedError
from profagent.ssh.connection import connect
from tests.board.askers import Nobody, Ready
from tests.board.sshd import Sshd, make_key, public_key, running_sshd
from tests.board.terminal import at_terminal, login_command, without_terminal

PASSPHRASE = "open sesame"
# sshd counts a key that it does not take as a failure; one is left for the right one.
FEW = "MaxAuthTries 2"


async def whoami(target: str, asker: Nobody | Ready | None = None) -> str:
    async with connect(target, asker or Nobody()) as remote:
        return (await remote.must("id -un")).text


@contextmanager
def agent(socket: Path, *keys: Path) -> Iterator[str]:
    """An agent with these keys; its socket."""
    process = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        for key in keys:
            subprocess.run(["ssh-add", "-q", key], check=True, env={**os.environ, "SSH_AUTH_SOCK": str(socket)})
        yield str(socket)
    finally:
        process.terminate()
        process.communicate()


@pytest.fixture(scope="module")
def picky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A server that ends the login after a wrong key or two."""
    with running_sshd(tmp_path_factory.mktemp("picky"), settings=FEW) as server:
        yield server


@pytest.fixture
def known_picky(home: Path, picky: Sshd) -> Sshd:
    (home / ".ssh" / "known_hosts").write_text(picky.known, "ascii")
    return picky


def wrong_keys(folder: Path, count: int) -> list[Path]:
    return [make_key(folder / f"wrong{number}") for number in range(count)]


def configure(home: Path, *lines: str) -> None:
    (home / ".ssh" / "config").write_text("".join(f"{line}\n" for line in lines), "ascii")


@contextmanager
def allowed(sshd: Sshd, key: Path) -> Iterator[None]:
    """One more key lets in."""
    file = sshd.folder / "authorized_keys"
    before = file.read_text("ascii")
    file.write_text(before + public_key(key) + "\n", "ascii")
    try:
        yield
    finally:
        file.write_text(before, "ascii")


async def test_an_agent_has_the_key(home: Path, friend: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".ssh" / "id_ed25519").unlink()
    with agent(home / "agent", friend.key) as socket:
        monkeypatch.setenv("SSH_AUTH_SOCK", socket)
        assert await whoami(friend.target) == friend.user


async def test_the_passphrase_of_a_key_is_asked_for(home: Path, friend: Sshd) -> None:
    (home / ".ssh" / "id_ed25519").unlink()
    key = make_key(home / ".ssh" / "id_ed25519", PASSPHRASE)
    with allowed(friend, key):
        person = Ready(PASSPHRASE)
        assert await whoami(friend.target, person) == friend.user
        assert person.asked == [f"Passphrase of the key {key}: "]


async def test_an_agent_with_many_keys_is_told_to_be_narrowed(
    home: Path, known_picky: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agent(home / "agent", *wrong_keys(tmp_path, 3), known_picky.key) as socket:
        monkeypatch.setenv("SSH_AUTH_SOCK", socket)
        with pytest.raises(RefusedError, match="Too many authentication failures") as refused:
            await whoami(known_picky.target)
    assert "IdentitiesOnly" in refused.value.hint


@pytest.mark.parametrize("only", ["yes", "no"])
async def test_the_key_that_is_named_comes_first_of_an_agents(
    home: Path, known_picky: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only: str
) -> None:
    """Its private half is nowhere but in the agent."""
    (home / ".ssh" / "board.pub").write_text(public_key(known_picky.key) + "\n", "ascii")
    with agent(home / "agent", *wrong_keys(tmp_path, 3), known_picky.key) as socket:
        monkeypatch.setenv("SSH_AUTH_SOCK", socket)
        for name in ("board", "board.pub"):
            configure(home, f"IdentityFile ~/.ssh/{name}", f"IdentitiesOnly {only}")
            assert await whoami(known_picky.target) == known_picky.user


async def test_other_keys_of_an_agent_stay_out_where_only_named_ones_are_wished(
    home: Path, friend: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".ssh" / "id_ed25519").unlink()
    configure(home, f"IdentityFile {make_key(tmp_path / 'other')}", "IdentitiesOnly yes")
    with agent(home / "agent", friend.key) as socket:
        monkeypatch.setenv("SSH_AUTH_SOCK", socket)
        with pytest.raises(RefusedError, match="does not let"):
            await whoami(friend.target)
        configure(home, "IdentityFile ~/.ssh/nowhere", "IdentitiesOnly yes")
        with pytest.raises(RefusedError, match="does not let"):
            await whoami(friend.target)


async def test_the_agent_may_be_another_or_none(
    home: Path, friend: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".ssh" / "id_ed25519").unlink()
    with agent(home / "agent", friend.key) as socket:
        configure(home, f"IdentityAgent {socket}")
        assert await whoami(friend.target) == friend.user
        monkeypatch.setenv("OTHER_AGENT", socket)
        configure(home, "IdentityAgent $OTHER_AGENT")
        assert await whoami(friend.target) == friend.user
        monkeypatch.setenv("SSH_AUTH_SOCK", socket)
        configure(home, "IdentityAgent SSH_AUTH_SOCK")
        assert await whoami(friend.target) == friend.user
        configure(home, "IdentityAgent none")
        with pytest.raises(RefusedError, match="does not let"):
            await whoami(friend.target)


async def test_an_agent_that_has_gone_is_no_obstacle(home: Path, friend: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(home / "nowhere"))
    assert await whoami(friend.target) == friend.user


async def test_a_certificate_lets_in(home: Path, tmp_path: Path) -> None:
    authority, key = make_key(tmp_path / "ca"), make_key(home / ".ssh" / "id_ed25519")
    settings = f"TrustedUserCAKeys {authority}.pub"
    with running_sshd(tmp_path / "sshd", settings=settings) as sshd:
        (home / ".ssh" / "known_hosts").write_text(sshd.known, "ascii")
        signing = ["ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", sshd.user, f"{key}.pub"]
        subprocess.run(signing, check=True, capture_output=True)  # noqa: ASYNC221 - the loop may wait for so little
        assert await whoami(sshd.target) == sshd.user
        certificate = key.with_name("id_ed25519-cert.pub").rename(tmp_path / "elsewhere-cert.pub")
        with pytest.raises(RefusedError, match="does not let"):
            await whoami(sshd.target)
        configure(home, f"CertificateFile {certificate}")
        assert await whoami(sshd.target) == sshd.user


def locked_pem(path: Path) -> Path:
    """An encrypted key in the old form, which tells nothing of its public half; that goes to another folder."""
    making = ["ssh-keygen", "-q", "-m", "PEM", "-t", "ecdsa", "-N", PASSPHRASE, "-C", "test", "-f", str(path)]
    subprocess.run(making, check=True)
    (path.parent / "apart").mkdir()
    Path(f"{path}.pub").rename(path.parent / "apart" / f"{path.name}.pub")
    return path


async def test_the_passphrase_of_a_pem_key_without_its_public_half_is_asked_for(home: Path, friend: Sshd) -> None:
    (home / ".ssh" / "id_ed25519").unlink()
    key = locked_pem(home / ".ssh" / "id_ecdsa")
    with allowed(friend, home / ".ssh" / "apart" / "id_ecdsa"):
        person = Ready(PASSPHRASE)
        assert await whoami(friend.target, person) == friend.user
        assert person.asked == [f"Passphrase of the key {key}: "]


def test_the_passphrase_of_a_pem_key_comes_from_a_terminal_or_askpass(home: Path, friend: Sshd) -> None:
    (home / ".ssh" / "id_ed25519").unlink()
    key = locked_pem(home / ".ssh" / "id_ecdsa")
    with allowed(friend, home / ".ssh" / "apart" / "id_ecdsa"):
        with at_terminal(*login_command(friend.target)) as terminal:
            terminal.until(f"Passphrase of the key {key}: ")
            terminal.type("wrong")
            terminal.until(": \nPassphrase of the key")
            terminal.type(PASSPHRASE)
            assert terminal.ended() == 0, terminal.seen
        program = home / "askpass"
        program.write_text(f"#!/bin/sh\necho '{PASSPHRASE}'\n", "ascii")
        program.chmod(0o700)
        ended = without_terminal(*login_command(friend.target), SSH_ASKPASS=str(program))
        assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("form", ["RFC4716", "PEM"])
async def test_a_passphrase_is_asked_for_three_times_and_then_the_next_key_is_tried(
    home: Path, friend: Sshd, form: str
) -> None:
    locked = locked_pem(home / ".ssh" / "id_ecdsa")
    if form != "PEM":
        locked.unlink()
        make_key(locked, PASSPHRASE)
    apart = home / ".ssh" / "apart" / "id_ecdsa" if form == "PEM" else locked
    second = make_key(home / "second", PASSPHRASE)
    (home / ".ssh" / "id_ed25519").unlink()
    configure(home, f"IdentityFile {locked}", f"IdentityFile {second}")
    with allowed(friend, apart), allowed(friend, second):
        person = Ready("wrong")
        with pytest.raises(RefusedError, match="does not let"):
            await whoami(friend.target, person)
    assert person.asked == [
        f"Passphrase of the key {key}: " for key in (locked, locked, locked, second, second, second)
    ]


async def test_a_key_that_the_server_does_not_take_is_not_opened(home: Path, friend: Sshd) -> None:
    make_key(home / ".ssh" / "id_ecdsa", PASSPHRASE, "ecdsa")
    (home / ".ssh" / "id_ed25519").unlink()
    person = Ready(PASSPHRASE)
    with pytest.raises(RefusedError, match="does not let"):
        await whoami(friend.target, person)
    assert person.asked == []


async def test_a_file_that_holds_no_key_is_passed_over_and_named_at_the_end(home: Path, friend: Sshd) -> None:
    damaged = home / ".ssh" / "id_rsa"
    damaged.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nnothing\n", "ascii")
    assert await whoami(friend.target) == friend.user
    (home / ".ssh" / "id_ed25519").unlink()
    with pytest.raises(RefusedError, match=f"cannot be used: {damaged}: "):
        await whoami(friend.target)


async def test_a_key_and_a_password_may_both_be_wanted(home: Path, tmp_path: Path) -> None:
    settings = "AuthenticationMethods publickey,password"
    with running_sshd(tmp_path / "both", password=PASSPHRASE, settings=f"{settings}\nPermitRootLogin yes") as sshd:
        (home / ".ssh" / "known_hosts").write_text(sshd.known, "ascii")
        (home / ".ssh" / "id_ed25519").symlink_to(sshd.key)
        person = Ready(PASSPHRASE)
        assert await whoami(sshd.target, person) == sshd.user
        assert person.asked == [f"{sshd.user}@127.0.0.1's password: "]


@pytest.fixture(scope="module")
def interactive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A server that asks by PAM: keyboard-interactive, and no other password."""
    settings = "UsePAM yes\nKbdInteractiveAuthentication yes\nPasswordAuthentication no"
    with running_sshd(tmp_path_factory.mktemp("pam"), password=PASSPHRASE, settings=settings) as server:
        yield server


def test_a_server_asks_by_keyboard_interactive(home: Path, interactive: Sshd) -> None:
    (home / ".ssh" / "known_hosts").write_text(interactive.known, "ascii")
    with at_terminal(*login_command(interactive.target)) as terminal:
        terminal.until(f"({interactive.user}@127.0.0.1) Password: ")
        terminal.type(PASSPHRASE)
        assert terminal.ended() == 0, terminal.seen
        assert "logged in:" in terminal.seen
        assert PASSPHRASE not in terminal.seen


async def test_nobody_answers_a_keyboard_interactive_server(home: Path, interactive: Sshd) -> None:
    (home / ".ssh" / "known_hosts").write_text(interactive.known, "ascii")
    with pytest.raises(RefusedError, match="does not let"):
        await whoami(interactive.target)
    person = Ready("wrong")
    with pytest.raises(RefusedError, match="does not let"):
        await whoami(interactive.target, person)
    assert len(person.asked) == 3
