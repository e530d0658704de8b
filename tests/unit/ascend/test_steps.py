"""Steps, models and devices: each in its place, and those that count alike apart."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from profagent.stats.cli import command as stats_command
from tests.unit.ascend import files
from tests.unit.ascend.files import START_NS, event, process, rows, summary, taken, timeline


def test_steps_streams_and_devices_are_told_apart(tmp_path: Path, workspace: Path) -> None:
    places = [("7", "0", "1"), ("8", "0", "1"), ("8", "0", "2"), ("8", "5", "2"), ("", "5", "2")]
    lines = [f"{step},conv1,Conv2D,1.5,2.5,{device},{stream},AI_CORE" for step, device, stream in places]
    header = "Step Id,Name,Type,Start Time(us),Duration(us),Device_id,Stream ID,Accelerator Core"
    taken(workspace, summary(tmp_path / "x.csv", header, *lines))
    sql = "SELECT current_pic_count, device_id, net FROM segment JOIN inference USING (inference) ORDER BY segment"
    assert rows(workspace, sql) == [(7, 0, 1), (8, 0, 1), (8, 0, 2), (8, 5, 2), (9, 5, 2)]
    assert rows(workspace, "SELECT count(*) FROM inference") == [(4,)]


def test_tasks_of_several_devices_in_a_timeline_stay_apart(tmp_path: Path, workspace: Path) -> None:
    args = {"Task Type": "AI_CORE", "Stream Id": 3}
    events = []
    for device in (0, 5):
        labels = {"labels": f"NPU {device}"}
        events += [
            process(100 + device, "Ascend Hardware"),
            {"name": "process_labels", "ph": "M", "pid": 100 + device, "tid": 0, "args": labels},
            event("k", 100 + device, 1, args=args),
        ]
    taken(workspace, timeline(tmp_path / "msprof_1.json", events))
    assert rows(workspace, "SELECT device_id FROM inference ORDER BY 1") == [(0,), (5,)]


@pytest.mark.parametrize("name", ["step_trace_time", "step_trace"])
def test_steps_are_told_with_their_parts(name: str, tmp_path: Path, workspace: Path) -> None:
    taken(workspace, summary(tmp_path / "x.csv", *files.SUMMARIES[name]))
    answer = CliRunner().invoke(stats_command, ["1", "--workspace", str(workspace), "--by", "step", "--json"])
    parts = {(row["step"], row["range"]): row["total"] for row in json.loads(answer.output)["rows"]}
    wanted = {
        "step_trace_time": {("step 7", ""): 15.0, ("step 7", "Computing"): 10.0, ("step 7", "Free"): 1.0},
        "step_trace": {("step 1", ""): 50.0, ("step 1", "FP to BP"): 40.0, ("step 1", "Iteration Refresh"): 10.0},
    }
    assert wanted[name].items() <= parts.items()


def test_parts_of_a_step_whose_time_is_not_known_are_told(tmp_path: Path, workspace: Path) -> None:
    header, row = files.SUMMARIES["step_trace"]
    taken(workspace, summary(tmp_path / "x.csv", header, row.replace(",50.0,", ",N/A,")))
    found = rows(workspace, "SELECT key, total, share FROM figure ORDER BY place")
    assert found == [('["step 1", "FP to BP"]', 40.0, None), ('["step 1", "Iteration Refresh"]', 10.0, None)]
    assert rows(workspace, "SELECT reason, count FROM ledger") == [("not-counted", 1)]


_STEP_ROWS = (("0", "1", "50"), ("0", "2", "60"), ("1", "1", "70"))
_STEP_NAMES = {
    ("step 1, model 1, device 0", 50.0),
    ("step 1, model 2, device 0", 60.0),
    ("step 1, model 1, device 1", 70.0),
}


def _steps_of_models(folder: Path, form: str) -> Path:
    """Step 1 of two models and two devices, as each form and generation of a file has it."""
    if form == "summary":
        lines = [f"1,{whole},{model},{device}" for device, model, whole in _STEP_ROWS]
        return summary(folder / "x.csv", "Iteration ID,Iteration Time(us),Model ID,Device_id", *lines)
    if form.startswith("timeline"):
        is_packed = form == "timeline of packed processes"
        label, name = ("NPU", "Step Trace(Model ID):{}") if is_packed else ("NPU {}", "Step Trace(Model ID:{})")
        events = []
        for device, model, whole in _STEP_ROWS:
            pid, tid = 640551296 + int(device), 70000 + int(model) if is_packed else 10036
            about = {"ph": "M", "pid": pid, "tid": tid}
            events += [
                {**about, "name": "process_labels", "args": {"labels": label.format(device)}},
                {**about, "name": "thread_name", "args": {"name": name.format(model)}},
                event("Iteration 1", pid, 1.5, float(whole), tid=tid, cat="Iteration Time", args={"Iteration ID": 1}),
            ]
        return timeline(folder / "x.json", events)
    for device, model, whole in _STEP_ROWS:
        older = folder / "PROF_1" / f"device_{device}" / "summary" / f"step_trace_{device}_{model}_1.csv"
        summary(older, "Iteration ID,Iteration Time(us),Model ID", f"1,{whole},{model}")
    return folder / "PROF_1"


@pytest.mark.parametrize("form", ["summary", "timeline", "timeline of packed processes", "directory"])
def test_steps_of_one_number_of_several_models_and_devices_stay_apart(
    form: str, tmp_path: Path, workspace: Path
) -> None:
    taken(workspace, _steps_of_models(tmp_path, form))
    found = rows(workspace, "SELECT key, total FROM figure WHERE key LIKE '%step %' AND number = 1")
    assert {(json.loads(key)[0], total) for key, total in found} == _STEP_NAMES


def test_a_step_that_two_files_tell_is_counted_once(tmp_path: Path, workspace: Path) -> None:
    for iteration in (1, 2):
        file = tmp_path / "PROF_1" / "device_0" / "timeline" / f"step_trace_0_1_{iteration}.json"
        timeline(file, files.TIMELINES["step_trace"])
    taken(workspace, tmp_path / "PROF_1")
    assert rows(workspace, 'SELECT number, total FROM figure WHERE key = \'["step 1", ""]\'') == [(1, 50.0)]


def test_steps_of_a_database_and_of_a_cluster_are_told_by_device(tmp_path: Path, workspace: Path) -> None:
    file = tmp_path / "analysis.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE StepTraceTime (deviceId INTEGER, step TEXT, computing, bubble)")
        told = "(0, '7', 1.5, 0.25), (3, '7', 2.5, NULL), (3, 0, 0.5, NULL), (0, NULL, 3.5, NULL)"
        connection.execute(f"INSERT INTO StepTraceTime VALUES {told}")
    header, row = files.SUMMARIES["step_trace_time"]
    ranks = [f"7,rank,{rank}{row[1:]}" for rank in (0, 1)]
    ranks.append(f'7,stage,"(0, 1)"{row[1:]}')
    cluster = summary(tmp_path / "cluster.csv", header.replace("Step", "Step,Type,Index", 1), *ranks)
    taken(workspace, file, cluster)
    wholes = rows(workspace, "SELECT session, key, total FROM figure WHERE key LIKE '%, \"\"]' ORDER BY session, place")
    assert wholes == [
        (1, '["all steps, device 0", ""]', 5.0),
        (1, '["all steps, device 3", ""]', 3.0),
        (1, '["step 7, device 0", ""]', 1.5),
        (1, '["step 7, device 3", ""]', 2.5),
        (1, '["step 0, device 3", ""]', 0.5),
        (1, '["step N/A, device 0", ""]', 3.5),
        (2, '["step 7, device 0", ""]', 15.0),
        (2, '["step 7, device 1", ""]', 15.0),
    ]
    assert rows(workspace, "SELECT key, total FROM figure WHERE session = 1 AND key LIKE '%step %Bubble%'") == [
        ('["step 7, device 0", "Bubble"]', 0.25)
    ]


def test_what_begins_when_a_step_ends_is_of_the_next_and_devices_stay_apart(tmp_path: Path, workspace: Path) -> None:
    file = files.database(tmp_path / "msprof_1.db")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executescript(f"""
            UPDATE STEP_TIME SET startNs = {START_NS} + (id - 1) * 5000, endNs = {START_NS} + id * 5000;
            CREATE TABLE OVERLAP_ANALYSIS (id INTEGER, deviceId INTEGER, startNs INTEGER, endNs INTEGER, type INTEGER);
            INSERT INTO OVERLAP_ANALYSIS VALUES (1, 0, {START_NS}, {START_NS} + 4000, 0),
                (2, 1, {START_NS}, {START_NS} + 3000, 0), (3, 1, {START_NS} + 5000, {START_NS} + 7000, 0);
        """)
    taken(workspace, file)
    assert rows(workspace, "SELECT current_pic_count FROM inference ORDER BY 1") == [(1,), (2,)]
    wholes = rows(
        workspace,
        "SELECT key, number, total FROM figure WHERE key LIKE '%, \"\"]' AND key LIKE '%step %'",
    )
    assert sorted(wholes) == [
        ('["step 1, device 0", ""]', 1, 4.0),
        ('["step 1, device 1", ""]', 1, 3.0),
        ('["step 2, device 0", ""]', 1, 5.0),
        ('["step 2, device 1", ""]', 1, 2.0),
    ]


def test_steps_of_timelines_are_told(tmp_path: Path, workspace: Path) -> None:
    taken(
        workspace,
        *(timeline(tmp_path / f"{name}.json", files.TIMELINES[name]) for name in ("step_trace", "trace_view")),
    )
    found = rows(
        workspace,
        "SELECT session, key, total FROM figure WHERE key LIKE '%step %' ORDER BY session, place",
    )
    assert found == [
        (1, '["step 1", ""]', 50.0),
        (1, '["step 1", "FP to BP"]', 40.0),
        (1, '["step 1", "Iteration Refresh"]', 10.0),
        (1, '["step 1", "Data Aug Bound"]', 2.5),
        (2, '["step 7", ""]', 15.0),
    ]


@pytest.mark.parametrize(
    ("header", "told", "found"),
    [
        ("Step Id", ["", "0", "1", "2"], [(3, 0), (0, 0), (1, 0), (2, 0)]),
        ("Step Id", ["warmup", "0", "01", "1"], [(2, 0), (0, 0), (1, 0)]),
        ("Step Id,Model ID", ["5,3", "1,3", ",3", "2,3", ",3"], [(5, 0), (1, 0), (6, 0), (2, 0), (7, 0)]),
        ("Step Id,Device_id", ["0,NPU:0", "0,N/A", "0,1"], [(0, 2), (0, 0), (0, 1)]),
    ],
)
def test_what_is_of_no_step_and_no_device_is_of_none_that_has_a_number(
    header: str, told: list[str], found: list[tuple[int, int]], tmp_path: Path, workspace: Path
) -> None:
    lines = [f"{each},conv1,Conv2D,AI_CORE,1.5,2.5" for each in told]
    (one,) = taken(
        workspace,
        summary(tmp_path / "x.csv", f"{header},Name,Type,Accelerator Core,Start Time(us),Duration(us)", *lines),
    )
    assert (one.error, one.kernels) == (None, len(told))
    assert rows(workspace, "SELECT current_pic_count, device_id FROM inference ORDER BY inference") == found


def test_a_task_of_a_database_before_all_steps_is_of_none_of_them(tmp_path: Path, workspace: Path) -> None:
    file = files.database(tmp_path / "msprof_1.db")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE STEP_TIME SET id = id - 1, startNs = startNs + 500")
        connection.execute("UPDATE TASK SET deviceId = nullif(globalTaskId - 1, 0) - 1")
    assert taken(workspace, file)[0].error is None
    sql = "SELECT current_pic_count, device_id FROM inference ORDER BY inference"
    assert rows(workspace, sql) == [(2, 0), (1, 0)]


def test_a_step_that_several_threads_have_is_as_long_as_the_longest(tmp_path: Path, workspace: Path) -> None:
    events = [process(1, "Python"), *(event("ProfilerStep#7", 1, 1, time, tid=time) for time in (3, 15, 4))]
    taken(workspace, timeline(tmp_path / "x.json", events))
    assert rows(workspace, "SELECT number, total FROM figure") == [(1, 15.0)]


def test_steps_have_a_summary_and_shares_of_what_lies_inside_them(tmp_path: Path, workspace: Path) -> None:
    header = "Iteration ID,Iteration Time(us),FP to BP Time(us),Data Aug Bound(us),Model ID,Device_id"
    lines = ["1,50,40,60,1,0", "2,70,30,5,1,0", "3,60,61.5,N/A,1,0"]
    taken(workspace, summary(tmp_path / "x.csv", header, *lines))
    answer = CliRunner().invoke(stats_command, ["1", "--workspace", str(workspace), "--by", "step", "--json"])
    found = {(row["step"], row["range"]): row for row in json.loads(answer.output)["rows"]}
    names = ("count", "total", "mean", "median", "max", "share")
    over_all = {key[1]: tuple(row[name] for name in names) for key, row in found.items() if key[0] == "all steps"}
    assert over_all == {
        "": (3, 180, 60, 60, 70, 100),
        "FP to BP": (3, 131.5, pytest.approx(131.5 / 3), 40, 61.5, pytest.approx(131.5 / 1.8)),
        "Data Aug Bound": (2, 65, 32.5, 32.5, 60, None),
    }
    shares = [found[f"step {number}", part]["share"] for number in (1, 2) for part in ("FP to BP", "Data Aug Bound")]
    assert shares == [80, None, pytest.approx(3000 / 70), None]
    assert found["step 3", "FP to BP"]["share"] is None
    assert [*found][:2] == [("all steps", ""), ("all steps", "FP to BP")]


def test_each_device_has_the_figures_of_its_inferences(tmp_path: Path, workspace: Path) -> None:
    header = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Device_id,Model ID,aiv_vec_ratio,mac_ratio"
    lines = [
        f"{step},{name},Op,AI_CORE,{1000 * step + 100 * place},{10 * device + 10},{device},5,0.1,{0.9 - device / 5:.1f}"
        for step in range(3)
        for device in (0, 3)
        for place, name in enumerate("ab")
    ]
    taken(workspace, summary(tmp_path / "x.csv", header, *lines))

    def rows_by(by: str) -> list[dict[str, Any]]:
        words = ["1", "--workspace", str(workspace), "--by", by, "--json"]
        found: list[dict[str, Any]] = json.loads(CliRunner().invoke(stats_command, words).output)["rows"]
        return found

    names = ("model", "device", "count", "latency", "layers", "bound by")
    assert {tuple(row[name] for name in names) for row in rows_by("device")} == {
        ("model 5", "0", 3, 110, 20, "mac"),
        ("model 5", "3", 3, 140, 80, "unexplained"),
    }
    (both,) = rows_by("model")
    assert (both["count"], both["mean"]) == (6, 125)
