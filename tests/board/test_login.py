"""Logging in to a real OpenSSH server: with what people have in ~/.ssh, and what they are told when it fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from profagent.errors import RefusedError, UnreachableError, UsageError
from profagent.ssh.connection import connect
from profagent.ssh.passwords import Given
from tests.board.askers import Nobody, Ready
from tests.board.sshd import Sshd, make_key, public_key, running_sshd
from tests.board.terminal import at_terminal, login_command, without_terminal
from tests.integration.board import eventually

PASSWORD = "not a word"


async def whoami(target: str, asker: Nobody | Ready | None = None) -> str:
    async with connect(target, asker or Nobody()) as remote:
        return (await remote.must("id -un")).text


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A server that takes a password."""
    with running_sshd(tmp_path_factory.mktemp("guarded"), password=PASSWORD) as server:
        yield server


@pytest.fixture
def guarded_friend(home: Path, guarded: Sshd) -> Sshd:
    """The same, known at home."""
    (home / ".ssh" / "known_hosts").write_text(guarded.known, "ascii")
    return guarded


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
    with pytest.raises(RefusedError, match=r"does not let .* in") as refused:
        await whoami(friend.target)
    assert "ssh-copy-id" in refused.value.hint


async def test_an_alias_of_the_configuration_brings_port_user_and_key(home: Path, sshd: Sshd) -> None:
    (home / ".ssh" / "known_hosts").write_text(sshd.known, "ascii")
    (home / ".ssh" / "config").write_text(
        f"Host euler\n HostName 127.0.0.1\n Port {sshd.port}\n User {sshd.user}\n"
        f" IdentityFile ~/.ssh/missing\n IdentityFile {sshd.key}\n IdentitiesOnly yes\n",
        "ascii",
    )
    async with connect("euler", Nobody()) as remote:
        assert remote.host == "127.0.0.1"
        assert (await remote.must("echo $SSH_CONNECTION")).text.endswith(str(sshd.port))


async def test_a_jump_host_leads_to_the_board(home: Path, friend: Sshd) -> None:
    (home / ".ssh" / "config").write_text(
        f"Host behind\n HostName 127.0.0.1\n Port {friend.port}\n ProxyJump {friend.user}@127.0.0.1:{friend.port}\n",
        "ascii",
    )
    assert await whoami("behind") == friend.user
    assert eventually(lambda: not friend.sessions())
    async with connect("behind", Nobody()) as remote:
        await remote.must("true")
        assert len(friend.sessions()) == 2


async def test_jump_hosts_in_a_circle_end(home: Path, friend: Sshd) -> None:
    (home / ".ssh" / "config").write_text("Host a\n ProxyJump b\nHost b\n ProxyJump a\n", "ascii")
    with pytest.raises(UsageError, match="jump hosts"):
        await whoami("a")


async def test_an_unknown_host_is_accepted_once_and_then_known(home: Path, friend: Sshd) -> None:
    known = home / ".ssh" / "known_hosts"
    known.write_text("other.example ssh-ed25519 damaged", "ascii")
    (home / ".ssh" / "config").write_text("HashKnownHosts no\n", "ascii")
    person = Ready()
    assert await whoami(friend.target, person) == friend.user
    assert friend.fingerprint in person.asked[0]
    assert known.read_text("ascii").splitlines()[1:] == [friend.known.rstrip()]
    assert await whoami(friend.target) == friend.user


async def test_a_port_has_a_key_of_its_own(home: Path, friend: Sshd) -> None:
    """As for ssh: the key of 127.0.0.1 on port 22 says nothing of another port, and is no changed one."""
    other = make_key(home / "other")
    (home / ".ssh" / "known_hosts").write_text(f"127.0.0.1 {public_key(other)}", "ascii")
    person = Ready()
    assert await whoami(friend.target, person) == friend.user
    assert len(person.asked) == 1


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa"])
async def test_a_changed_host_key_is_refused_whoever_is_there(home: Path, friend: Sshd, kind: str) -> None:
    other = public_key(make_key(home / "other", kind=kind))
    (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{friend.port} {other}", "ascii")
    person = Ready()
    with pytest.raises(RefusedError, match="has changed") as refused:
        await whoami(friend.target, person)
    assert f"ssh-keygen -R '[127.0.0.1]:{friend.port}'" in refused.value.hint
    assert person.asked == []


async def test_a_revoked_host_key_is_refused(home: Path, friend: Sshd) -> None:
    (home / ".ssh" / "known_hosts").write_text(f"@revoked {friend.known}", "ascii")
    with pytest.raises(RefusedError, match="revoked"):
        await whoami(friend.target, Ready())


def test_at_a_terminal_yes_lets_an_unknown_host_in(home: Path, friend: Sshd) -> None:
    (home / ".ssh" / "known_hosts").unlink()
    (home / ".ssh" / "config").write_text("HashKnownHosts no\n", "ascii")
    with at_terminal(*login_command(friend.target)) as terminal:
        terminal.until("(yes/no) ")
        assert friend.fingerprint in terminal.seen
        terminal.type("yes")
        assert terminal.ended() == 0, terminal.seen
        assert "logged in:" in terminal.seen
    assert (home / ".ssh" / "known_hosts").read_text("ascii") == friend.known
    assert (home / ".ssh" / "known_hosts").stat().st_mode & 0o777 == 0o600


def test_at_a_terminal_no_refuses_an_unknown_host(home: Path, friend: Sshd) -> None:
    (home / ".ssh" / "known_hosts").unlink()
    with at_terminal(*login_command(friend.target)) as terminal:
        terminal.until("(yes/no) ")
        terminal.type("no")
        assert terminal.ended() == 1
        assert "RefusedError: " in terminal.seen
        assert "was not accepted" in terminal.seen
    assert not (home / ".ssh" / "known_hosts").exists()


def test_without_a_terminal_an_unknown_host_is_refused_with_its_fingerprint(home: Path, friend: Sshd) -> None:
    (home / ".ssh" / "known_hosts").unlink()
    ended = without_terminal(*login_command(friend.target), SSH_ASKPASS=askpass(home, "yes"))
    assert ended.returncode == 1
    assert "no terminal to ask at" in ended.stderr
    assert friend.fingerprint in ended.stderr
    assert "ssh-keygen -lf" in ended.stderr
    assert not (home / "asked").exists()


def test_a_password_is_asked_for_at_the_terminal_and_not_shown(guarded_friend: Sshd) -> None:
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
    ended = without_terminal(*login_command(guarded_friend.target), SSH_ASKPASS=program)
    assert ended.returncode == 0, ended.stderr
    assert (home / "asked").read_text("ascii") == f"{guarded_friend.user}@127.0.0.1's password: \n"
    with at_terminal(
        *login_command(guarded_friend.target), SSH_ASKPASS=program, SSH_ASKPASS_REQUIRE="force"
    ) as terminal:
        assert terminal.ended() == 0, terminal.seen


def test_a_wrong_password_is_refused_after_three(home: Path, guarded_friend: Sshd) -> None:
    ended = without_terminal(*login_command(guarded_friend.target), SSH_ASKPASS=askpass(home, "wrong"))
    assert ended.returncode == 1
    assert "RefusedError: " in ended.stderr
    assert len((home / "asked").read_text("ascii").splitlines()) == 3


def test_an_askpass_that_is_not_there_is_named(guarded_friend: Sshd) -> None:
    ended = without_terminal(*login_command(guarded_friend.target), SSH_ASKPASS="/nowhere/askpass")
    assert ended.returncode == 1
    assert "UsageError: SSH_ASKPASS: cannot run /nowhere/askpass" in ended.stderr


async def test_nobody_to_ask_for_a_password_is_a_refusal(guarded_friend: Sshd) -> None:
    with pytest.raises(RefusedError, match="does not let"):
        await whoami(guarded_friend.target)


async def test_a_name_that_does_not_resolve(home: Path) -> None:
    with pytest.raises(UnreachableError, match=r"name nowhere\.invalid does not resolve") as error:
        await whoami("root@nowhere.invalid")
    assert "/etc/hosts" in error.value.hint


async def test_a_port_that_is_closed(home: Path, unused_tcp_port: int) -> None:
    with pytest.raises(UnreachableError, match=f"nothing listens at 127.0.0.1 port {unused_tcp_port}"):
        await whoami(f"ssh://127.0.0.1:{unused_tcp_port}")


async def test_a_server_that_says_nothing_has_a_time_limit(home: Path) -> None:
    import asyncio

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        (home / ".ssh" / "config").write_text("ConnectTimeout 1\n", "ascii")
        with pytest.raises(UnreachableError, match="does not answer within 1 s"):
            await whoami(f"ssh://127.0.0.1:{port}")


async def test_a_server_that_is_none_of_ssh(home: Path) -> None:
    import asyncio

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail\r\n" * 2000)
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(UnreachableError, match="ended the connection before the login"):
            await whoami(f"ssh://127.0.0.1:{port}")


async def test_a_configuration_that_cannot_be_read_is_named(home: Path, friend: Sshd) -> None:
    (home / ".ssh" / "config").write_text("Port many\n", "ascii")
    with pytest.raises(UsageError, match="Port"):
        await whoami("127.0.0.1")


async def test_a_password_that_is_given_is_asked_of_nobody(guarded_friend: Sshd) -> None:
    async with connect(guarded_friend.target, Given(PASSWORD, Nobody())) as remote:
        assert (await remote.run("echo in")).text == "in"
    with pytest.raises(RefusedError):
        async with connect(guarded_friend.target, Given("another", Nobody())):
            pass
    ready = Ready("passphrase")
    assert await Given(PASSWORD, ready).secret("Passphrase of the key id_rsa: ") == "passphrase"
    assert await Given(PASSWORD, ready).confirm("Is that the board's?") is True
