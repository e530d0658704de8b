"""The list of a workspace's sessions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profagent.cli.main import run
from tests.unit.store.database import DatabaseBuilder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """One unfinished session, one complete, one with a loss."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    builder.session(source="record", simulated=1)
    builder.session(source="record", ended_us=1_700_000_100_000_000)
    lossy = builder.session(source="watch", ended_us=1_700_000_100_000_000)
    builder.ledger(lossy, "loss", "torn-record", 2)
    builder.kept_loss(lossy, job_name="JOB" + "A" * 29, lost_logs=4, lost_bytes=9)
    builder.insert("session_label", session=lossy, key="build", value="12")
    builder.close()
    return tmp_path


def test_sessions_are_listed_with_their_state(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sessions", "--workspace", str(workspace)]) == 0
    header, *lines, kept = [line for line in capsys.readouterr().out.splitlines() if line.strip("- ")]
    assert header.split()[:2] == ["session", "board"]
    assert ["unfinished" in lines[0], " complete" in lines[1], "INCOMPLETE" in lines[2]] == [True, True, True]
    assert "euler [simulated]" in lines[0]
    assert "2023-11-14 22:13:20" in lines[0]
    assert lines[2].rstrip().endswith("build=12")
    assert kept.startswith("session 3: loss: JOBAAA")
    assert "deleted-undelivered: 4 logs, 9 bytes" in kept


def test_sessions_as_json_have_the_view_s_columns(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sessions", "--workspace", str(workspace), "--json"]) == 0
    sessions = json.loads(capsys.readouterr().out)
    assert [session["session"] for session in sessions] == [1, 2, 3]
    assert [session["losses"] for session in sessions] == [0, 0, 11]
    assert [[loss["lost_logs"] for loss in session["kept_losses"]] for session in sessions] == [[], [], [4]]


@pytest.mark.parametrize(
    "words",
    [["sessions"], ["sessions", "--json"], ["baseline", "set", "x", "1"], ["gc", "--keep-last", "1"], ["stats", "1"]],
)
def test_a_workspace_that_is_not_there_is_an_error(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--workspace", str(tmp_path / "typo")]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.splitlines()[0]) == ("", f"profagent: there is no workspace in {tmp_path / 'typo'}")
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize(
    ("conditions", "sessions"),
    [
        (["label=build=12"], [3]),
        (["label=build"], [3]),
        (["label=build=13"], []),
        (["source=record"], [1, 2]),
        (["source=watch", "board=euler"], [3]),
        (["source=watch", "board=gauss"], []),
    ],
)
def test_sessions_are_chosen(
    workspace: Path, capsys: pytest.CaptureFixture[str], conditions: list[str], sessions: list[int]
) -> None:
    where = [word for condition in conditions for word in ("--where", condition)]
    assert run(["sessions", "--workspace", str(workspace), "--json", *where]) == 0
    assert [session["session"] for session in json.loads(capsys.readouterr().out)] == sessions
    assert run(["sessions", "--workspace", str(workspace), *where]) == 0
    assert ("no sessions that fit" in capsys.readouterr().out) is (not sessions)


def test_boards_with_one_host_name_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    other = builder.insert("board", identity="feedbeef-0000", hostname="euler", model="SS928")
    builder.session()
    builder.session(board=other)
    builder.close()
    assert run(["sessions", "--workspace", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "euler 0ddba11" in out
    assert "euler feedbeef" in out
