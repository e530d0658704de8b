"""`profagent deploy --bundle` to a board that has BusyBox, or toybox, and no Python, over a real OpenSSH server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagent.boards.daemon_tree import DaemonTree, pack, unpack
from tests.board.deployed import DeployBoard, deploy_board
from tests.board.sshd import busybox, toybox
from tests.integration.board import content, simulated

if TYPE_CHECKING:
    from collections.abc import Iterator

# The bundle is made first.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def board(request: pytest.FixtureRequest, tmp_path: Path, cache: Path) -> Iterator[DeployBoard]:
    programs = getattr(request, "param", busybox)
    with deploy_board(tmp_path, cache, programs=programs(tmp_path / "bin")) as board:
        yield board


@pytest.mark.parametrize("board", [busybox, toybox], indirect=True)
def test_a_board_without_python_gets_the_bundles(board: DeployBoard, bundle: Path, tmp_path: Path) -> None:
    board.deploy_first("--bundle", bundle)
    assert board.version() == unpack(bundle).name
    command = Path(f"/proc/{board.daemon}/cmdline").read_bytes().split(b"\0")
    assert command[0].startswith(bytes(board.prefix / "versions" / board.version() / "python/lib/ld-linux-"))
    job = simulated(board.roots)
    recorded = board.record(tmp_path / "ws")
    assert recorded.code == 0, recorded.err
    assert content(Path(recorded.document["mirror"]) / job.name) == content(job)
    again = board.deploy("--python", "bundled", "--bundle", bundle)
    assert again.code == 0, again.err
    assert "nothing to do" in again.out
    removed = board.deploy("--remove")
    assert removed.code == 0, removed.err
    assert not board.prefix.exists()


def test_what_does_not_fit_is_refused_before_anything_is_written(
    board: DeployBoard, bundle: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.tar.gz"
    tree = unpack(bundle)
    other.write_bytes(pack(of_machine(tree, "riscv64")))
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(bundle.read_bytes()[: 1 << 20])
    for arguments, why in (
        (("--python", "bundled"), "needs --bundle FILE"),
        (("--python", "system", "--bundle", bundle), "--bundle goes with"),
        (("--python", "bundled", "--bundle", bundle, "--wheelhouse", tmp_path), "--wheelhouse does not go with"),
        (("--rollback", "--bundle", bundle), "--bundle does not go with --rollback"),
        (("--bundle", other), "the bundle is for riscv64"),
        (("--bundle", cut), "is not a bundle"),
    ):
        ended = board.deploy(*arguments)
        assert ended.code != 0, arguments
        assert why in ended.err
    assert not board.prefix.exists()


def of_machine(tree: DaemonTree, machine: str) -> DaemonTree:
    """A small bundle for another machine."""
    start = tree.files["bin/profagentd"][0].decode()
    return DaemonTree.of(tree.version, start, {}, machine=machine)
