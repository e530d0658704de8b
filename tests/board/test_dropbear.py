"""Boards whose SSH server is Dropbear and whose programs are BusyBox's: tunnels, temporary daemons, deployments."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagent.ssh.connection import connect
from tests.board.askers import Nobody
from tests.board.deployed import HOST, DeployBoard, busybox
from tests.board.dropbear import Dropbear
from tests.board.tunnelled import assert_gone, begun, folders, know, record
from tests.integration.board import content, running, simulated
from tests.integration.host import profagent, started

if TYPE_CHECKING:
    from tests.board.sshd import Sshd


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A board with BusyBox and a Python."""
    folder = tmp_path_factory.mktemp("dropbear")
    programs = busybox(folder / "bin")
    (programs / "python3").symlink_to(Path(sys.executable).resolve())
    with Dropbear(folder / "packages").running(folder / "board", programs) as server:
        yield server


async def test_it_is_logged_in_to_without_sftp(friend: Sshd, tmp_path: Path) -> None:
    async with connect(friend.target, Nobody()) as remote:
        await remote.put(b"data", str(tmp_path / "file"), 0o600)
        assert (await remote.must(f"cat {tmp_path}/file")).text == "data"
        assert (await remote.run("exit 3")).status == 3


def test_a_tunnel_leads_to_the_daemon_that_runs_there(
    home: Path, friend: Sshd, root: Path, variables: dict[str, str], tmp_path: Path
) -> None:
    job = simulated(root)
    with running("--root", root, "--quiet-after", "1") as board:
        know(home, friend, board.address)
        ended = profagent(*record(tmp_path / "ws"), **variables)
    assert ended.code == 0, ended.err
    assert content(Path(ended.document["mirror"]) / job.name) == content(job)


def test_a_temporary_daemon_serves_and_leaves_nothing(
    home: Path, friend: Sshd, root: Path, variables: dict[str, str], tmp_path: Path, unused_tcp_port: int
) -> None:
    know(home, friend, f"127.0.0.1:{unused_tcp_port}")
    job = simulated(root)
    ended = profagent(*record(tmp_path / "ws", "--root", root), **variables)
    assert ended.code == 0, ended.err
    assert content(Path(ended.document["mirror"]) / job.name) == content(job)
    assert not folders(root)


def test_nothing_is_left_when_the_link_drops(
    home: Path, friend: Sshd, root: Path, variables: dict[str, str], unused_tcp_port: int
) -> None:
    know(home, friend, f"127.0.0.1:{unused_tcp_port}")
    with started("watch", "--board", "euler", "--via", "ssh", "--root", root, "--json", **variables) as host:
        folder = begun(host, root)
        for session in friend.sessions():
            os.kill(session, signal.SIGKILL)
        assert_gone(folder, root)


def test_a_daemon_is_deployed_and_removed(sshd: Sshd, cache: Path, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = int(probe.getsockname()[1])
    board = DeployBoard(sshd, tmp_path / "host", cache, tmp_path / "board", port)
    try:
        board.deploy_first()
        job = simulated(board.roots)
        recorded = board.record(tmp_path / "ws")
        assert recorded.code == 0, recorded.err
        assert content(Path(recorded.document["mirror"]) / job.name) == content(job)
        removed = board.deploy("--remove")
        assert removed.code == 0, removed.err
        assert not board.prefix.exists()
    finally:
        board.stop()
