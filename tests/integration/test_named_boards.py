"""Boards by their names: real daemons, and a boards.toml that fits them or does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from profagent.keys.keys import Keys
from profagent.link.boards_file import BoardEntry, BoardsFile
from tests.integration.board import content, running, simulated, tls_arguments
from tests.integration.host import Ended, profagent
from tests.integration.rows import query

IDENTITY = "0f0e0d0c-0b0a-4000-8000-000102030405"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    simulated(tmp_path / "root")
    return tmp_path / "root"


@pytest.fixture
def address(root: Path) -> Iterator[str]:
    with running("--root", root, "--identity", IDENTITY, "--quiet-after", "0.3") as board:
        yield board.address


def record(config: Path, *boards: str) -> Ended:
    named = [argument for board in boards for argument in ("--board", board)]
    ends = ("--until-finished", "--backlog", "--json", "--workspace", str(config / "ws"))
    return profagent("record", *named, *ends, XDG_CONFIG_HOME=str(config))


def know(config: Path, entry: BoardEntry) -> None:
    BoardsFile(config / "profagent" / "boards.toml").put(entry)


def test_a_group_leads_to_its_board_whose_labels_its_session_has(address: str, tmp_path: Path) -> None:
    labels = {"rack": "3", "place": "lab"}
    know(tmp_path, BoardEntry("euler", address, uuid=IDENTITY, groups=("rack3",), labels=labels))
    ends = ("--until-finished", "--backlog", "--json", "--workspace", tmp_path / "ws", "--label", "place=desk")
    ended = profagent("record", "--group", "rack3", *ends, XDG_CONFIG_HOME=str(tmp_path))
    assert ended.code == 0, ended.err
    assert ended.document["board"] == IDENTITY
    assert "at euler" in ended.err
    kept = query(tmp_path / "ws" / "profagent.db", "SELECT key, value FROM session_label ORDER BY key")
    assert kept == [("place", "desk"), ("rack", "3")]


def test_another_board_under_a_name_is_refused(address: str, tmp_path: Path) -> None:
    know(tmp_path, BoardEntry("euler", address, uuid="another"))
    ended = record(tmp_path, "euler")
    assert ended.code == 3
    assert IDENTITY in ended.err
    assert "another" in ended.err
    assert "profagent boards remove euler" in ended.err
    assert record(tmp_path, address).code == 0


def test_a_name_that_is_not_there_is_a_host(tmp_path: Path) -> None:
    ended = profagent("record", "--insecure", "--board", "nowhere.invalid", "--workspace", tmp_path / "ws")
    assert ended.code == 3
    assert "nowhere.invalid" in ended.err


def test_another_certificate_under_a_name_is_refused(root: Path, tmp_path: Path) -> None:
    keys = Keys(tmp_path / "profagent" / "keys")
    keys.init("lab-3")
    made = keys.issue_board("euler", ("0.0.0.0", "127.0.0.1"))
    tls = tls_arguments(made.folder)
    with running("--root", root, "--quiet-after", "0.3", *tls, listen="0.0.0.0:0") as board:
        address = f"0.0.0.0:{board.address.rpartition(':')[2]}"
        know(tmp_path, BoardEntry("euler", address, fingerprint=made.certificate.fingerprint))
        ended = record(tmp_path, "euler")
        assert ended.code == 0, ended.err
        know(tmp_path, BoardEntry("euler", address, fingerprint="ab" * 32))
        ended = record(tmp_path, "euler")
        assert ended.code == 3
        assert made.certificate.fingerprint in ended.err
        assert "ab" * 32 in ended.err


@pytest.mark.parametrize("is_told", [True, False], ids=["certificate", "boards.toml"])
def test_another_board_cannot_write_over_ones_history(root: Path, tmp_path: Path, *, is_told: bool) -> None:
    keys = Keys(tmp_path / "profagent" / "keys")
    keys.init("lab-3")
    own, others = (
        keys.issue_board(name, ("0.0.0.0",), identity=identity if is_told else "")
        for name, identity in (("euler", IDENTITY), ("other", "another"))
    )
    simulated(tmp_path / "other", 7)
    for made, directory, code in ((own, root, 0), (others, tmp_path / "other", 3)):
        tls = tls_arguments(made.folder)
        claimed = ("--root", directory, "--quiet-after", "0.3", "--identity", IDENTITY)
        with running(*claimed, *tls, listen="0.0.0.0:0") as board:
            address = f"0.0.0.0:{board.address.rpartition(':')[2]}"
            ended = record(tmp_path, address)
            assert ended.code == code, ended.err
            assert code == 0 or "says that it is" in ended.err
        if code == 0 and not is_told:
            know(tmp_path, BoardEntry("euler", address, uuid=IDENTITY, fingerprint=own.certificate.fingerprint))
    (mirror,) = (tmp_path / "ws" / "mirror").iterdir()
    assert content(next(mirror.glob("JOB*"))) == content(next(root.glob("JOB*")))
    assert not list((tmp_path / "ws").glob("superseded/**/*.*"))
