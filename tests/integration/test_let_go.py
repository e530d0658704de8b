"""Sessions whose records a lake alone has: the commands answer as before."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import profagent as profagent_api
from tests.integration.host import profagent

if TYPE_CHECKING:
    from tests.integration.host import Ended

# What is asked of session 1; `{}` is a folder for what it writes.
COMMANDS = {
    "report": "report 1 -o {}/report.html",
    "stats": "stats 1 --csv",
    "a part of stats": "stats 1 --csv --skip 2",
    "diff": "diff 1 -1 --markdown",
    "trend": "trend --model resnet50 --layer conv1.conv+conv1.relu",
    "show": "show 1 --last 2",
    "parquet": "export parquet 1 --output {}/parquet",
    "perfetto": "export perfetto 1 --output {}/trace",
    "sqlite": "export sqlite 1 --output {}/session.db",
}


def answered(workspace: Path, folder: Path) -> dict[str, Any]:
    """What each command says and writes; a database as its rows."""
    found: dict[str, Any] = {}
    for name, words in COMMANDS.items():
        place = folder / name.split()[0]
        place.mkdir(parents=True, exist_ok=True)
        ended = profagent(*words.format(place).split(), "--workspace", workspace)
        files = {each.relative_to(place): _content(each) for each in place.rglob("*") if each.is_file()}
        found[name] = ended.code, ended.out.replace(str(folder), ""), files
    return found


def _tables(session: profagent_api.Session) -> list[list[dict[str, Any]]]:
    records = session.records(columns=["layer_name", "start_us", "duration_us"])
    return [table.to_dicts() for table in (session.layers(), records, session.inferences())]


def _content(file: Path) -> Any:
    if file.suffix != ".db":
        return file.read_bytes()
    with closing(sqlite3.connect(file)) as connection:
        return [*connection.iterdump()]


@pytest.fixture
def workspace(demo_workspace: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(demo_workspace, tmp_path / "workspace"))


@pytest.fixture(scope="module")
def lake(demo_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    assert profagent("push", "1", "--workspace", demo_workspace, "--lake", folder).code == 0
    return folder


def let_go(workspace: Path, lake: Path, *more: str) -> Ended:
    return profagent("gc", "--pushed", "--workspace", workspace, "--lake", lake, *more)


def rows(workspace: Path, table: str) -> int:
    with closing(sqlite3.connect(workspace / "profagent.db")) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_every_command_answers_as_before(workspace: Path, lake: Path, tmp_path: Path) -> None:
    before = answered(workspace, tmp_path / "before")
    assert {name: code for name, (code, *_) in before.items()} == dict.fromkeys(COMMANDS, 0)
    in_python = _tables(profagent_api.open(workspace).session(1))
    lake = Path(shutil.copytree(lake, tmp_path / "lake"))
    ended = let_go(workspace, lake)
    assert (ended.code, rows(workspace, "aicore"), rows(workspace, "aicpu")) == (0, 0, 0)
    restored = profagent_api.open(workspace).session(1)
    assert (restored.database == workspace / "profagent.db", _tables(restored)) == (False, in_python)
    records, folder = restored.records(), restored.database.parent
    del restored
    assert records.to_dicts()
    del records
    assert not folder.exists()
    after = answered(workspace, tmp_path / "after")
    assert {name: after[name] == found for name, found in before.items()} == dict.fromkeys(COMMANDS, True)
    # The lake has moved.
    shutil.move(lake, tmp_path / "moved")
    ended = profagent("show", "1", "--last", "2", "--workspace", workspace, PROFAGENT_LAKE=str(tmp_path / "moved"))
    assert (ended.code, ended.out) == before["show"][:2]
    assert profagent("fleet", "expire", "2100-01-01", "--lake", tmp_path / "moved").code == 0
    ended = profagent("show", "1", "--workspace", workspace, PROFAGENT_LAKE=str(tmp_path / "moved"))
    assert ended.code == 2
    assert "has no records of session 1 any more" in ended.err
    # It is away.
    ended = profagent("show", "1", "--workspace", workspace)
    assert ended.code == 2
    assert f"session 1 is not read from {lake}" in ended.err
    assert f"which are in {lake}" in ended.err
    assert profagent("stats", "1", "--csv", "--workspace", workspace).out == before["stats"][1]


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        (
            "UPDATE aicore SET ticks = ticks + 1 WHERE record = (SELECT max(record) FROM aicore)",
            "has other rows in {}: aicore",
        ),
        ("DELETE FROM aicpu WHERE record = (SELECT min(record) FROM aicpu)", "has other rows in {}: aicpu"),
        ("UPDATE inference SET end_us = 7", "has other rows in {}: inference"),
        ("UPDATE session SET started_us = 7", "cannot be restored: there is no session 1"),
    ],
)
def test_what_a_lake_has_otherwise_stays(workspace: Path, lake: Path, sql: str, why: str) -> None:
    with closing(sqlite3.connect(workspace / "profagent.db")) as connection, connection:
        connection.execute(sql)
    records = rows(workspace, "aicore")
    ended = let_go(workspace, lake)
    assert ended.code == 0
    assert f"session 1 stays: it {why.format(lake)}" in ended.out
    assert rows(workspace, "aicore") == records > 0


def test_sessions_that_share_a_job_are_restored_together(workspace: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(workspace / "profagent.db")) as connection, connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(session)")][1:]
        connection.execute(f"INSERT INTO session SELECT 2, {', '.join(columns)} FROM session")
        connection.execute("INSERT INTO session_job SELECT 2, job FROM session_job")
        connection.execute("UPDATE part SET session = 2 WHERE part % 2")
    before = [profagent("show", number, "--workspace", workspace) for number in "12"]
    for stays, number in (("there is no session 1", "1"), ("there is no session 2", "2")):
        assert stays in let_go(workspace, tmp_path / "lake").out
        assert profagent("push", number, "--workspace", workspace, "--lake", tmp_path / "lake").code == 0
    assert "deleted the records of 2 sessions: 1, 2" in let_go(workspace, tmp_path / "lake").out
    after = [profagent("show", number, "--workspace", workspace) for number in "12"]
    assert [(each.code, each.out) for each in after] == [(each.code, each.out) for each in before]
    assert "AA core" in before[0].out
