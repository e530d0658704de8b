"""What somebody else may rely on: another CA's keys, and an identity that came with an image."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from profagent.link.boards_file import BoardsFile
from tests.board.deployed import DeployBoard, deploy_board, mounted
from tests.board.sshd import public_key
from tests.board.terminal import at_terminal
from tests.integration.host import COMMAND

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(300)


def own_network(folder: Path, last: str) -> list[str]:
    """Words with which a program sees one interface, whose address ends so."""
    place = folder / "net" / "eth0"
    (place / "device").mkdir(parents=True)
    (place / "address").write_text(f"00:11:22:33:44:{last}\n")
    (place / "addr_assign_type").write_text("0\n")
    return mounted(f"mount --bind {folder}/net /sys/class/net")


@pytest.fixture
def board(tmp_path: Path, cache: Path) -> Iterator[DeployBoard]:
    """A board that serves."""
    folder = tmp_path / "first"
    with deploy_board(folder, cache, inside=own_network(folder, "01")) as board:
        board.deploy_first()
        yield board


def test_another_workshops_keys_are_replaced_only_when_that_is_agreed_to(board: DeployBoard, tmp_path: Path) -> None:
    keys, given = tmp_path / "keys", board.given()
    told = "replace  the keys of another CA: "
    dry = board.deploy("--dry-run", "--keys", keys)
    assert dry.code == 0, dry.err
    assert told in dry.out
    refused = board.deploy("--keys", keys)
    assert refused.code == 2
    assert told in refused.out
    assert "--replace" in refused.err
    assert board.given() == given
    assert not keys.exists()
    with at_terminal(*COMMAND, *map(str, board.arguments("--keys", keys)), **board.variables) as terminal:
        terminal.until("Replace this? (yes/no) ")
        terminal.type("yes")
        assert terminal.ended() == 0, terminal.seen
    assert board.given()["ca.pem"] == (keys / "ca.pem").read_bytes()
    assert told not in board.deploy("--dry-run", "--keys", keys).out


@pytest.mark.long
def test_a_board_of_the_same_image_gets_an_identity_name_and_keys_of_its_own(
    board: DeployBoard, tmp_path: Path, cache: Path
) -> None:
    folder = tmp_path / "second"
    with deploy_board(folder, cache, inside=own_network(folder, "02")) as copy:
        for name in ("board-id", "keys"):
            (copy.prefix / "etc").mkdir(parents=True, exist_ok=True)
            source = board.prefix / "etc" / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, copy.prefix / "etc" / name)
        given, euler = copy.given(), board.entry
        where = ("--name", "copy", "--listen", f"0.0.0.0:{copy.port}")
        copy.home = board.home
        copy.variables = board.variables
        copy.know(copy.sshd.port)
        with (copy.sshd.folder / "authorized_keys").open("a") as file:
            file.write(f"{public_key(board.sshd.key)}\n")
        refused = copy.deploy(*where)
        assert refused.code == 2
        assert f"replace  the identity {euler.uuid}: it is that of euler, another machine" in refused.out
        assert copy.given() == given
        agreed = copy.deploy(*where, "--replace")
        assert agreed.code == 0, agreed.err
        entries = BoardsFile(board.home / ".config/profagent/boards.toml").entries()
        assert entries["euler"] == euler
        assert entries["copy"].uuid not in ("", euler.uuid)
        assert entries["copy"].fingerprint not in ("", euler.fingerprint)
        assert copy.given()["board-id"].decode().strip() == entries["copy"].uuid
        assert copy.given()["board.key"] != given["board.key"]
        assert "nothing to do" in copy.deploy(*where).out
