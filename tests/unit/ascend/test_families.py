"""Every family has a place: of its own content, by its columns, and all of it is kept."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from profagent.ascend.families import families
from profagent.ascend.recognise import Form, recognise
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
