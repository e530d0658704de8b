"""Where the workspace is, who may write in it, and its folders."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from profagent.cli.main import run
from profagent.errors import StoreError, UsageError, WorkspaceBusyError
from profagent.importing.importing import import_into, import_job
from profagent.store.workspace import Workspace, default_workspace
from tests.fakes.dumps import write_files
from tests.fakes.job_copy import JOB
from tests.fakes.small_job import SMALL_JOB


def test_the_variable_names_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROFAGENT_WORKSPACE", "/elsewhere")
    assert default_workspace() == Path("/elsewhere")
    assert Workspace.at(None).database == Path("/elsewhere/profagent.db")
    assert Workspace.at(Path("here")).root == Path("here")


def test_without_it_the_user_s_data_folder_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PROFAGENT_WORKSPACE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_workspace() == Path("/data/profagent")
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_workspace() == tmp_path / ".local/share/profagent"


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "new" / "workspace")
    with workspace.locked(), pytest.raises(WorkspaceBusyError, match="another profagent"), workspace.locked():
        pass
    with workspace.locked():
        pass


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="cannot use the workspace"), Workspace(tmp_path / "file").locked():
        pass


@pytest.mark.parametrize("identity", ["../up", "a/b", "", ".", "address 10.0.0.7:50151", "x" * 65, "-rf", "caf\u00e9"])
def test_an_identity_that_is_no_plain_name_stays_inside(identity: str, tmp_path: Path) -> None:
    folder = Workspace(tmp_path).board_mirror(identity)
    assert folder.parent == tmp_path / "mirror"
    assert len(folder.name) == 32


def test_a_workspace_that_is_not_there_is_told_to_whoever_reads_it(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "none")
    with pytest.raises(UsageError, match="no workspace in"):
        workspace.readable_database()
    assert not workspace.root.exists()


def test_what_is_made_is_for_its_owner_alone_and_what_stands_stays(tmp_path: Path) -> None:
    (tmp_path / "standing").mkdir(mode=0o755)
    for root, mode in ((tmp_path / "standing", 0o755), (tmp_path / "above" / "made", 0o700)):
        job = write_files(tmp_path / JOB, SMALL_JOB)
        asyncio.run(import_into(job, Workspace(root), asyncio.Event()))
        assert run(["export", "summary", "--session", "1", "--workspace", str(root)]) == 0
        assert (root.stat().st_mode & 0o777, root.parent.stat().st_mode & 0o077) == (mode, 0)
        open_to_others = {path for path in root.rglob("*") if path.stat().st_mode & 0o077}
        assert all("exports" in path.parts and path.is_file() for path in open_to_others), open_to_others
        assert asyncio.run(import_job(job)).database.stat().st_mode & 0o777 == 0o600
