"""The ledger of a session, entry by entry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profagent.cli.main import run
from tests.unit.store.database import JOB, DatabaseBuilder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """One session: a log with a torn record, twelve gaps, and a loss that a newer board told."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    session = builder.session(ended_us=1_700_000_100_000_000)
    job = builder.job(session)
    values = {"session": session, "job": job, "origin": "content", "count": 1}
    builder.insert(
        "ledger_entry", **values, grade="loss", reason="torn-record", detail="has 100 bytes", first=9, last=99
    )
    for number in range(12):
        builder.insert("ledger_entry", **values, grade="note", reason="sequence-gap", detail=f"gap {number}")
    builder.insert("ledger_entry", session=session, origin="link", grade="loss", reason="moon", detail="full", count=2)
    builder.close()
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], workspace: Path, *words: str) -> list[str]:
    assert run(["ledger", "1", "--workspace", str(workspace), *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_each_entry_has_its_place_and_each_reason_its_meaning(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = told(capsys, workspace)
    start = lines.index("loss: torn-record (1)")
    assert lines[start + 1] == "  The last record of a log is not whole."
    assert lines[start + 2].startswith("  To do: Copy the JOB again")
    assert lines[start + 3] == f"  - {JOB}: has 100 bytes"
    assert lines[-1] == "  - and 2 more: --all lists them"


def test_a_reason_of_a_newer_board_is_shown_as_it_came(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, workspace)[:2] == ["loss: moon (2)", "  - the board: full (2)"]


def test_grade_and_all_choose_what_is_listed(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(told(capsys, workspace, "--grade", "note", "--all")) == 3 + 12
    assert not any(line.startswith("note") for line in told(capsys, workspace, "--grade", "loss"))


def test_json_has_the_columns_of_the_view_with_text_and_remedy(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = json.loads(told(capsys, workspace, "--json", "--grade", "loss")[0])
    assert (first["reason"], first["text"], first["remedy"]) == ("moon", None, None)
    assert (second["job"], second["first"], second["last"]) == (JOB, 9, 99)
    assert second["text"].startswith("The last record")


def test_a_session_that_is_not_there_is_refused(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ledger", "7", "--workspace", str(workspace)]) == 2
    assert "no session 7" in capsys.readouterr().err
