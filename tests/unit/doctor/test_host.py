"""Checks of this host and of the way to a board."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from profagent.doctor import host
from profagent.doctor.finding import Mark
from profagent.doctor.host import Known, clock, identities, workspace_checks
from profagent.importing.importing import import_into
from profagent.store.store import Store
from profagent.store.workspace import Workspace
from tests.daemon.privileges import public_directory, without_privileges
from tests.fakes.dumps import dump, write_files
from tests.fakes.job_copy import JOB
from tests.fakes.small_job import SMALL_JOB

MAIN = "from profagent.cli.main import main; main()"
NOW_US = 1_800_000_000_000_000


def make_database(file: Path) -> None:
    async def make() -> None:
        async with Store(file):
            pass

    asyncio.run(make())


@pytest.mark.parametrize(
    ("boards", "told"),
    [
        ([("a", "1:1", "u-1"), ("b", "2:1", "", "u-2")], [(Mark.GOOD, "own: 2")]),
        ([("a", "1:1", "u-1"), ("b", "2:1", "", "u-1")], [(Mark.BAD, "a and b have one identity: u-1")]),
        ([("a", "1:1", "u-1"), ("1:1", "1:1", "", "u-1")], [(Mark.GOOD, "own: 1")]),
        ([("a", "1:1", "u-1", "u-2")], [(Mark.BAD, "u-2 answers at 1:1"), (Mark.GOOD, "own: 1")]),
        ([("a", "1:1"), ("b", "2:1", "u-2")], [(Mark.UNKNOWN, "a: neither"), (Mark.GOOD, "own: 1")]),
    ],
)
def test_identities(boards: list[tuple[str, ...]], told: list[tuple[Mark, str]]) -> None:
    found = list(identities([Known(*each) for each in boards]))
    assert [each.mark for each in found] == [mark for mark, _ in told]
    assert all(text in each.evidence for each, (_, text) in zip(found, told, strict=True))


@pytest.mark.parametrize(
    ("offset_us", "uncertainty_us", "board_us", "mark"),
    [
        (0, 500, NOW_US, Mark.GOOD),
        (1_200_000, 500, NOW_US, Mark.BAD),
        (1_200_000, 400_000, NOW_US, Mark.UNKNOWN),
        # An image's own date; a link as slow as this could tell nothing more.
        (-NOW_US, NOW_US, 1_600_000_000_000_000, Mark.BAD),
        (None, 0, NOW_US, Mark.UNKNOWN),
    ],
)
def test_the_boards_clock(offset_us: int | None, uncertainty_us: int, board_us: int, mark: Mark) -> None:
    finding = clock(offset_us, uncertainty_us, board_us)
    assert finding.mark is mark
    assert ("date -u -s" in finding.remedy) == (mark is Mark.BAD)


def marks(workspace: Workspace) -> dict[str, Mark]:
    return {finding.check: finding.mark for finding in workspace_checks(workspace)}


def test_a_workspace_with_a_database_and_one_that_is_yet_to_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert marks(Workspace(tmp_path / "a" / "b")) == dict.fromkeys(("workspace", "host-space"), Mark.GOOD)
    assert list(tmp_path.iterdir()) == []
    make_database(Workspace(tmp_path).database)
    assert marks(Workspace(tmp_path)) == dict.fromkeys(("workspace", "database", "host-space"), Mark.GOOD)
    monkeypatch.setattr(host, "LEAST_FREE_BYTES", 1 << 60)
    assert marks(Workspace(tmp_path))["host-space"] is Mark.BAD


@pytest.mark.parametrize("first_page", [0, 5])
def test_a_damaged_database_is_made_anew_by_what_is_told(tmp_path: Path, first_page: int) -> None:
    workspace = Workspace(tmp_path / "a workspace")
    job = write_files(tmp_path / JOB, SMALL_JOB)
    asyncio.run(import_into(job, workspace, asyncio.Event(), board="euler-1"))
    before = dump(workspace.database)["op_records"]
    with workspace.database.open("r+b") as file:
        for page in range(first_page, workspace.database.stat().st_size // 4096, 3):
            file.seek(page * 4096)
            file.write(b"\xa5" * 4096)
    (found,) = (each for each in workspace_checks(workspace) if each.check == "database")
    assert f"{workspace.database} is damaged: " in found.evidence
    told = found.remedy.replace("profagent import", f'"{sys.executable}" -c "{MAIN}" import')
    subprocess.run(["sh", "-c", told], check=False, capture_output=True, timeout=60)
    assert dump(tmp_path / "a workspace.new" / "profagent.db")["op_records"] == before


def test_a_workspace_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert marks(Workspace(tmp_path / "file" / "ws")) == {"workspace": Mark.BAD}
    with public_directory() as directory, without_privileges():
        (found,) = workspace_checks(Workspace(directory / "ws"))
        assert f"{directory}: Permission denied" in found.evidence
