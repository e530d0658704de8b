"""Every family has a place: of its own content, by its columns, and all of it is kept."""

from __future__ import annotations

import csv
import gzip
import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from profagent.ascend.families import families
from profagent.ascend.recognise import Form, recognise
from profagent.ascend.timeline import Arguments
from profagent.cli.main import run
from profagent.errors import UsageError
from profagent.importing.sources import Walk
from tests.unit.ascend import files
from tests.unit.ascend.files import OP_SUMMARY, kernel, rows, summary, taken, timeline, write

ADVICE = [{"Rule Type": "Computation", "Rule Suggestion": "fuse", "Tuning Data": []}]
REPORTS = {
    "communication": {"step7": {"p2p": {}, "collective": {"hcom@1": {"Communication Time Info": {"Elapse": 1}}}}},
    "communication_matrix": {
        "step7": {"collective": {"allreduce@1": {"0-1": {"Transport Type": "HCCS", "Transit Size(MB)": 4.1}}}}
    },
    "prof_rule": {"data": ADVICE},
}


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def test_each_is_known_by_its_content(imported: Path) -> None:
    found = files.rows(imported, "SELECT kind, family FROM ascend_files ORDER BY file")
    reports, summaries, timelines = (
        [(kind, name) for name in names]
        for kind, names in (("report", REPORTS), ("summary", files.SUMMARIES), ("timeline", files.TIMELINES))
    )
    assert found == reports + summaries + timelines


@pytest.mark.parametrize("name", files.SUMMARIES)
def test_a_summary_is_kept_cell_by_cell(name: str, imported: Path) -> None:
    header, row = files.SUMMARIES[name]
    sql = f"SELECT row, column_name, value FROM ascend_values WHERE family = '{name}' AND file LIKE 'summary%'"
    cells = files.rows(imported, sql)
    assert [column for _, column, _ in cells] == header.split(",")
    assert [value for *_, value in cells] == next(csv.reader([row]))


@pytest.mark.parametrize("name", files.TIMELINES)
def test_a_timeline_is_kept_event_by_event(name: str, imported: Path) -> None:
    sql = "SELECT cells FROM ascend_block JOIN ascend_file USING (log) WHERE kind = 'timeline' AND family = "
    blocks = files.rows(imported, f"{sql} '{name}' ORDER BY number")
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


@pytest.mark.parametrize("name", ["thread_group", "ge_op_execute"])
def test_a_timeline_whose_events_do_not_tell_is_known_by_its_name(name: str) -> None:
    family = families().of_events([], [], f"{name}_0_1_1.json")
    assert family is not None
    assert family.name == name


# What lies at a path: which files are one session, and what is told where nothing is


def test_a_folder_of_one_run_is_one_session_whatever_it_is_called(tmp_path: Path, workspace: Path) -> None:
    folder = tmp_path / "in"
    summary(folder / "flat" / "kernel_details.csv", files.KERNEL_DETAILS, "7,conv1,Conv2D,AI_CORE,1.5,2.5,0,8")
    summary(folder / "flat" / "op_statistic.csv", *files.SUMMARIES["op_statistic"])
    write(folder / "flat" / "README.txt", "what each file is")
    files.database(folder / "with a database" / "msprof_1.db")
    summary(folder / "with a database" / "api_statistic_1.csv", *files.SUMMARIES["api_statistic"])
    timeline(folder / "of 2023" / "device_3" / "timeline" / "msprof_3_1_1.json", files.TIMELINES["msprof"])
    results = folder / "of 2026" / "mindstudio_profiler_output"
    for number in (0, 1):
        timeline(results / f"msprof_slice_{number}_1.json", files.TIMELINES["msprof"])
        timeline(folder / "sliced" / f"msprof_slice_{number}_1.json", files.TIMELINES["msprof"])
    summary(folder / "sliced" / "op_summary_1.csv", OP_SUMMARY, kernel())
    summary(folder / "sliced" / "op_statistic_1.csv", *files.SUMMARIES["op_statistic"])
    for name, family in {"msprof": "msprof", "msprof_tx": "msproftx", "step_trace": "step_trace"}.items():
        timeline(folder / "called alike" / f"{name}_1.json", files.TIMELINES[family])
    summary(folder / "called alike" / "step_trace_1.csv", *files.SUMMARIES["step_trace"])
    files.database(folder / "called alike" / "msprof_1.db")
    found = {each.path.name: len(each.files) for each in files.found(folder).results}
    assert found == {"flat": 2, "with a database": 2, "of 2023": 1, "of 2026": 2, "sliced": 4, "called alike": 5}
    (one,) = taken(workspace, folder / "of 2023" / "device_3" / "timeline" / "..")
    assert one.path.name == "device_3"
    assert taken(workspace, folder / "sliced")[0].kernels == 1


@pytest.mark.parametrize("names", [("op_summary_a.csv", "op_summary_b.csv", "op_statistic.csv"), ("a.csv", "b.csv")])
def test_files_that_somebody_put_together_stay_apart(names: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        header = files.SUMMARIES["op_statistic"][0] if name in ("op_statistic.csv", "b.csv") else OP_SUMMARY
        summary(tmp_path / "in" / name, header)
    assert [each.path.name for each in files.found(tmp_path / "in").results] == sorted(names)


def test_files_beside_databases_of_several_runs_are_not_passed_over(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for name in ("msprof_1.db", "msprof_2.db", "PROF_Y/msprof_3.db"):
        files.database(runs / name)
    (runs / "PROF_Y" / "device_0").mkdir()
    summary(runs / "PROF_X" / "mindstudio_profiler_output" / "op_summary_1.csv", OP_SUMMARY, kernel())
    summary(runs / "mine.csv", OP_SUMMARY, kernel())
    names = ["PROF_X", "PROF_Y", "mine.csv", "msprof_1.db", "msprof_2.db"]
    assert [each.path.name for each in files.found(runs).results] == names


@pytest.mark.parametrize("name", ["monday_run.json", "other.db"])
def test_a_known_file_that_somebody_called_otherwise_is_a_run_of_its_own(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    summary(folder / "op_summary_1.csv", OP_SUMMARY, kernel())
    summary(folder / "op_statistic_1.csv", *files.SUMMARIES["op_statistic"])
    write(folder / "notes.json", '{"by": "hand"}')
    assert len(files.found(folder).results) == 1
    if name.endswith(".db"):
        files.database(folder / name)
    else:
        timeline(folder / name, files.TIMELINES["msprof"])
    assert {each.path.name for each in files.found(folder).results} == {name, "op_statistic_1.csv", "op_summary_1.csv"}


def test_files_of_other_tools_are_passed_over_in_a_folder_of_many(tmp_path: Path, workspace: Path) -> None:
    run, apart = tmp_path / "runs" / "run", tmp_path / "runs" / "saved"
    summary(run / "op_summary_1.csv", OP_SUMMARY, kernel())
    summary(run / "op_statistic_1.csv", *files.SUMMARIES["op_statistic"])
    apart.mkdir()
    for name in ("model.pt", "weights.npz", "results.zip"):
        with zipfile.ZipFile(apart / name, "w") as packed:
            packed.write(run / "op_summary_1.csv", "op_summary_1.csv")
    (apart / "train.log.gz").write_bytes(gzip.compress(b"step 1"))
    for folder in (run, apart):
        with closing(sqlite3.connect(folder / "optuna.db")) as connection:
            connection.execute("CREATE TABLE trials (x)")
    assert [each.path.name for each in files.found(tmp_path / "runs").results] == ["run", "op_summary_1.csv"]
    # What is named itself is looked into.
    assert [each.error for each in taken(workspace, apart / "model.pt")] == [None]


def test_a_folder_without_results_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing that can be imported"):
        files.found(tmp_path)


@pytest.mark.parametrize("name", ["none", "x.csv/none", "n" * 300, "loop"])
def test_a_path_that_leads_nowhere_is_a_usage_error(
    name: str, tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary(tmp_path / "x.csv", OP_SUMMARY)
    (tmp_path / "loop").symlink_to("loop")
    assert run(["import", str(tmp_path / name), "--workspace", str(workspace)]) == UsageError.exit_code
    assert f"{tmp_path / name}" in capsys.readouterr().err


def test_a_file_that_vanishes_meanwhile_stops_no_other(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (summary(tmp_path / name, OP_SUMMARY, kernel()) for name in ("1.csv", "2.csv"))
    finish = Walk.finish

    def vanish(self: Walk) -> None:
        first.unlink()
        finish(self)

    monkeypatch.setattr(Walk, "finish", vanish)
    one, two = taken(workspace, first, second)
    assert (one.session, two.session) == (None, 1)
    assert "1.csv: [Errno 2] No such file" in str(one.error)


def test_of_what_was_exported_several_times_the_newest_counts(tmp_path: Path, workspace: Path) -> None:
    folder = tmp_path / "PROF_1" / "mindstudio_profiler_output"
    (tmp_path / "PROF_1" / "device_0").mkdir(parents=True)
    for place, time in enumerate(("20260823165335", "20260824101010"), 1):
        for part in range(2):
            summary(folder / f"op_summary_slice_{part}_{time}.csv", OP_SUMMARY, kernel(duration=f"{place}.0"))
        summary(folder / f"api_statistic_{time}.csv", *files.SUMMARIES["api_statistic"])
        timeline(folder / f"msprof_{time}.json", files.TIMELINES["msprof"])
        files.database(folder.parent / f"msprof_{time}.db")
    timeline(folder / "step_trace_20260823165335.json", files.TIMELINES["step_trace"])
    (one,) = taken(workspace, folder.parent)
    assert (one.error, one.kernels, one.losses) == (None, 2, 0)
    assert rows(workspace, "SELECT DISTINCT ticks FROM aicore") == [(2000,)]
    assert rows(workspace, "SELECT number FROM figure WHERE \"by\" = 'api'") == [(2,)]
    assert rows(workspace, "SELECT reason, detail FROM ledger WHERE log = 'msprof_20260823165335.db'") == [
        ("not-counted", "msprof_20260824101010.db is a later export of it")
    ]
    assert rows(workspace, "SELECT count(*) FROM ledger") == [(5,)]
