"""Real results of other tools, where they lie beside the checkout: rows and sums are those of the files."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from profagent.export.merged import SessionOperand, export_trace
from tests.unit.ascend.files import rows, taken

SAMPLES = next(
    (
        found
        for above in Path(__file__).parents[3:6]
        if (found := above / "shared" / "reference" / "ascend" / "samples").is_dir()
    ),
    Path("not there"),
).resolve()
IS_THERE = SAMPLES.is_dir() or "REQUIRE_SAMPLES" in os.environ
pytestmark = pytest.mark.skipif(not IS_THERE, reason="../shared does not exist")
RESULTS = sorted(file for file in SAMPLES.rglob("*") if file.suffix in (".csv", ".json", ".db"))
FILES = [file for file in RESULTS if not file.name.startswith(("profiler_info", "profiler_metadata", "info."))]
DURATIONS = ("Duration(us)", "Task Duration(us)")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace = tmp_path_factory.mktemp("samples") / "workspace"
    assert all(each.error is None for each in taken(workspace, SAMPLES))
    return workspace


def _of(workspace: Path, file: Path) -> tuple[int, int]:
    """A file's number, and how many rows it has: sessions have its directory, files their paths in it."""
    sql = "SELECT f.log, f.rows FROM ascend_file f JOIN log l USING (log) JOIN session s USING (session)"
    ((log, count),) = rows(workspace, f"{sql} WHERE '{file}' IN (s.address, s.address || '/' || l.shown_path)")
    return log, count


@pytest.mark.parametrize("file", [file for file in FILES if file.suffix == ".csv"], ids=lambda file: file.name)
def test_rows_and_sums_of_a_summary(file: Path, workspace: Path) -> None:
    with file.open(encoding="utf-8", newline="") as text:
        header, *lines = list(csv.reader(text))
    log, count = _of(workspace, file)
    assert count == len(lines)
    cells = rows(workspace, f"SELECT cells FROM ascend_block WHERE log = {log} ORDER BY number")
    assert [row for (block,) in cells for row in json.loads(block)] == lines
    at = [place for place, name in enumerate(header) if name in DURATIONS]
    lines = [row for row in lines if len(row) == len(header)]
    if at:
        sums = f"SELECT sum(r.ticks), count(*) FROM aicore r JOIN segment USING (segment) WHERE log = {log}"
        ((ticks, kernels),) = rows(workspace, sums)
        if kernels:
            whole = sum(float(row[at[0]]) * 1000 for row in lines)
            assert kernels == len(lines)
            assert ticks == pytest.approx(whole, abs=len(lines) / 2)


def _figures(workspace: Path, log: int, by: str) -> list[tuple[Any, ...]]:
    """How many calls or whole steps the session of a file has, and how long they took."""
    sql = "SELECT sum(number), sum(total) FROM figure JOIN session_job USING (session) JOIN log USING (job)"
    return rows(workspace, f'{sql} WHERE log = {log} AND "by" = \'{by}\' AND key NOT LIKE \'["step %, "_%"]\'')


@pytest.mark.parametrize(
    ("file", "by"),
    [
        (file, by)
        for name, by in (("api_statistic", "api"), ("step_trace_time", "step"))
        for file in FILES
        if file.suffix == ".csv" and file.name.startswith(name)
    ],
    ids=str,
)
def test_calls_and_steps_of_a_summary(file: Path, by: str, workspace: Path) -> None:
    with file.open(encoding="utf-8", newline="") as text:
        lines = list(csv.DictReader(text))
    parts = ("Time(us)",) if by == "api" else ("Computing", "Communication(Not Overlapped)", "Free")
    times = sum(int(line.get("Count", 1)) for line in lines)
    total = sum(float(line[part]) for line in lines for part in parts)
    assert _figures(workspace, _of(workspace, file)[0], by) == [(times, pytest.approx(total))]


@pytest.mark.parametrize("file", [file for file in FILES if file.suffix == ".json"], ids=lambda file: file.name)
def test_events_of_a_timeline(file: Path, workspace: Path) -> None:
    content = json.loads(file.read_text("utf-8"))
    log, count = _of(workspace, file)
    if not isinstance(content, list):
        assert count == sum(len(operators) for kinds in content.values() for operators in kinds.values())
        return
    cells = rows(workspace, f"SELECT cells FROM ascend_block WHERE log = {log} ORDER BY number")
    assert [event for (block,) in cells for event in json.loads(block)] == content
    assert count == len(content)


@pytest.mark.parametrize("file", [file for file in FILES if file.suffix == ".db"], ids=lambda file: file.name)
def test_rows_of_a_database(file: Path, workspace: Path) -> None:
    with closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        counts = {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names}
        whole = (
            "SELECT sum(ns), count(*) FROM (SELECT endNs - startNs AS ns FROM TASK JOIN COMPUTE_TASK_INFO"
            " USING (globalTaskId) UNION ALL SELECT endNs - startNs FROM COMMUNICATION_OP)"
        )
        kernels = connection.execute(whole).fetchone() if "TASK" in names else (None, 0)
    found = rows(workspace, f"SELECT family, rows FROM ascend_files WHERE file LIKE '%{file.name}/%'")
    assert dict(found) == {name: count for name, count in counts.items() if name in dict(found)}
    assert counts.keys() - dict(found).keys() <= {"sqlite_sequence"}
    if "CANN_API" in counts:
        ((log,),) = rows(workspace, f"SELECT log FROM log WHERE shown_path LIKE '%{file.name}/CANN_API'")
        assert _figures(workspace, log, "api")[0][0] == counts["CANN_API"]
    if kernels[1]:
        sums = "SELECT sum(r.ticks), count(*) FROM aicore r JOIN segment s USING (segment) JOIN log l USING (log)"
        assert rows(workspace, f"{sums} WHERE l.shown_path LIKE '%{file.name}/TASK'") == [kernels]


def test_pipes_of_a_database_are_those_of_its_tasks(workspace: Path) -> None:
    (file,) = SAMPLES.rglob("ascend_pytorch_profiler_0.db")
    with closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as connection:
        sums = (
            "SELECT total(most) FROM (SELECT max(p.value) AS most FROM TASK_PMU_INFO p"
            " JOIN STRING_IDS s ON s.id = p.name JOIN TASK USING (globalTaskId)"
            " JOIN COMPUTE_TASK_INFO USING (globalTaskId) WHERE s.value IN (?, ?)"
            " GROUP BY globalTaskId)"
        )
        # Of what the cube and the vector core both have, the larger one.
        pairs = [("aic_mac_ratio", ""), ("aiv_vec_ratio", ""), ("aic_fixpipe_ratio", "aiv_mte3_ratio")]
        pairs += [("aic_mte1_ratio", ""), ("aic_mte2_ratio", "aiv_mte2_ratio")]
        wanted = [connection.execute(sums, names).fetchone()[0] for names in pairs]
    totals = ", ".join(f"total({name})" for name in ("mac_busy", "vec_busy", "dstr", "dtrans", "dld"))
    tasks = "SELECT part FROM part JOIN log USING (log) WHERE shown_path LIKE '%ascend_pytorch_profiler_0.db/TASK'"
    found = rows(workspace, f"SELECT {totals} FROM aicore WHERE record >> 24 IN ({tasks})")
    assert found[0] == pytest.approx(wanted)
    assert min(wanted) > 1


def test_slices_of_a_timeline_are_in_the_trace(workspace: Path) -> None:
    (file,) = SAMPLES.rglob("msprof_0_2_1.json")
    events = [each for each in json.loads(file.read_text("utf-8")) if each["ph"] == "X"]
    wanted = Counter(
        (each["name"], round(each["ts"], 2), round(each["dur"], 3))
        for each in events
        if "Task Type" not in each.get("args", {})
    )
    ((session,),) = rows(workspace, "SELECT session FROM session WHERE address LIKE '%20230818%'")
    written = asyncio.run(export_trace([SessionOperand(workspace / "profagent.db", session)], workspace / "trace.json"))
    found = json.loads(written.files[0].read_text("utf-8"))
    origin_us = found["metadata"]["origin_us"]
    slices = Counter(
        (each["name"], round(origin_us + each["ts"], 2), each["dur"]) for each in found["traceEvents"] if "dur" in each
    )
    assert sum(wanted.values()) == 559
    assert wanted - slices == Counter()
    assert written.unplaced == 0
