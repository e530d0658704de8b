"""Every family has a place: of its own content, by its columns, and all of it is kept."""

from __future__ import annotations

import csv
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from profagent.ascend.families import families
from profagent.ascend.recognise import Form, recognise
from profagent.ascend.timeline import Arguments
from tests.unit.ascend import files

ADVICE = [{"Rule Type": "Computation", "Rule Suggestion": "fuse", "Tuning Data": []}]
REPORTS = {
    "communication": {"step7": {"p2p": {}, "collective": {"hcom@1": {"Communication Time Info": {"Elapse": 1}}}}},
    "communication_matrix": {
        "step7": {"collective": {"allreduce@1": {"0-1": {"Transport Type": "HCCS", "Transit Size(MB)": 4.1}}}}
    },
    "prof_rule": {"data": ADVICE},
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a session of each family, in files whose names tell nothing."""
    folder = tmp_path_factory.mktemp("families")
    for number, sheet in enumerate(files.SUMMARIES.values()):
        files.summary(folder / f"summary {number:02}.csv", *sheet)
    for number, events in enumerate(files.TIMELINES.values()):
        files.timeline(folder / f"timeline {number:02}.json", events)
    for number, report in enumerate(REPORTS.values()):
        files.write(folder / f"report {number:02}.json", json.dumps(report))
    files.taken(folder / "workspace", folder)
    return folder / "workspace"


def test_each_is_known_by_its_content(workspace: Path) -> None:
    found = files.rows(workspace, "SELECT kind, family FROM ascend_files ORDER BY file")
    reports, summaries, timelines = (
        [(kind, name) for name in names]
        for kind, names in (("report", REPORTS), ("summary", files.SUMMARIES), ("timeline", files.TIMELINES))
    )
    assert found == reports + summaries + timelines


@pytest.mark.parametrize("name", files.SUMMARIES)
def test_a_summary_is_kept_cell_by_cell(name: str, workspace: Path) -> None:
    header, row = files.SUMMARIES[name]
    sql = f"SELECT row, column_name, value FROM ascend_values WHERE family = '{name}' AND file LIKE 'summary%'"
    cells = files.rows(workspace, sql)
    assert [column for _, column, _ in cells] == header.split(",")
    assert [value for *_, value in cells] == next(csv.reader([row]))


@pytest.mark.parametrize("name", files.TIMELINES)
def test_a_timeline_is_kept_event_by_event(name: str, workspace: Path) -> None:
    sql = "SELECT cells FROM ascend_block JOIN ascend_file USING (log) WHERE kind = 'timeline' AND family = "
    blocks = files.rows(workspace, f"{sql} '{name}' ORDER BY number")
    assert [each for (cells,) in blocks for each in json.loads(cells)] == files.TIMELINES[name]


def test_each_family_is_tried_here_or_is_a_table() -> None:
    tried = {*files.SUMMARIES, *files.TIMELINES, *REPORTS, "op_summary", "kernel_details"}
    assert {family.name for family in families().family if family.kind != "table"} == tried


def test_what_is_read_of_a_database_are_the_columns_that_its_families_name(tmp_path: Path) -> None:
    file = files.database(tmp_path / "msprof_1.db")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executescript(f"""
            CREATE TABLE COMMUNICATION_OP AS SELECT 1 AS opName, {files.START_NS} + 1 AS startNs, 9 AS connectionId,
                {files.START_NS} + 3 AS endNs, 2 AS opType, 2 AS deviceId;
            CREATE TABLE OVERLAP_ANALYSIS AS SELECT 1 AS id, startNs, endNs, deviceId, 0 AS type FROM TASK;
        """)
    files.taken(tmp_path / "workspace", file)
    with closing(sqlite3.connect(file)) as connection, connection:
        for family in families().family:
            if family.kind == "table" and family.name != "StepTraceTime":
                connection.execute(f"CREATE TABLE narrow AS SELECT {', '.join(family.needs)} FROM {family.name}")
                connection.execute(f"DROP TABLE {family.name}")
                connection.execute(f"ALTER TABLE narrow RENAME TO {family.name}")
    assert files.taken(tmp_path / "workspace", file)[0].losses == 0
    records = "SELECT layer_name, start_us, mac_busy, device_id FROM op_records WHERE session = "
    figures = "SELECT place, key, number, total FROM figure WHERE session = "
    for sql in (records, figures):
        first, second = (sorted(files.rows(tmp_path / "workspace", f"{sql}{session}"), key=str) for session in (1, 2))
        assert first == second
        assert len(first) > 2


def test_what_is_read_of_an_event_is_named() -> None:
    known = families()
    named = {alias for aliases in (*known.columns.values(), *known.steps.values()) for alias in aliases}
    read = {field.encode_name for field in msgspec.structs.fields(Arguments)}
    assert read - named == {"name", "labels"}


def test_a_header_that_is_not_known_is_no_result(tmp_path: Path) -> None:
    found = recognise(files.summary(tmp_path / "x.csv", "a,b", "1,2"))
    assert found.form is Form.SUMMARY
    assert found.sheet is not None
    assert found.sheet.family is None


@pytest.mark.parametrize(
    "name",
    ["thread_group", "ge_op_execute"],
)
def test_a_timeline_whose_events_do_not_tell_is_known_by_its_name(name: str) -> None:
    family = families().of_events([], [], f"{name}_0_1_1.json")
    assert family is not None
    assert family.name == name
