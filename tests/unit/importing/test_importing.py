"""Importing a JOB directory into its own database."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from profagent.cli.main import run
from profagent.errors import StoreError
from profagent.formats.counter_maps import BUILT_IN, CounterMaps, simulated_map
from profagent.importing import importing
from profagent.importing.importing import import_alone, import_into, import_job
from profagent.record.recording import Recording
from profagent.store import job_folder
from profagent.store.job_folder import alone_in_job, write_log
from profagent.store.store import StoredSession
from profagent.store.target import imported_database
from profagent.store.workspace import Workspace
from profagentd.simulate.run import SimulationOptions
from tests.daemon.simulated_job import write_job
from tests.fakes.dumps import assert_same, dump, files_of, write_files
from tests.fakes.job_copy import JOB
from tests.fakes.small_job import CALLS, ON_CPU, PLAIN, SMALL_JOB

if TYPE_CHECKING:
    from collections.abc import Sequence
    from io import TextIOWrapper

    from profagent.ingest.changes import JobChanges
    from profagent.store.writer import Applied


def _rows(database: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(sql).fetchall()


def test_a_job_with_logs_without_end_is_quiet(job: Path) -> None:
    next((job / "data").glob("aicore*.done")).unlink()
    assert _rows(asyncio.run(import_job(job)).database, "SELECT state FROM job") == [("quiet",)]


def test_a_simulated_job_brings_its_counter_map(tmp_path: Path) -> None:
    imported = asyncio.run(import_job(write_job(tmp_path, SimulationOptions(layers=5), 1)))
    assert imported.simulated
    assert _rows(imported.database, "SELECT count(*) > 0 FROM op_records WHERE mac_busy > 0") == [(1,)]


def test_an_import_that_fails_leaves_the_database_as_it_was(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = asyncio.run(import_job(job)).database
    before = database.read_bytes()

    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(job_folder, "sync", full)
    with pytest.raises(StoreError, match="is full"):
        asyncio.run(import_job(job))
    assert database.read_bytes() == before


def test_no_figure_that_was_final_is_judged_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = write_job(tmp_path, SimulationOptions(model="yolov5s"), 3)
    monkeypatch.setattr(importing, "PARTS_PER_BATCH", 1)
    apply, seen = StoredSession.apply, dict[int, list[str]]()

    async def noted(self: StoredSession, changes: Sequence[JobChanges]) -> Sequence[Applied]:
        applied = await apply(self, changes)
        for inference, figures in await self._store.query("SELECT inference, figures FROM inference"):
            seen.setdefault(inference, []).append(figures)
        return applied

    monkeypatch.setattr(StoredSession, "apply", noted)
    asyncio.run(import_job(job))
    assert len(seen) == 3
    assert min(map(len, seen.values())) < max(map(len, seen.values())), "not all came in one batch"
    assert {state for states in seen.values() for state in states} == {"final"}


def test_a_job_has_the_rows_in_its_own_database_that_it_has_in_a_workspace(tmp_path: Path) -> None:
    files = {**SMALL_JOB, f"{CALLS}.done": b"no end", "data/odd": b"x" * 5}
    job, workspace = write_files(tmp_path / JOB, files), Workspace(tmp_path / "workspace")
    own = asyncio.run(import_job(job)).database
    assert {path for path in files_of(job) if path not in files} == {"sqlite/lock", "sqlite/profagent.db"}
    asyncio.run(import_into(job, workspace, asyncio.Event()))
    assert_same(dump(own), dump(workspace.database))


# Our own files in a JOB directory: the database, made anew when it is older than the JOB, and the log


def _open(job: Path, maps: CounterMaps = BUILT_IN) -> bool:
    """Ask for the JOB's database; whether it was imported for that."""
    told: list[str] = []
    database = asyncio.run(imported_database(job, maps, tell=told.append))
    assert database.is_file()
    return told == [f"importing {job}"]


def test_a_job_is_imported_once(job: Path) -> None:
    assert _open(job)
    assert not _open(job)


@pytest.mark.parametrize("changed", ["info.json.0", "data/acl_api.0.yolo.0"])
def test_a_newer_file_has_it_imported_again(job: Path, changed: str) -> None:
    _open(job)
    later = (job / "sqlite" / "profagent.db").stat().st_mtime + 5
    os.utime(job / changed, (later, later))
    assert _open(job)


def test_another_counter_map_has_it_imported_again(job: Path) -> None:
    _open(job)
    assert _open(job, CounterMaps(simulated_map()))


def test_a_counter_map_that_is_found_later_or_was_changed_has_it_imported_again(job: Path, tmp_path: Path) -> None:
    folder = tmp_path / "counter-maps"
    folder.mkdir()
    text = (Path(__file__).parents[3] / "agent/profagent/formats/maps/simulated.toml").read_text("utf-8")
    text = text.replace("simulated = true", "simulated = false")
    assert _open(job, CounterMaps(folder=folder))
    for change in ("", "0.5"):
        (folder / "a.toml").write_text(text.replace("scale = 1.0", f"scale = {change or 1.0}"), "utf-8")
        assert _open(job, CounterMaps(folder=folder))
        assert not _open(job, CounterMaps(folder=folder))
    told: list[str] = []
    assert not _open(job, CounterMaps(folder=folder, tell=told.append))
    assert told == [], "nothing is decoded with it"
    (folder / "a.toml").unlink()
    assert not _open(job, CounterMaps(folder=folder))


def test_a_database_of_another_version_is_made_anew(job: Path) -> None:
    _open(job)
    with closing(sqlite3.connect(job / "sqlite" / "profagent.db")) as connection:
        connection.execute("PRAGMA user_version = 9")
    assert _open(job)
    (job / "sqlite" / "profagent.db").write_bytes(b"no database at all, but text that is long enough" * 9)
    assert _open(job)


async def test_who_waited_for_another_import_takes_what_it_made(job: Path) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    async with alone_in_job(job, told.put_nowait):
        waiting = asyncio.create_task(imported_database(job, tell=told.put_nowait))
        assert await told.get() == f"another profagent imports {job}: waiting until it has finished"
        made = (await import_alone(job)).database.stat()
    found = (await waiting).stat()
    assert (found.st_ino, found.st_mtime_ns) == (made.st_ino, made.st_mtime_ns)
    assert told.empty(), "it has imported nothing"


def test_what_a_killed_import_left_is_not_taken_and_goes(job: Path) -> None:
    _open(job)
    database = job / "sqlite" / "profagent.db"
    for name in ("profagent.new", "profagent.db.00ff.new"):
        database.with_name(name).write_bytes(b"half")
    database.unlink()
    assert _open(job)
    assert sorted(file.name for file in (job / "sqlite").iterdir()) == ["lock", "profagent.db"]


def test_a_file_that_grows_while_it_is_imported_has_it_imported_again(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = Recording.end

    async def grown(self: Recording) -> None:
        os.utime(job / "data/acl_api.0.yolo.0")
        await end(self)

    with monkeypatch.context() as patched:
        patched.setattr(Recording, "end", grown)
        assert _open(job)
    assert _open(job)
    assert not _open(job)


@pytest.mark.parametrize(
    "link", ["sqlite", "sqlite/profagent.db", "sqlite/lock", "log", "log/profagent.log", "summary"]
)
@pytest.mark.parametrize("is_there", [True, False])
def test_no_link_in_a_job_is_followed(
    job: Path, tmp_path: Path, link: str, is_there: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = tmp_path / "theirs"
    target = theirs / "target"
    theirs.mkdir()
    if is_there and "/" in link:
        target.write_bytes(b"mine")
    elif is_there:
        target.mkdir()
        (target / "profagent.db").write_bytes(b"mine")
    before = {path: path.is_file() and path.read_bytes() for path in theirs.rglob("*")}
    (job / link).parent.mkdir(exist_ok=True)
    (job / link).symlink_to(Path(*[".."] * (link.count("/") + 1)) / "theirs" / "target")
    assert run(["export", "summary", "-dir", str(job)]) == 1
    told = capsys.readouterr().err
    assert f"{job / link} is a symbolic link" in told
    assert "remove the link" in told
    assert {path: path.is_file() and path.read_bytes() for path in theirs.rglob("*")} == before


def test_a_link_in_the_place_of_a_result_is_replaced(job: Path, tmp_path: Path) -> None:
    assert run(["export", "summary", "-dir", str(job)]) == 0
    (tmp_path / "theirs").write_bytes(b"mine")
    results = sorted((job / "summary").iterdir())
    for result in results:
        result.unlink()
        result.symlink_to(tmp_path / "theirs")
    assert run(["export", "summary", "-dir", str(job)]) == 0
    assert (tmp_path / "theirs").read_bytes() == b"mine"
    assert not any(result.is_symlink() for result in results)


def test_the_log_grows_by_dated_lines(job: Path) -> None:
    write_log(job, ["first"])
    write_log(job, ["second", "third"])
    lines = (job / "log" / "profagent.log").read_text("utf-8").splitlines()
    assert [line.split()[-1] for line in lines] == ["first", "second", "third"]
    assert all(line.startswith("20") and " profagent " in line for line in lines)


# JOBs without layers, or without anything: each command says why, and what to do

INFO = {"info.json.0": SMALL_JOB["info.json.0"]}
TABLES = {**INFO, **{path: data for path, data in SMALL_JOB.items() if path.endswith(".info")}}
EMPTY = {
    "no file": ({}, "a JOB without data"),
    "info.json alone": (INFO, "a JOB without data"),
    "a model that is not built for profiling": ({**INFO, CALLS: b""}, "model 'm' (id 0) left an empty log of calls"),
    "tables": (TABLES, "a model was loaded that profiles, and nothing was recorded"),
    "tables and empty logs": ({**TABLES, PLAIN: b"", CALLS: b""}, "a model was loaded that profiles"),
}
PARTS = {
    "calls": ({**TABLES, CALLS: SMALL_JOB[CALLS][:160]}, "calls were recorded, and no layers"),
    "layers on the CPU": (
        {**TABLES, ON_CPU: SMALL_JOB[ON_CPU], f"{ON_CPU}.done": SMALL_JOB[f"{ON_CPU}.done"]},
        "layers on the CPU were recorded, and none on the NPU",
    ),
}


def _made(tmp_path: Path, files: dict[str, bytes]) -> str:
    (tmp_path / JOB / "data").mkdir(parents=True)
    return str(write_files(tmp_path / JOB, files))


@pytest.mark.parametrize("case", EMPTY)
def test_of_an_empty_job_every_command_says_what_is_missing(
    tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files, why = EMPTY[case]
    job, workspace = _made(tmp_path, files), ["--workspace", str(tmp_path / "ws")]
    for words in (
        ["import", "-dir", job],
        ["export", "summary", "-dir", job],
        ["export", "timeline", "-dir", job, "--json"],
        ["show", "-dir", job],
        ["stats", job],
        ["stats", job, "--by", "api", "--json"],
        ["import", "-dir", job, *workspace],
        ["export", "summary", "1", *workspace],
    ):
        assert run(words) == 1, words
        told = capsys.readouterr().err
        assert f"{JOB}: {why}" in told, words
        assert "--online_model_type=2" in told or "`profagent aclconfig check FILE`" in told
    assert run(["doctor", job]) == 1
    assert why in capsys.readouterr().out


def test_a_job_whose_path_is_not_utf_8_is_imported_and_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cast("TextIOWrapper", sys.stdout).reconfigure(errors="replace")
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    job = str(write_job(folder, SimulationOptions(model="yolov5s", layers=3, root=folder), 2, gaps=False))
    workspace = ["--workspace", str(folder / "workspace")]
    for words in (
        ["import", "-dir", job],
        ["import", "-dir", job, *workspace],
        ["import", "-dir", job, *workspace, "--json"],
        ["sessions", *workspace],
        ["show", job],
        ["export", "summary", "-dir", job, "--json"],
        ["export", "trace", "1", *workspace, "--json"],
        ["export", "sqlite", "1", *workspace, "--json"],
        ["stats", job],
    ):
        assert run(words) == 0, words
    assert "caf\\xe9" in Path(job, "log", "profagent.log").read_text()
    capsys.readouterr()
    assert run(["sessions", *workspace, "--json"]) == 0
    (session,) = json.loads(capsys.readouterr().out)
    assert session["address"] == f"{tmp_path}/caf\\xe9/{Path(job).name}"


def test_a_job_that_is_imported_again_has_nothing_new(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = write_job(tmp_path, SimulationOptions(model="yolov5s", layers=3, root=tmp_path), 4, gaps=False)
    into, workspace = ["import", "-dir", str(job)], ["--workspace", str(tmp_path / "workspace")]
    told = f"{job.name}: nothing new: 4 inferences are there from session 1"
    logs = sorted((job / "data").glob("aicore.*"))
    kept = {log: log.read_bytes() for log in logs[-2:]}
    for log in kept:
        log.unlink()
    for is_again in (False, True):
        assert run([*into, *workspace]) == 0
        assert ("nothing new" in capsys.readouterr().out) is is_again
    for log, data in kept.items():
        log.write_bytes(data)
    assert run([*into, *workspace]) == 0
    assert "nothing new" not in capsys.readouterr().out
    assert run([*into, *workspace]) == 0
    assert told in capsys.readouterr().out
    for is_again in (False, True):
        assert run(into) == 0
        assert ("; nothing new: no file has changed since the import before" in capsys.readouterr().out) is is_again


@pytest.mark.parametrize("case", PARTS)
def test_of_a_job_without_layers_it_is_told_why_and_what_it_has_is_exported(
    tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files, why = PARTS[case]
    job = _made(tmp_path, files)
    for words in (
        ["import", "-dir", job],
        ["import", "-dir", job, "--workspace", str(tmp_path / "ws")],
        ["stats", job],
    ):
        assert run(words) == 0
        told = capsys.readouterr().err
        assert f"{JOB}: {why}" in told
        assert '"aic_metrics": "ArithmeticUtilization"' in told
    assert run(["export", "timeline", "-dir", job]) == 0
    assert "recorded" not in capsys.readouterr().err
    assert any(file.name != "metadata.json" for file in Path(job, "timeline").iterdir())


def test_what_is_lost_of_an_empty_job_comes_first(tmp_path: Path) -> None:
    files = {**TABLES, PLAIN: b"", f"{PLAIN}.done": SMALL_JOB[f"{PLAIN}.done"]}
    assert run(["import", "-dir", _made(tmp_path, files)]) == 4


def test_of_a_job_with_layers_nothing_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = _made(tmp_path, {path: data for path, data in SMALL_JOB.items() if "acl_api" not in path})
    run(["import", "-dir", job])
    assert run(["stats", job, "--by", "api"]) == 0
    told = capsys.readouterr()
    assert "acl.json" not in told.err
    assert '"acl_api" of acl.json must be exactly "on"' in told.out
