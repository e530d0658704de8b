"""What other tools make of `export parquet`, `export sqlite` and `export speedscope`."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from profagent.export.parquet import exported_views
from profagent.ingest.local import list_job
from tests.integration.board import simulated
from tests.integration.host import profagent
from tests.integration.rows import query


def ran(*arguments: str | Path) -> Any:
    ended = profagent("export", *arguments, "--json")
    assert ended.code == 0, ended.err
    return ended.document


@pytest.fixture(scope="module")
def lake(demo_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    ran("parquet", "1", "--workspace", demo_workspace, "--output", folder)
    return folder


VIEWS = [view.name for view in exported_views()]


@pytest.mark.parametrize("view", VIEWS)
def test_duckdb_reads_what_the_view_has(demo_workspace: Path, lake: Path, view: str) -> None:
    """Every row, with the values that the database gives, and the board's from the folder's name."""
    database = demo_workspace / "profagent.db"
    with closing(sqlite3.connect(database)) as connection:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({view})")]
    rows = query(database, f"SELECT {', '.join(columns)} FROM {view}")
    files = f"{lake}/{view}/*/*/*.parquet"
    if not rows:
        assert not [*lake.glob(f"{view}/**/*.parquet")]
        return
    read = f"read_parquet('{files}', hive_partitioning = true, hive_types_autocast = false)"
    with duckdb.connect() as connection:
        found = connection.sql(f"SELECT {', '.join(columns)} FROM {read}").fetchall()
        told = connection.sql(f"SELECT key::VARCHAR, value::VARCHAR FROM parquet_kv_metadata('{files}')").fetchall()
        (codec,) = connection.sql(f"SELECT DISTINCT compression FROM parquet_metadata('{files}')").fetchall()
    assert _sorted(found) == _sorted(rows)
    assert codec == ("ZSTD",)
    metadata = dict(told)
    assert (metadata["session"], metadata["simulated"], metadata["complete"]) == ("1", "true", "true")
    assert query(database, "SELECT board FROM sessions") == [(metadata["board"],)]


def _sorted(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Times are doubles there."""
    return sorted((tuple(float(each) if isinstance(each, int) else each for each in row) for row in rows), key=repr)


def test_every_column_has_a_type(demo_workspace: Path) -> None:
    """A new column of a view that holds numbers would be a text."""
    with closing(sqlite3.connect(demo_workspace / "profagent.db")) as connection:
        for view in exported_views():
            cursor = connection.execute(f"SELECT * FROM {view.name}")
            rows = cursor.fetchall()
            for place, (name, *_) in enumerate(cursor.description):
                kinds = {type(row[place]) for row in rows} - {type(None)}
                if name == "session" or name in view.whole | view.unsigned:
                    assert kinds <= {int}, (view, name)
                elif name in view.fractions or name.endswith("_us"):
                    assert kinds <= {int, float}, (view, name)
                elif name not in view.mixed:
                    assert kinds <= {str}, (view, name)


def test_without_pyarrow_it_says_what_to_install(
    demo_workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "profagent.export.parquet_files", raising=False)
    ended = profagent("export", "parquet", "1", "--workspace", demo_workspace, "--output", tmp_path)
    assert ended.code == 2
    assert f"{sys.executable} -m pip install pyarrow" in ended.err


def test_a_session_as_a_database_of_its_own(demo_workspace: Path, tmp_path: Path) -> None:
    """The views have what they had for it, others' rows are not there, and our own commands read it."""
    both = tmp_path / "both"
    both.mkdir()
    with (
        closing(sqlite3.connect(demo_workspace / "profagent.db")) as source,
        closing(sqlite3.connect(both / "profagent.db")) as copy,
    ):
        source.backup(copy)
        with copy:
            copy.execute("INSERT INTO board VALUES (9, 'other', 'other', 'x')")
            copy.execute("INSERT INTO session SELECT 2, 9, source, address, started_us, ended_us, simulated,"
                         " daemon_version, sdk_version, counter_map, keeping, counter_map_digest, counter_map_likely"
                         " FROM session")  # fmt: skip
            copy.execute("INSERT INTO job (board, name, directory, state) VALUES (9, 'JOBX', '/x', 'open')")
    (document,) = ran("sqlite", "1", "--workspace", both, "--output", tmp_path / "one" / "profagent.db")
    one = tmp_path / "one" / "profagent.db"
    assert document["path"] == str(one)
    views = [name for (name,) in query(one, "SELECT name FROM sqlite_master WHERE type = 'view'")]
    assert set(VIEWS) <= set(views)
    for view in views:
        assert query(one, f"SELECT * FROM {view}") == query(demo_workspace / "profagent.db", f"SELECT * FROM {view}")
    assert query(one, "SELECT hostname FROM board") == query(
        demo_workspace / "profagent.db", "SELECT hostname FROM board"
    )
    told = dict(query(one, "SELECT key, value FROM export"))
    assert (told["session"], told["simulated"], told["complete"]) == ("1", "true", "true")
    assert (told["board"],) == query(one, "SELECT board FROM sessions")[0]
    theirs = profagent("stats", "1", "--workspace", demo_workspace, "--json").out
    assert profagent("stats", "1", "--workspace", one.parent, "--json").out == theirs


def test_a_workspace_is_never_replaced_by_an_export(demo_workspace: Path, tmp_path: Path) -> None:
    workspace = shutil.copytree(demo_workspace, tmp_path / "workspace")
    database = workspace / "profagent.db"
    before = database.read_bytes()
    for form in ("sqlite", "trace", "speedscope"):
        ended = profagent("export", form, "1", "--workspace", workspace, "--output", database)
        assert ended.code == 2, form
        assert "name another file" in ended.err
    assert database.read_bytes() == before
    for _ in range(2):
        ended = profagent("export", "sqlite", "1", "--workspace", workspace, "--output", tmp_path / "one.db")
        assert ended.code == 0, ended.err


def test_a_speedscope_profile_has_each_slice(demo_workspace: Path, tmp_path: Path) -> None:
    """One profile for each track, whose opened and closed events are the slices of the trace."""
    file = tmp_path / "trace.speedscope.json"
    document = ran("speedscope", "1", "--workspace", demo_workspace, "--output", file)
    found = json.loads(file.read_text())
    ran("trace", "1", "--workspace", demo_workspace, "--output", tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    frames = [frame["name"] for frame in found["shared"]["frames"]]
    slices = []
    for profile in found["profiles"]:
        assert (profile["type"], profile["unit"]) == ("evented", "microseconds")
        opened: list[tuple[int, float]] = []
        before = profile["startValue"]
        for event in profile["events"]:
            assert before <= event["at"] <= profile["endValue"]
            before = event["at"]
            if event["type"] == "O":
                opened.append((event["frame"], event["at"]))
            else:
                frame, begin = opened.pop()
                assert frame == event["frame"]
                slices.append((frames[frame], round(begin * 1000), round(event["at"] * 1000)))
        assert not opened
    expected = [
        (_frame(event), start, start + round(event["dur"] * 1000))
        for event in trace
        if event["ph"] == "X"
        for start in [round(event["ts"] * 1000)]
    ]
    assert sorted(slices) == sorted(expected)
    assert document["events"] == len(slices)
    assert found["profagent"]["sessions"][0]["simulated"] is True
    assert "[simulated]" in found["name"]


def _frame(event: dict[str, Any]) -> str:
    return "inference" if event["cat"] == "inference" else str(event["name"])


def test_a_job_that_is_imported_anew_leaves_no_file_of_its_earlier_export(tmp_path: Path) -> None:
    job = simulated(tmp_path / "board", 2, model="mobilenetv2")
    ran("parquet", job, "--output", tmp_path / "lake")
    before = {file.relative_to(tmp_path) for file in tmp_path.glob("lake/**/*.parquet")}
    stale = tmp_path / "lake" / "metrics" / "board=import" / "date=2020-01-01" / next(iter(before)).name
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"")
    other = simulated(tmp_path / "other", 2, model="mobilenetv2", seed=7)
    for again in (other, job):
        os.utime(again / "info.json.0")
        ran("parquet", again, "--output", tmp_path / "lake")
    files = {file.relative_to(tmp_path) for file in tmp_path.glob("lake/**/*.parquet")}
    assert before < files
    assert len(files) == 2 * len(before)


def test_what_is_exported_into_a_job_is_nothing_odd_to_its_next_import(tmp_path: Path) -> None:
    job = simulated(tmp_path, 2, model="mobilenetv2")
    for form in ("parquet", "sqlite", "trace"):
        ran(form, job)
    assert {"parquet", "exports", "trace"} < {each.name for each in job.iterdir()}
    assert list_job(job).others == ()


def test_copied_jobs_are_told_apart_by_their_names(tmp_path: Path) -> None:
    jobs = [simulated(tmp_path / name, 2, model="mobilenetv2", seed=seed) for seed, name in enumerate("ab")]
    for form, file in (("trace", tmp_path / "trace.json"), ("speedscope", tmp_path / "trace.speedscope.json")):
        ran(form, *jobs, "--output", file)
        for job in jobs:
            assert f"{job.name} [simulated]" in file.read_text()
