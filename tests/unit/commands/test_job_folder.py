"""Our own files in a JOB directory: the database, made anew when it is older than the JOB, and the log."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from profagent.commands.counter_maps import BUILT_IN, CounterMaps, simulated_map
from profagent.commands.job_folder import imported_database, write_log
from profagent.errors import StoreError

SMALL = Path(__file__).parents[2] / "data" / "jobs" / "JOBTYRYTZMLNOARGBLJWHWAIQCCTSSTR"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SMALL, tmp_path / SMALL.name))


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


def test_our_own_files_are_not_the_job_s(job: Path) -> None:
    _open(job)
    write_log(job, ["show"])
    (job / "summary").mkdir()
    (job / "summary" / "table.csv").write_text("x", "ascii")
    assert not _open(job)


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


def test_a_database_of_an_older_version_is_made_anew(job: Path) -> None:
    _open(job)
    with closing(sqlite3.connect(job / "sqlite" / "profagent.db")) as connection:
        connection.execute("PRAGMA user_version = 1")
    assert _open(job)
    (job / "sqlite" / "profagent.db").write_bytes(b"no database at all, but text that is long enough" * 9)
    assert _open(job)


def test_the_log_grows_by_dated_lines(job: Path) -> None:
    write_log(job, ["first"])
    write_log(job, ["second", "third"])
    lines = (job / "log" / "profagent.log").read_text("utf-8").splitlines()
    assert [line.split()[-1] for line in lines] == ["first", "second", "third"]
    assert all(line.startswith("20") and " profagent " in line for line in lines)


def test_a_log_that_cannot_be_written_is_told(job: Path) -> None:
    (job / "log").write_text("in the way", "ascii")
    with pytest.raises(StoreError, match="cannot write"):
        write_log(job, ["first"])
