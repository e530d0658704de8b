"""What doctor looks at on this host."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from profagent.doctor import examining as host_facts
from profagent.doctor.examining import host_credentials, resolved, workspace_facts
from profagent.errors import UsageError
from profagent.importing.workspace_import import WorkspaceImport, import_into
from profagent.keys.keys import Keys
from profagent.link.credentials import Access
from profagent.store.store import Store
from profagent.store.workspace import Workspace
from tests.daemon.privileges import public_directory, without_privileges
from tests.fakes.dumps import dump, write_files
from tests.fakes.job_copy import JOB
from tests.fakes.small_job import SMALL_JOB

MAIN = "from profagent.cli.main import main; main()"


async def test_names_are_looked_up() -> None:
    found = await resolved("127.0.0.1:50151")
    assert (found.host, found.addresses, found.error) == ("127.0.0.1", ("127.0.0.1",), "")
    assert (await resolved("[::1]:50151")).addresses == ("::1",)
    nowhere = await resolved("no such host.invalid:1")
    assert nowhere.error
    assert not nowhere.addresses
    assert (await resolved(f"{'x' * 70}.invalid:1")).error


def make_database(file: Path) -> None:
    async def make() -> None:
        async with Store(file):
            pass

    asyncio.run(make())


def test_a_workspace_that_is_yet_to_be_made(tmp_path: Path) -> None:
    facts = workspace_facts(Workspace(tmp_path / "a" / "b"))
    assert (facts.exists, facts.error, facts.database) == (False, "", "")
    assert 0 < facts.free_bytes <= facts.total_bytes
    assert list(tmp_path.iterdir()) == []


def test_a_workspace_with_a_database(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    make_database(workspace.database)
    facts = workspace_facts(workspace)
    assert (facts.exists, facts.database, facts.database_error) == (True, str(workspace.database), "")
    workspace.database.write_bytes(b"no database at all, but long enough to be looked at as one" * 50)
    facts = workspace_facts(workspace)
    assert facts.database_error
    assert facts.database_hint


@pytest.mark.parametrize("first_page", [0, 5])
def test_a_damaged_database_is_made_anew_by_what_is_told(tmp_path: Path, first_page: int) -> None:
    workspace = Workspace(tmp_path / "a workspace")
    job = write_files(tmp_path / JOB, SMALL_JOB)
    asyncio.run(import_into(WorkspaceImport(job, workspace, board="euler-1"), asyncio.Event()))
    before = dump(workspace.database)["op_records"]
    assert workspace_facts(workspace).database_error == ""
    with workspace.database.open("r+b") as file:
        for page in range(first_page, workspace.database.stat().st_size // 4096, 3):
            file.seek(page * 4096)
            file.write(b"\xa5" * 4096)
    facts = workspace_facts(workspace)
    assert f"{workspace.database} is damaged: " in facts.database_error
    told = facts.database_hint.replace("profagent import", f'"{sys.executable}" -c "{MAIN}" import')
    subprocess.run(["sh", "-c", told], check=False, capture_output=True, timeout=60)
    assert dump(tmp_path / "a workspace.new" / "profagent.db")["op_records"] == before


def test_a_large_database_is_not_checked_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace(tmp_path)
    make_database(workspace.database)
    monkeypatch.setattr(host_facts, "LONGEST_CHECK_S", -1.0)
    monkeypatch.setattr(host_facts, "STEPS_BETWEEN_LOOKS", 1)
    facts = workspace_facts(workspace)
    assert (facts.database_error, facts.is_checked) == ("", False)


def test_a_workspace_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "no directory" in workspace_facts(Workspace(tmp_path / "file" / "ws")).error
    with public_directory() as directory:
        with without_privileges():
            facts = workspace_facts(Workspace(directory / "ws"))
        assert facts.error == f"{directory}: Permission denied"


def test_the_keys_of_this_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert host_credentials(Access()) is None
    Keys(tmp_path / "profagent" / "keys").init("lab")
    found = host_credentials(Access())
    assert found is not None
    assert found.authority.name == "lab"
    with pytest.raises(UsageError):
        host_credentials(Access(keys=tmp_path / "none"))
