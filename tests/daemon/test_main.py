"""The command `profagentd`, run as people run it."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from profagent_wire.v1 import board_pb2 as wire
from profagent_wire.v1.board_pb2_grpc import BoardStub
from profagentd import __version__
from profagentd.errors import DaemonError
from profagentd.follow.server import check_address
from profagentd.service import Notifier
from tests.daemon.certificates import Authority
from tests.daemon.clocks import FakeClock, FastClock
from tests.daemon.daemon_process import AICORE_DONE, command, environment, make_job, running
from tests.daemon.own_daemon import own_daemon
from tests.daemon.waiting import SLACK_S
from tests.daemon.wire_client import PATIENCE_S, following


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), env=environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def describe(address: str) -> wire.Description:
    with grpc.insecure_channel(address) as channel:
        description: wire.Description = BoardStub(channel).Describe(wire.DescribeRequest(), timeout=20)
        return description


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "--root"),
        (["--root", "/tmp", "--rate", "50"], "--simulate"),
        (["--root", "/tmp", "--root", "/tmp/x"], "--depth"),
    ],
)
def test_what_it_cannot_do_is_one_sentence_and_what_to_do_next(arguments: list[str], word: str) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert re.fullmatch(r"profagentd: .+\n  .+\n", result.stderr)
    assert word in result.stderr


def test_it_prints_one_line_when_it_serves_and_logs_to_stderr(tmp_path: Path) -> None:
    with running("--root", tmp_path) as daemon:
        assert re.fullmatch(r"127\.0\.0\.1:[1-9]\d*", daemon.address)
        make_job(tmp_path)
        assert daemon.stop() == 0
        assert daemon.process.stdout is not None
        assert daemon.process.stdout.read() == ""


def refused(root: Path, *arguments: str) -> str:
    """What a daemon that cannot serve says, of which not a line is gRPC's."""
    result = run("--root", str(root), "--state", str(root / "state"), *arguments)
    assert result.returncode == 2
    assert re.fullmatch(r"profagentd: .+\n  .+\n", result.stderr)
    return result.stderr


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    with running("--root", tmp_path) as daemon:
        told = refused(tmp_path, "--listen", daemon.address)
    assert f"cannot listen on {daemon.address}: Address already in use" in told
    assert "another program has it" in told


def test_two_daemons_do_not_share_a_state_directory(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    with running("--root", tmp_path, "--state", state) as daemon:
        told = refused(tmp_path, "--listen", "127.0.0.1:0")
        assert f"{state} is in use by another profagentd: process {daemon.process.pid}, for {daemon.address}" in told
        assert "--state of its own" in told
        assert daemon.stop() == 0
    with running("--root", tmp_path, "--state", state) as after:
        assert describe(after.address).daemon_version == __version__


@pytest.mark.parametrize("number", [2, 15], ids=["SIGINT", "SIGTERM"])
def test_a_signal_ends_it_in_good_order(tmp_path: Path, number: int) -> None:
    with running("--root", tmp_path) as daemon:
        began = time.monotonic()
        daemon.process.send_signal(number)
        assert daemon.process.wait(20) == 0
        assert time.monotonic() - began < 5 + SLACK_S


def jobs_in(root: Path) -> int:
    return len(list(root.glob("JOB*")))


async def test_a_simulated_board_is_served_and_marked(tmp_path: Path) -> None:
    with running("--simulate", "--root", tmp_path, "--rate", "20", "--for", "1") as daemon:
        assert describe(daemon.address).simulated
        async with following(daemon.address) as client:
            await client.start()
            await client.until(lambda: any(job.state == wire.JOB_STATE_FINISHED for job in client.jobs.values()))
            assert client.welcome is not None
            assert client.welcome.description.simulated
        assert daemon.process.poll() is None
    assert jobs_in(tmp_path) == 1


def test_settings_that_are_fine_are_called_so(tmp_path: Path) -> None:
    config = tmp_path / "daemon.toml"
    config.write_text(f"roots = ['{tmp_path}']\n")
    result = run("--config", str(config), "--check-config")
    assert (result.returncode, result.stdout, result.stderr) == (0, "ok\n", "")


def test_it_ends_when_standard_input_is_closed(tmp_path: Path) -> None:
    started = command(
        "--root", str(tmp_path), "--listen", "127.0.0.1:0", "--state", str(tmp_path), "--stdin-timeout", "1000"
    )
    with subprocess.Popen(started, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert b"serving" in process.stdout.readline()
        process.stdin.write(b"still here\n")
        process.stdin.flush()
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0


def test_a_standard_input_that_nobody_holds_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w+") as file:
        result = subprocess.run(
            command(
                "--root", str(tmp_path), "--listen", "127.0.0.1:0", "--stdin-timeout", "5", "--state", str(tmp_path)
            ),
            env=environment(),
            stdin=file,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert result.returncode == 2
    assert "--stdin-timeout: standard input is nothing that somebody holds" in result.stderr


def test_every_mistake_is_named_with_file_and_key_also_in_files_that_they_name(tmp_path: Path) -> None:
    config = tmp_path / "daemon.toml"
    config.write_text("depth = 99\nroot = '/a'\n")
    result = run("--config", str(config), "--check-config", "--listen", "x")
    assert (result.returncode, result.stdout) == (2, "")
    expected = [f"{config}: depth = 99", f"{config}: unknown key 'root'", "the arguments: listen = 'x'"]
    assert result.stderr.splitlines()[::2] == expected
    tls = "".join(f"tls_{key} = '{tmp_path}/{key}'\n" for key in ("cert", "key", "ca", "revoked"))
    config.write_text(f"retain_for = ['a']\n{tls}")
    assert run("--config", str(config), "--check-config").stderr.splitlines()[::2] == [
        f"{config}: retain_for: of no use with retain = keep",
        f"{config}: roots: no root is given",
        *(
            f"{config}: tls_{key}: cannot read {tmp_path}/{key}: No such file or directory"
            for key in ("cert", "ca", "key")
        ),
        f"{config}: the revocation list {tmp_path}/revoked: No such file or directory",
    ]


async def test_at_its_end_it_sends_what_there_is_to_a_slow_client(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    sizes = {f"aicore.0.m.3.0.1.1.{number}": 1 << 20 for number in range(4)}
    for name, size in sizes.items():
        (job / "data" / name).write_bytes(bytes(size))
        (job / "data" / f"{name}.done").write_bytes(AICORE_DONE % size)
    with running("--root", tmp_path) as daemon:
        async with following(daemon.address) as client:
            await client.start()
            await client.until(lambda: bool(client.copies))
            daemon.process.terminate()
            await client.until_ended()
            assert client.goodbye is not None
            assert {name: client.copy(name).is_complete for name in sizes} == dict.fromkeys(sizes, True)
        assert daemon.process.wait(PATIENCE_S) == 0


# Imports without OpenSSL, and the daemon's own


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_daemon_keeps_none(tls: bool, tmp_path: Path) -> None:
    board = Authority(tmp_path / "authority").board().arguments if tls else []
    with running("--root", tmp_path, *board) as daemon:
        mapped = Path(f"/proc/{daemon.process.pid}/maps").read_text("utf-8")
    assert "cygrpc" in mapped
    assert not [name for name in ("_ssl.", "_hashlib.") if name in mapped]


# What is said of an address before gRPC is asked


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:0", "0.0.0.0:0"])
def test_what_is_free_is_fine(address: str) -> None:
    check_address(address)


def test_what_is_taken_is_told_and_what_is_free_stays_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(DaemonError, match="Address already in use"):
            check_address(address)
    check_address(address)
    check_address(f"unix:{tmp_path / 'free.sock'}")


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".local"])
def test_a_name_that_none_can_have_is_told(host: str) -> None:
    with pytest.raises(DaemonError, match="a part of the host's name is empty, or over 63 characters"):
        check_address(f"{host}:50151")


def test_a_port_of_roots_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def bind(_: socket.socket, where: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", where)

    monkeypatch.setattr(socket.socket, "bind", bind)
    with pytest.raises(DaemonError, match="Permission denied") as caught:
        check_address("127.0.0.1:80")
    assert "below 1024" in caught.value.hint


def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"of somebody")
    link.symlink_to(tmp_path / "nowhere")
    for path in (file, link):
        with pytest.raises(DaemonError, match="File exists") as caught:
            check_address(f"unix:{path}")
        assert "no socket stands there" in caught.value.hint
    assert file.read_bytes() == b"of somebody"


# What a daemon that is to end still does for a client that takes nothing: it waits for 5 s of its clock, and ends


async def test_a_client_that_does_not_answer_holds_it_up_for_a_while_only(tmp_path: Path) -> None:
    make_job(tmp_path)
    async with own_daemon(tmp_path, FastClock()) as (address, daemon):
        async with following(address) as client:
            client.answers = False
            await client.start()
            await client.until(lambda: client.is_listed)
            os.kill(os.getpid(), signal.SIGTERM)
            await client.until_ended()
            assert client.goodbye is not None
        await asyncio.wait_for(daemon, PATIENCE_S)


# What systemd is told, over a socket as it gives one


@pytest.fixture
def systemd() -> Iterator[socket.socket]:
    """The other end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.setblocking(False)
        yield listener


def heard(systemd: socket.socket) -> list[str]:
    """What has come."""
    found = []
    while True:
        try:
            found.append(systemd.recv(4096).decode())
        except BlockingIOError:
            return found


class Stuck(ThreadPoolExecutor):
    """Threads that take work and never come back with it."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        return Future()


@pytest.mark.parametrize("address", ["{}/notify", "\0profagentd-test-{}"], ids=["path", "abstract"])
def test_each_word_is_a_datagram(
    address: str, systemd: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = address.format(os.getpid() if "\0" in address else tmp_path)
    systemd.bind(bound)
    monkeypatch.setenv("NOTIFY_SOCKET", bound.replace("\0", "@"))
    notifier = Notifier()
    notifier.notify("READY=1", "STATUS=serving")
    notifier.notify("WATCHDOG=1")
    notifier.close()
    notifier.notify("STATUS=gone")
    assert heard(systemd) == ["READY=1\nSTATUS=serving", "WATCHDOG=1"]


@pytest.mark.parametrize("is_stuck", [False, True])
async def test_a_sign_of_life_is_one_of_the_loop_and_of_its_threads(
    is_stuck: bool, systemd: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd.bind(str(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    clock, notifier = FakeClock(), Notifier()
    if is_stuck:
        asyncio.get_running_loop().set_default_executor(Stuck())
    telling = asyncio.ensure_future(notifier.keep_notifying(clock, lambda: f"at {clock.now}"))
    await asyncio.sleep(0.2)
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)
    notifier.close()
    assert heard(systemd)[:2] == ([] if is_stuck else [f"WATCHDOG=1\nSTATUS=at {at}" for at in (100.0, 103.0)])
