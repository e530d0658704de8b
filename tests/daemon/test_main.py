"""The command `profagentd`, run as people run it."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import grpc
import pytest

from profagent_wire.v1 import board_pb2 as wire
from profagent_wire.v1.board_pb2_grpc import BoardStub
from profagentd import __version__
from tests.daemon.daemon_process import AICORE_DONE, command, environment, make_job, running
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
