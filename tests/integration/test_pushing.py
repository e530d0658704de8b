"""Sessions come into a lake when their capture ends, and all that have not come yet."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from profagent.store.workspace import SETTINGS
from tests.integration.board import running, simulated
from tests.integration.host import profagent

if TYPE_CHECKING:
    from pathlib import Path


def named_in(lake: Path) -> list[dict[str, Any]]:
    query = "SELECT number, inferences FROM sessions ORDER BY number"
    found: list[dict[str, Any]] = profagent("fleet", "sql", query, "--lake", lake, "--json").document
    return found


def test_record_pushes_at_its_end_and_says_what_it_could_not_push(root: Path, workspace: Path, tmp_path: Path) -> None:
    """What is not pushed stays, and comes later; that is said, and is no loss of the capture."""
    workspace.mkdir()
    (workspace / SETTINGS).write_text('lake = "../lake"\n')
    lake = tmp_path / "lake"
    lake.write_text("no folder")
    arguments = ("record", "--push", "--backlog", "--until-finished", "--json", "--workspace", workspace, "--board")
    with running("--root", root, "--quiet-after", "0.3") as board:
        simulated(root, 3)
        ended = profagent(*arguments, board.address)
        assert (ended.code, ended.document["complete"]) == (1, True)
        assert "not pushed: the table" in ended.err
        assert f"push them later: profagent push 1 --workspace {workspace}" in ended.err
        lake.unlink()
        shutil.rmtree(next(root.glob("JOB*")))
        simulated(root, 4, seed=2)
        ended = profagent(*arguments, board.address, "--new")
        assert ended.code == 0, ended.err
    assert named_in(lake) == [{"number": 2, "inferences": 4}]
    ended = profagent("push", "--all", "--workspace", workspace)
    assert (ended.code, "1 of 2 sessions came" in ended.err) == (0, True)
    assert named_in(lake) == [{"number": 1, "inferences": 3}, {"number": 2, "inferences": 4}]


def test_record_knows_at_its_begin_that_it_cannot_push(workspace: Path) -> None:
    ended = profagent("record", "--push", "--board", "127.0.0.1:1", "--workspace", workspace)
    assert (ended.code, "no lake is named" in ended.err) == (2, True)


def test_push_takes_sessions_or_all(workspace: Path) -> None:
    for arguments in ((), ("--all", "1")):
        ended = profagent("push", *arguments, "--workspace", workspace)
        assert (ended.code, "push needs sessions, or --all" in ended.err) == (2, True)
