"""`profagent baseline`: a session's name, which is a label."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profagent.cli.main import run
from profagent.errors import UsageError
from profagent.store.workspace import Workspace, baseline_session, baselines, set_baseline
from tests.unit.store.database import START_US, DatabaseBuilder


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Two sessions."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    builder.session(source="record", simulated=1)
    builder.session(started_us=START_US + 5)
    builder.close()
    return Workspace(tmp_path)


async def test_a_name_leads_to_its_session_and_may_move(workspace: Workspace) -> None:
    assert await baselines(workspace) == {}
    await set_baseline(workspace, "release-1.2", 1)
    await set_baseline(workspace, "nightly", 2)
    assert await baselines(workspace) == {"release-1.2": 1, "nightly": 2}
    await set_baseline(workspace, "release-1.2", 2)
    assert await baselines(workspace) == {"release-1.2": 2}
    assert await baseline_session(workspace, "release-1.2") == 2


async def test_it_is_set_while_another_process_writes_to_the_workspace(workspace: Workspace) -> None:
    with workspace.locked():
        await set_baseline(workspace, "nightly", 1)
    assert await baseline_session(workspace, "nightly") == 1


@pytest.mark.parametrize(("name", "session"), [("", 1), ("a b", 1), ("x" * 65, 1), ("good", 9)])
async def test_what_cannot_be_is_refused(workspace: Workspace, name: str, session: int) -> None:
    with pytest.raises(UsageError):
        await set_baseline(workspace, name, session)
    with pytest.raises(UsageError, match="no baseline"):
        await baseline_session(workspace, name)


def test_the_command_sets_and_lists(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--workspace", str(workspace.root)]
    assert run(["baseline", "list", *at]) == 0
    assert capsys.readouterr().out == f"no baselines in {workspace.root}\n"
    assert run(["baseline", "set", "good", "1", *at]) == 0
    assert capsys.readouterr().out == f"baseline good is session 1 of {workspace.root}\n"
    assert run(["baseline", "list", *at]) == 0
    heading, _, row = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["baseline", "session", "board"]
    assert row.split()[:3] == ["good", "1", "euler"]
    assert run(["baseline", "list", "--json", *at]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert (document["name"], document["session"]) == ("good", 1)
    assert run(["sessions", "--where", "label=baseline=good", *at]) == 0
    assert "baseline=good" in capsys.readouterr().out
