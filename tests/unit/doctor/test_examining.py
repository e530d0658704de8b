"""Doctor against boards of other versions and behind names, by real gRPC."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagent.doctor.cli import host_and_board
from profagent.link.boards_file import BoardEntry, BoardsFile
from profagent.link.credentials import Access
from profagent.store.workspace import Workspace
from tests.unit.link.test_channel import ScriptedBoard, serving

if TYPE_CHECKING:
    from profagent.doctor.finding import Section


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


async def looked_at(tmp_path: Path, board: str | None) -> list[Section]:
    return await host_and_board(Workspace(tmp_path / "ws"), Access(known=BoardsFile().known()), board)


async def test_a_daemon_of_another_major_version_is_told_so_and_no_more(tmp_path: Path) -> None:
    scripted = ScriptedBoard()
    scripted.major = 2
    async with serving(scripted) as address:
        _, board = await looked_at(tmp_path, address)
    marks = {finding.check: finding.mark for finding in board.findings}
    assert list(marks) == ["name", "link", "daemon", "listener", "clock"]
    assert marks["daemon"] == "bad"


async def test_boards_that_only_a_tunnel_reaches_are_not_asked_and_not_taken_for_one(tmp_path: Path) -> None:
    async with serving(ScriptedBoard()) as address:
        for name in ("one", "two"):
            BoardsFile().put(BoardEntry(name, address, uuid="u-1", ssh=f"root@{name}"))
        (host,) = await looked_at(tmp_path, None)
    (found,) = (finding for finding in host.findings if finding.check == "identity")
    assert found.evidence == "one and two have the same identity: u-1"
