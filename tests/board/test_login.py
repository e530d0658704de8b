"""Logging in to a real OpenSSH server: with what people have in ~/.ssh, and what they are told when it fails."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from profagent.errors import RefusedError, UnreachableError, UsageError
from profagent.ssh.connection import PasswordAsker, connect
from tests.board.sshd import Nobody, Ready, Sshd, make_key, public_key, running_sshd
from tests.board.terminal import at_terminal, login_command, without_terminal
from tests.integration.board import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PASSWORD = "not a word"


async def whoami(target: str, asker: Nobody | Ready | None = None) -> str:
    async with connect(target, asker or Nobody()) as remote:
        return (await remote.must("id -un")).text


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A server that takes a password, asked for in either way."""
    asks = "UsePAM yes\nKbdInteractiveAuthentication yes"
    with running_sshd(tmp_path_factory.mktemp("guarded"), password=PASSWORD, settings=asks) as server:
        yield server


@pytest.fixture
def guarded_friend(home: Path, guarded: Sshd) -> Sshd:
    """The same, known at home."""
    (home / ".ssh" / "known_hosts").write_text(guarded.known, "ascii")
    return guarded


def configure(home: Path, *lines: str) -> None:
    (home / ".ssh" / "config").write_text("".join(f"{line}\n" for line in lines), "ascii")


def askpass(folder: Path, answer: str) -> str:
    program = folder / "askpass"
    program.write_text(f"#!/bin/sh\necho \"$1\" >>{folder}/asked\necho '{answer}'\n", "ascii")
    program.chmod(0o700)
    return str(program)


async def test_the_key_at_home_lets_in(friend: Sshd) -> None:
    assert await whoami(friend.target) == friend.user


async def test_a_wrong_key_is_refused_with_what_to_do(home: Path, friend: Sshd) -> None:
    (home / ".ssh" / "id_ed25519").unlink()
    make_key(home / ".ssh" / "id_ed25519")
    with pytest.raises(RefusedError, match=r"refuses .*: it accepted no key") as refused:
        await whoami(friend.target)
    assert "ssh-copy-id" in refused.value.hint
    assert "after `passwd` on the board's console" in refused.value.hint


async def test_an_alias_of_the_configuration_brings_port_user_and_key(home: Path, sshd: Sshd) -> None:
    (home / ".ssh" / "known_hosts").write_text(sshd.known, "ascii")
    at = ("HostName 127.0.0.1", f"Port {sshd.port}", f"User {sshd.user}", f"IdentityFile {sshd.key}")
    configure(home, "Host euler", *at, "IdentitiesOnly yes", "Host *", "ProxyJump none")
    async with connect("euler", Nobody()) as remote:
        assert remote.host == "127.0.0.1"
        assert (await remote.must("echo $SSH_CONNECTION")).text.endswith(str(sshd.port))


@pytest.mark.parametrize("way", ["ProxyJump", "ProxyCommand"])
async def test_another_host_leads_to_the_board(home: Path, friend: Sshd, guarded: Sshd, way: str) -> None:
    (home / ".ssh" / "known_hosts").write_text(friend.known + guarded.known, "ascii")
    (home / "other").symlink_to(guarded.key)
    ways = {
        "ProxyJump": f"{friend.user}@127.0.0.1:{friend.port},second",
        "ProxyCommand": f"ssh -F {home}/.ssh/config -i {guarded.key} -W %h:%p"
        f" -o UserKnownHostsFile={home}/.ssh/known_hosts -p {guarded.port} {guarded.user}@127.0.0.1",
    }
    second = ("Host second", "HostName 127.0.0.1", f"Port {guarded.port}", "IdentityFile ~/other")
    configure(home, "Host behind", "HostName 127.0.0.1", f"Port {friend.port}", f"{way} {ways[way]}", *second)
    async with connect("behind", Nobody()) as remote:
        await remote.must("true")
        assert len(guarded.sessions()) == 1
    assert eventually(lambda: not friend.sessions() and not guarded.sessions())


async def test_the_key_of_an_agent_lets_in(home: Path, friend: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".ssh" / "id_ed25519").unlink()
    address = home / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", address], stdout=subprocess.DEVNULL)  # noqa: ASYNC220
    try:
        assert eventually(address.exists)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(address))
        subprocess.run(["ssh-add", "-q", friend.key], check=True)  # noqa: ASYNC221 - the loop may wait for so little
        assert await whoami(friend.target) == friend.user
    finally:
        agent.kill()
        agent.wait()


async def test_the_passphrase_of_a_key_is_asked_for(home: Path, friend: Sshd) -> None:
    (home / ".ssh" / "id_ed25519").unlink()
    key = make_key(home / ".ssh" / "id_ed25519", PASSWORD)
    # One that the server does not take, and one of which nobody knows without its passphrase what it is.
    make_key(home / ".ssh" / "id_ecdsa", PASSWORD, "ecdsa")
    making = ["ssh-keygen", "-q", "-m", "PEM", "-t", "rsa", "-N", PASSWORD, "-f", str(home / ".ssh" / "id_rsa")]
    subprocess.run(making, check=True)  # noqa: ASYNC221 - the loop may wait for so little
    (home / ".ssh" / "id_rsa.pub").unlink()
    person = Ready(PASSWORD)
    allowed = friend.folder / "authorized_keys"
    before = allowed.read_text("ascii")
    allowed.write_text(public_key(key) + "\n", "ascii")
    try:
        assert await whoami(friend.target, person) == friend.user
        assert person.asked == [f"Passphrase of the key {key}: "]
        with pytest.raises(RefusedError, match="accepted no key and no password"):
            await whoami(friend.target, Ready("wrong"))
    finally:
        allowed.write_text(before, "ascii")


async def test_an_unknown_host_is_accepted_once_and_then_known(home: Path, friend: Sshd) -> None:
    known = home / ".ssh" / "known_hosts"
    known.write_text("other.example ssh-ed25519 damaged", "ascii")
    person = Ready()
    assert await whoami(friend.target, person) == friend.user
    assert friend.fingerprint in person.asked[0]
    assert known.read_text("ascii").splitlines()[1:] == [friend.known.rstrip()]
    assert await whoami(friend.target) == friend.user


async def test_a_changed_host_key_is_refused_whoever_is_there(home: Path, friend: Sshd) -> None:
    other = public_key(make_key(home / "other"))
    (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{friend.port} {other}", "ascii")
    person = Ready()
    with pytest.raises(RefusedError, match="has changed") as refused:
        await whoami(friend.target, person)
    assert f"ssh-keygen -R '[127.0.0.1]:{friend.port}'" in refused.value.hint
    assert person.asked == []
    (home / ".ssh" / "known_hosts").write_text(f"@revoked {friend.known}", "ascii")
    with pytest.raises(RefusedError, match="revoked"):
        await whoami(friend.target, person)


@pytest.mark.parametrize("answer", ["yes", "no"])
def test_an_unknown_host_is_asked_about_at_the_terminal(home: Path, friend: Sshd, answer: str) -> None:
    known = home / ".ssh" / "known_hosts"
    known.unlink()
    with at_terminal(*login_command(friend.target)) as terminal:
        terminal.until("(yes/no) ")
        assert friend.fingerprint in terminal.seen
        terminal.type(answer)
        assert terminal.ended() == (0 if answer == "yes" else 1), terminal.seen
        assert ("logged in:" if answer == "yes" else "was not accepted") in terminal.seen
    assert (known.exists() and known.read_text("ascii")) == (answer == "yes" and friend.known)
    assert answer == "no" or known.stat().st_mode & 0o777 == 0o600


def test_without_a_terminal_an_unknown_host_is_refused_with_its_fingerprint(home: Path, friend: Sshd) -> None:
    (home / ".ssh" / "known_hosts").unlink()
    ended = without_terminal(*login_command(friend.target), SSH_ASKPASS=askpass(home, "yes"))
    assert ended.returncode == 1
    assert "no terminal to ask at" in ended.stderr
    assert friend.fingerprint in ended.stderr
    assert "ssh-keygen -lf" in ended.stderr
    assert not (home / "asked").exists()


def test_a_password_is_asked_for_at_the_terminal_and_not_shown(home: Path, guarded_friend: Sshd) -> None:
    configure(home, "PreferredAuthentications password")
    with at_terminal(*login_command(guarded_friend.target)) as terminal:
        terminal.until("password: ")
        terminal.type("first wrong")
        terminal.until("password: \n")
        terminal.seen = terminal.seen.replace("password: \n", "")
        terminal.until("password: ")
        terminal.type(PASSWORD)
        assert terminal.ended() == 0, terminal.seen
        assert "logged in:" in terminal.seen
        assert PASSWORD not in terminal.seen


def test_a_password_comes_from_ssh_askpass(home: Path, guarded_friend: Sshd) -> None:
    program = askpass(home, PASSWORD)
    configure(home, "PreferredAuthentications password")
    ended = without_terminal(*login_command(guarded_friend.target), SSH_ASKPASS=program)
    assert ended.returncode == 0, ended.stderr
    assert (home / "asked").read_text("ascii") == f"{guarded_friend.user}@127.0.0.1's password: \n"
    with at_terminal(
        *login_command(guarded_friend.target), SSH_ASKPASS=program, SSH_ASKPASS_REQUIRE="force"
    ) as terminal:
        assert terminal.ended() == 0, terminal.seen


@pytest.mark.parametrize("host", ["nowhere.invalid", "x" * 64 + ".local"])
async def test_a_name_that_does_not_resolve(home: Path, host: str) -> None:
    with pytest.raises(UnreachableError, match=f"name {host} does not resolve") as error:
        await whoami(f"root@{host}")
    assert "/etc/hosts" in error.value.hint


@pytest.mark.parametrize(("line", "said"), [("Port many", "line 1: .*Port"), ("IdentityFile ~/gone", "No such .*gone")])
async def test_a_configuration_that_cannot_be_read_is_named(home: Path, friend: Sshd, line: str, said: str) -> None:
    configure(home, line)
    with pytest.raises(UsageError, match=said) as refused:
        await whoami("127.0.0.1")
    assert "~/.ssh/config" in refused.value.hint


@pytest.mark.parametrize("method", ["password", "keyboard-interactive"])
async def test_a_password_that_is_given_is_asked_of_nobody(home: Path, guarded_friend: Sshd, method: str) -> None:
    configure(home, f"PreferredAuthentications {method}")
    async with connect(guarded_friend.target, PasswordAsker(PASSWORD, Nobody())) as remote:
        assert (await remote.run("echo in")).text == "in"
    with pytest.raises(RefusedError):
        async with connect(guarded_friend.target, PasswordAsker("another", Nobody())):
            pass
    ready = Ready("passphrase")
    assert await PasswordAsker(PASSWORD, ready).secret("Passphrase of the key id_rsa: ") == "passphrase"
    assert await PasswordAsker(PASSWORD, ready).confirm("Is that the board's?") is True
