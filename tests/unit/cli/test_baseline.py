"""`profagent baseline`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profagent.cli.main import run
from tests.unit.store.database import DatabaseBuilder


@pytest.fixture
def workspace(tmp_path: Path) -> str:
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    session = builder.session(source="record", simulated=1)
    builder.insert("session_label", session=session, key="build", value="12")
    builder.close()
    return str(tmp_path)


def test_a_baseline_is_set_listed_and_shown(workspace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["baseline", "list", "--workspace", workspace]) == 0
    assert capsys.readouterr().out == f"no baselines in {workspace}\n"
    assert run(["baseline", "set", "good", "1", "--workspace", workspace]) == 0
    assert capsys.readouterr().out == f"baseline good is session 1 of {workspace}\n"
    for command in (["list"], ["show", "good"]):
        assert run(["baseline", *command, "--workspace", workspace]) == 0
        heading, _, row = capsys.readouterr().out.splitlines()
        assert heading.split()[:3] == ["baseline", "session", "board"]
        assert row.split()[:3] == ["good", "1", "euler"]
        assert "[simulated]" in row
        assert row.endswith("build=12")


def test_as_json_a_baseline_has_its_session(workspace: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(["baseline", "set", "good", "1", "--workspace", workspace])
    capsys.readouterr()
    assert run(["baseline", "show", "good", "--workspace", workspace, "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert (document["name"], document["session"]) == ("good", 1)
    assert document["is"]["labels_by_key"] == {"build": "12"}


def test_a_name_without_a_session_is_a_usage_error(workspace: str) -> None:
    assert run(["baseline", "show", "good", "--workspace", workspace]) == 2
    assert run(["baseline", "set", "good", "7", "--workspace", workspace]) == 2
