"""How a board is reached with what stands in ~/.ssh/config: ProxyCommand, and jump hosts one behind the other."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from profagent.errors import UnreachableError
from profagent.ssh.connection import connect
from tests.board.askers import Nobody, Ready
from tests.board.sshd import Sshd, running_sshd
from tests.board.terminal import login_command, without_terminal
from tests.integration.board import eventually

# What `nc HOST PORT` does, and it says so.
NETCAT = """import os, socket, sys, threading
there = socket.create_connection((sys.argv[1], int(sys.argv[2])))
sys.stderr.write("through the proxy as %s" % sys.argv[3] + chr(10))
sys.stderr.flush()
def back():
    while data := there.recv(65536):
        os.write(1, data)
    os._exit(0)
threading.Thread(target=back, daemon=True).start()
while data := os.read(0, 65536):
    there.sendall(data)
"""


@pytest.fixture
def netcat(tmp_path: Path) -> str:
    """The command's beginning, as a shell takes it."""
    script = tmp_path / "net cat.py"
    script.write_text(NETCAT, "ascii")
    return f"{sys.executable} '{script}'"


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("first")) as server:
        yield server


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("second")) as server:
        yield server


async def whoami(target: str, asker: Nobody | Ready | None = None) -> str:
    async with connect(target, asker or Nobody()) as remote:
        return (await remote.must("id -un")).text


def configure(home: Path, **hosts: list[str]) -> None:
    lines = (f"Host {name}\n" + "".join(f" {line}\n" for line in given) for name, given in hosts.items())
    (home / ".ssh" / "config").write_text("".join(lines), "utf-8")


def test_a_proxy_command_is_a_shells_and_what_it_complains_of_is_seen(home: Path, friend: Sshd, netcat: str) -> None:
    command = f'ProxyCommand test "$HOME" = {home} && exec {netcat} %h %p %r 3>/dev/null'
    configure(home, euler=["HostName 127.0.0.1", f"Port {friend.port}", f"User {friend.user}", command])
    ended = without_terminal(*login_command("euler"))
    assert ended.returncode == 0, ended.stderr
    assert "logged in:" in ended.stdout
    assert f"through the proxy as {friend.user}" in ended.stderr


async def test_ssh_itself_may_be_the_proxy_command(home: Path, friend: Sshd, first: Sshd) -> None:
    (home / "known").write_text(first.known, "ascii")
    jump = f"ssh -F none -i {first.key} -o UserKnownHostsFile={home}/known -p {first.port} {first.user}@127.0.0.1"
    configure(home, euler=["HostName 127.0.0.1", f"Port {friend.port}", f"ProxyCommand {jump} -W %h:%p"])
    async with connect("euler", Nobody()) as remote:
        assert (await remote.must("id -un")).text == friend.user
        assert len(first.sessions()) == 1
    assert eventually(lambda: not first.sessions())


async def test_a_proxy_command_ends_with_the_connection(home: Path, friend: Sshd, netcat: str, tmp_path: Path) -> None:
    stubborn = f"ProxyCommand echo $$ >>{tmp_path}/pids; trap '' HUP TERM; {netcat} %h %p %r; sleep 1000"
    configure(home, euler=["HostName 127.0.0.1", f"Port {friend.port}", stubborn])
    assert await whoami("euler") == friend.user
    pids = [int(pid) for pid in (tmp_path / "pids").read_text("ascii").split()]
    assert len(pids) == 1
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_proxy_command_is_run_anew_for_a_host_that_is_asked_about(
    home: Path, friend: Sshd, netcat: str
) -> None:
    configure(home, euler=["HostName 127.0.0.1", f"Port {friend.port}", f"ProxyCommand {netcat} %h %p %r"])
    (home / ".ssh" / "known_hosts").unlink()
    person = Ready()
    assert await whoami("euler", person) == friend.user
    assert friend.fingerprint in person.asked[0]


@pytest.mark.parametrize("command", ["false", "/nowhere/program %h", "echo no SSH; cat >/dev/null"])
async def test_a_proxy_command_that_fails_is_named(home: Path, friend: Sshd, command: str) -> None:
    configure(home, euler=["ConnectTimeout 2", f"ProxyCommand {command}"])
    with pytest.raises(UnreachableError, match="ProxyCommand") as error:
        await whoami("euler")
    assert command.replace("%h", "euler") in error.value.hint


async def test_a_proxy_command_may_be_switched_off(home: Path, friend: Sshd) -> None:
    configure(
        home,
        **{"127.0.0.1": ["ProxyCommand none", "ProxyJump none"], "*": ["ProxyCommand false", "ProxyJump nowhere"]},
    )
    assert await whoami(friend.target) == friend.user


@pytest.mark.parametrize("written", ["inline", "each in its own"])
async def test_jump_hosts_one_behind_the_other(
    home: Path, friend: Sshd, first: Sshd, second: Sshd, tmp_path: Path, written: str
) -> None:
    known = "".join(server.known for server in (friend, first, second))
    (home / ".ssh" / "known_hosts").write_text(known, "ascii")

    def at(server: Sshd) -> list[str]:
        return ["HostName 127.0.0.1", f"Port {server.port}", f"User {server.user}", f"IdentityFile {server.key}"]

    chained = written != "inline"
    configure(
        home,
        one=at(first),
        two=[*at(second), *(["ProxyJump one"] if chained else [])],
        board=[*at(friend), f"ProxyJump {'two' if chained else 'one,two'}"],
    )
    async with connect("board", Nobody()) as remote:
        assert (await remote.must("echo $SSH_CONNECTION")).text.endswith(str(friend.port))
        assert len(first.sessions()) == 1
        (last,) = second.sessions()
        os.kill(last, signal.SIGKILL)
        with pytest.raises(UnreachableError, match="is lost"):
            await remote.run("true")
    assert eventually(lambda: not first.sessions() and not second.sessions())


async def test_a_board_that_its_jump_host_cannot_reach(home: Path, friend: Sshd, unused_tcp_port: int) -> None:
    configure(home, behind=["HostName 127.0.0.1", f"Port {unused_tcp_port}", f"ProxyJump {friend.target}"])
    with pytest.raises(UnreachableError, match="the jump host cannot reach") as error:
        await whoami("behind")
    assert "ProxyJump" in error.value.hint


async def test_the_key_of_a_jump_host_is_checked_too(home: Path, friend: Sshd, first: Sshd) -> None:
    configure(home, behind=["HostName 127.0.0.1", f"Port {friend.port}", f"ProxyJump ssh://127.0.0.1:{first.port}"])
    person = Ready()
    with pytest.raises(Exception, match=f"{first.port} does not let"):
        await whoami("behind", person)
    assert first.fingerprint in person.asked[0]
