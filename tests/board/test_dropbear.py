"""Boards whose SSH server is Dropbear and whose programs are BusyBox's: tunnels, temporary daemons, deployments."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.board.deployed import DeployBoard
from tests.board.dropbear import Dropbear
from tests.board.sshd import busybox
from tests.board.tunnelled import folders, know, record
from tests.fakes.ports import own_port
from tests.integration.board import content, simulated
from tests.integration.host import profagent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.board.sshd import Sshd


# The server's packages are fetched.
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A board with BusyBox and a Python."""
    folder = tmp_path_factory.mktemp("dropbear")
    programs = busybox(folder / "bin")
    (programs / "python3").symlink_to(Path(sys.executable).resolve())
    with Dropbear(folder / "packages").running(folder / "board", programs) as server:
        yield server


def test_a_temporary_daemon_serves_and_leaves_nothing(
    home: Path, friend: Sshd, root: Path, variables: dict[str, str], tmp_path: Path, unused_tcp_port: int
) -> None:
    know(home, friend, f"127.0.0.1:{unused_tcp_port}")
    job = simulated(root)
    ended = profagent(*record(tmp_path / "ws", "--root", root), **variables)
    assert ended.code == 0, ended.err
    assert content(Path(ended.document["mirror"]) / job.name) == content(job)
    assert not folders(root)


def test_a_daemon_is_deployed_and_removed(sshd: Sshd, cache: Path, tmp_path: Path) -> None:
    board = DeployBoard(sshd, tmp_path / "host", cache, tmp_path / "board", own_port())
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
