"""Our own files in a JOB directory: the database, made anew when it is older than the JOB, and the log."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagent.cli.main import run
from profagent.importing.importing import import_alone
from profagent.importing.job_folder import alone_in_job, imported_database, write_log
from profagent.ingest.local import LocalJob
from profagent.store.counter_maps import BUILT_IN, CounterMaps, simulated_map

if TYPE_CHECKING:
    from profagent.ingest.changes import Change


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
        assert await told.get() == f"another profagent imports {job}: waiting for it"
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
    end = LocalJob.end

    def grown(self: LocalJob, unsettled: list[str], orphans: list[str]) -> list[Change]:
        os.utime(job / "data/acl_api.0.yolo.0")
        return end(self, unsettled, orphans)

    with monkeypatch.context() as patched:
        patched.setattr(LocalJob, "end", grown)
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
