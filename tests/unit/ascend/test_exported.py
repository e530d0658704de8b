"""The trace of an imported timeline has what the timeline had."""

from __future__ import annotations

import json
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

from profagent.ascend import timeline as timelines
from profagent.ascend.events import gather
from profagent.ascend.texts import event_times_ns
from profagent.cli.main import group
from profagent.report.timeline import Timeline
from profagent.store.database import reading
from tests.integration.perfetto_file import read
from tests.unit.ascend import files
from tests.unit.ascend.files import OP_SUMMARY, START_NS, event, kernel, process, summary, taken, timeline

HARDWARE, HOST, PYTHON, HCCL, OVERLAP, FREQUENCY = 640551328, 640551167, 77, 640551360, 5, 6
Slices = set[tuple[str, str, str, int, int, str]]


def _at(offset_ns: int) -> str:
    whole_us, rest_ns = divmod(START_NS + offset_ns, 1000)
    return f"{whole_us}.{rest_ns:03d}"


def _thread(pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": "thread_name", "pid": pid, "tid": tid, "ph": "M", "args": {"name": name}}


CALLS = [
    event(f"AscendCL@aclop{run}", HOST, _at(run * 9001), 7.5, tid=12, args={"level": "acl", "id": f"call {run}"})
    for run in range(9)
]
INNER = [event("Node@launch", HOST, _at(run * 9001 + 1001), 2.125, tid=12) for run in range(9)]
SHOWN = [
    *reversed(CALLS),
    *INNER,
    event("Runtime@launch", HOST, _at(8), 3.0, tid=13, args={"nested": {"a": [1, None]}}),
    event("aten::add", PYTHON, _at(100), 30.0, tid=9, cat="cpu_op", args={"Sequence number": 7}),
    event("hcom_allReduce__1", HCCL, _at(5001), 4.0, tid=2, args={"transport type": "SDMA"}),
    event("Free", OVERLAP, _at(9), 0.001, tid=3),
    # It is called like a kernel.
    event("conv1", HOST, _at(70), 0.5, tid=14, args={"level": "node"}),
]
# A task that waits is no kernel.
WAIT = event("EVENT_WAIT", HARDWARE, _at(2), 1.5, tid=3, args={"Task Type": "EVENT_WAIT", "Stream Id": 3})
KERNEL = event("conv1", HARDWARE, _at(5001), 4.25, tid=3, args={"Task Type": "AI_CORE", "Stream Id": 3})
NAMES = [
    process(HARDWARE, "Ascend Hardware"),
    process(HOST, "CANN"),
    process(PYTHON, "Python"),
    process(HCCL, "HCCL"),
    process(OVERLAP, "Overlap Analysis"),
    process(FREQUENCY, "AI Core Freq"),
    _thread(HOST, 12, "Thread 12"),
    _thread(HOST, 13, "worker"),
    _thread(HOST, 14, "worker"),
]
OTHERS = [
    {"name": "AI Core Freq", "ph": "C", "pid": FREQUENCY, "tid": 0, "ts": _at(3), "args": {"MHz": 1800}},
    {"name": "Bandwidth", "ph": "C", "pid": FREQUENCY, "tid": 0, "ts": _at(4), "args": {"Read": 1.5, "Write": 2}},
    {"name": "a mark", "ph": "i", "pid": PYTHON, "tid": 9, "ts": _at(7), "s": "t", "args": {"why": "a test"}},
    {"name": "HostToDevice1", "ph": "s", "pid": HOST, "tid": 12, "ts": _at(7), "id": "1", "cat": "HostToDevice"},
]


def _exported(workspace: Path, what: str, *more: str) -> Path:
    """The trace of the first session."""
    words = ("export", what, "1", "--workspace", str(workspace), "--output", str(workspace / f"{what}.out"), *more)
    answer = CliRunner().invoke(group, words, standalone_mode=False)
    assert answer.exception is None, answer.output
    return workspace / f"{what}.out"


def _trace(workspace: Path, *more: str) -> tuple[list[dict[str, Any]], Slices]:
    """Its events, and the slices that timelines had: process, thread, name, start and duration in ns, args."""
    found = json.loads(_exported(workspace, "trace", *more).read_text("utf-8"))
    events: list[dict[str, Any]] = found["traceEvents"]
    names = {
        (each["pid"], each.get("tid")): each["args"]["name"]
        for each in events
        if "name" in each.get("args", {}) and each["ph"] == "M"
    }
    origin_ns = found["metadata"]["origin_us"] * 1000
    slices = {
        (
            names[each["pid"], None].rpartition(" (")[0],
            names[each["pid"], each["tid"]],
            each["name"],
            origin_ns + round(each["ts"] * 1000),
            round(each["dur"] * 1000),
            json.dumps(each.get("args", {})),
        )
        for each in events
        if each["ph"] == "X" and each["cat"] in ("timeline", "cpu_op")
    }
    return events, slices


def _wanted(events: list[dict[str, Any]]) -> set[tuple[str, int, int, str]]:
    return {
        (each["name"], event_times_ns([each["ts"]])[0], round(each["dur"] * 1000), json.dumps(each["args"]))
        for each in events
    }


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A timeline in many blocks, names last."""
    monkeypatch.setattr(timelines, "TIMELINE_PIECE_BYTES", 500)
    taken(tmp_path / "workspace", timeline(tmp_path / "msprof_1.json", [*SHOWN, WAIT, KERNEL, *OTHERS, *NAMES]))
    return tmp_path / "workspace"


def test_each_slice_that_is_no_kernel_is_there_with_its_time_and_args(workspace: Path) -> None:
    events, slices = _trace(workspace)
    assert {each[2:] for each in slices} == _wanted([*SHOWN, WAIT])
    places = {each[2]: each[:2] for each in slices}
    assert places["AscendCL@aclop3"] == places["Node@launch"] == ("CANN", "Thread 12")
    assert (places["Runtime@launch"], places["conv1"]) == (("CANN", "worker (13)"), ("CANN", "worker (14)"))
    assert places["Free"] == ("Overlap Analysis", "thread 3")
    assert [each["name"] for each in events if each.get("cat") == "layer"] == ["conv1"]
    changes = [(each["name"], each["args"]) for each in events if each["ph"] == "C"]
    assert changes == [("AI Core Freq", {"MHz": 1800.0}), ("Bandwidth", {"Read": 1.5, "Write": 2.0})]
    assert [(each["name"], each["args"]) for each in events if each["ph"] == "i"] == [("a mark", {"why": "a test"})]


async def test_the_report_has_them_too(workspace: Path) -> None:
    drawn = Timeline()
    async with reading(workspace / "profagent.db") as connection:
        await drawn.read(connection, 1)
    document = drawn.document()
    spans = [(document["lanes"][lane], document["names"][name]) for lane, _, _, name in document["spans"]]
    assert len(spans) == len([*SHOWN, WAIT])
    assert {("CANN, Thread 12", "Node@launch"), ("Overlap Analysis, thread 3", "Free")} <= {*spans}


def test_args_that_a_tool_wrote_in_several_lines_are_there(tmp_path: Path) -> None:
    file = tmp_path / "msprof_1.json"
    file.write_text(json.dumps([*SHOWN, *NAMES], indent=4))
    taken(tmp_path / "workspace", file)
    _, slices = _trace(tmp_path / "workspace")
    assert {each[2:] for each in slices} == _wanted(SHOWN)


def test_perfetto_has_the_same_slices_within_each_other(workspace: Path) -> None:
    _, wanted = _trace(workspace)
    found = read(_exported(workspace, "perfetto"))
    slices = [each for each in found.slices if each.category in ("timeline", "cpu_op")]
    times = {(each.name, each.start_ns + _origin_ns(found), (each.end_ns or 0) - each.start_ns) for each in slices}
    assert times == {each[2:5] for each in wanted}
    assert {("AI Core Freq MHz", 1800.0), ("Bandwidth Read", 1.5)} <= {each[1::2] for each in found.counters}


def _origin_ns(found: Any) -> int:
    return int(json.loads(found.attributes["profagent.metadata"])["origin_us"]) * 1000


def test_only_what_ran_in_the_time_is_shown(workspace: Path) -> None:
    _, slices = _trace(workspace, "--from", str((START_NS + 60_000) / 1e9), "--to", str((START_NS + 70_000) / 1e9))
    assert {each[2] for each in slices} == {"AscendCL@aclop6", "AscendCL@aclop7", "Node@launch"}


def test_kernels_of_a_summary_and_processes_of_another_timeline_come_once(tmp_path: Path) -> None:
    folder = tmp_path / "PROF_1" / "mindstudio_profiler_output"
    summary(folder / "op_summary_1.csv", OP_SUMMARY, kernel(start=_at(5001), stream="3"))
    timeline(folder / "msprof_1.json", [*NAMES, *SHOWN, WAIT, KERNEL])
    timeline(folder / "msprof_slice_1.json", [event("late", HOST, _at(99_000), 1.0, tid=12)])
    step = event("Iteration 1", 9, _at(0), 50.0, cat="timeline", args={"Iteration ID": 1})
    timeline(folder / "step_trace_1.json", [process(9, "Step Trace"), process(8, "HCCL"), step, event("x", 8, _at(0))])
    taken(tmp_path / "workspace", folder.parent)
    _, slices = _trace(tmp_path / "workspace")
    late = event("late", HOST, _at(99_000), 1.0)
    assert {each[2:] for each in slices} == _wanted([*SHOWN, WAIT, step, late])
    assert {each[0] for each in slices if each[2] == "late"} == {"CANN"}


def test_processes_of_one_name_are_told_apart(tmp_path: Path) -> None:
    labels = {"name": "process_labels", "pid": 2, "tid": 0, "ph": "M", "args": {"labels": "NPU 1"}}
    events = [process(1, "HCCL"), process(2, "HCCL"), labels, event("a", 1, _at(0)), event("b", 2, _at(0))]
    taken(tmp_path / "workspace", timeline(tmp_path / "hccl_1.json", events))
    _, slices = _trace(tmp_path / "workspace")
    assert {each[:3] for each in slices} == {("HCCL (1)", "thread 1", "a"), ("HCCL (NPU 1)", "thread 1", "b")}


def test_tables_of_a_database_are_drawn_where_no_timeline_is(tmp_path: Path) -> None:
    folder = tmp_path / "run_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    file = files.database(folder / "ascend_pytorch_profiler_0.db")
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(f"""
            INSERT INTO STRING_IDS VALUES (20, 'aten::add'), (21, 'hcom_allReduce__1'), (22, 'group 7');
            UPDATE CANN_API SET startNs = startNs + {START_NS}, endNs = endNs + {START_NS}, globalTid = 4294967308;
            CREATE TABLE PYTORCH_API (startNs TEXT, endNs TEXT, globalTid INTEGER, name INTEGER, inputShapes INTEGER);
            INSERT INTO PYTORCH_API VALUES ('{START_NS}', '{START_NS + 3001}', 4294967309, 20, NULL),
                (NULL, '', 4294967309, 20, NULL);
            CREATE TABLE COMMUNICATION_OP (opName INTEGER, startNs INTEGER, endNs INTEGER, groupName INTEGER);
            INSERT INTO COMMUNICATION_OP VALUES (21, {START_NS + 5}, {START_NS + 11}, 22);
            CREATE TABLE ENUM_OVERLAP_ANALYSIS_TYPE (id INTEGER PRIMARY KEY, name TEXT);
            INSERT INTO ENUM_OVERLAP_ANALYSIS_TYPE VALUES (3, 'Free');
            CREATE TABLE OVERLAP_ANALYSIS (id INTEGER, deviceId INTEGER, startNs INTEGER, endNs INTEGER, type INTEGER);
            INSERT INTO OVERLAP_ANALYSIS VALUES (1, 0, {START_NS}, {START_NS + 7}, 3),
                (2, 1, {START_NS}, {START_NS + 8}, 9);
        """)
    taken(tmp_path / "workspace", folder.parent)
    _, slices = _trace(tmp_path / "workspace")
    assert {(*each[:3], each[3] - START_NS, *each[4:]) for each in slices} == {
        ("CANN", "thread 12", "aclmdlExecute", 0, 1500, '{"type": "acl", "connectionId": 1}'),
        ("CANN", "thread 12", "aclmdlExecute", 2000, 2500, '{"type": "acl", "connectionId": 2}'),
        ("Python", "thread 13", "aten::add", 0, 3001, "{}"),
        ("Communication", "group 7", "hcom_allReduce__1", 5, 6, "{}"),
        ("Overlap Analysis (NPU 0)", "Free", "Free", 0, 7, '{"deviceId": 0}'),
        ("Overlap Analysis (NPU 1)", "type 9", "type 9", 0, 8, '{"deviceId": 1}'),
        ("Steps", "Steps", "step 1", 0, 4000, "{}"),
        ("Steps", "Steps", "step 2", 4001, 4999, "{}"),
    }
    assert _unplaced(tmp_path / "workspace", 1) == 1
    timeline(folder / "trace_view.json", [process(1, "Python"), event("aten::mul", 1, _at(0))])
    taken(tmp_path / "both", folder.parent)
    _, slices = _trace(tmp_path / "both")
    assert {each[2] for each in slices} == {"aten::mul"}


def test_numbers_whose_table_has_other_columns_are_drawn_as_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "run_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    with closing(sqlite3.connect(files.database(folder / "ascend_pytorch_profiler_0.db"))) as connection:
        connection.executescript(f"""
            CREATE TABLE ENUM_OVERLAP_ANALYSIS_TYPE (number INTEGER, label TEXT);
            INSERT INTO ENUM_OVERLAP_ANALYSIS_TYPE VALUES (3, 'Free');
            CREATE TABLE OVERLAP_ANALYSIS (deviceId INTEGER, startNs INTEGER, endNs INTEGER, type INTEGER);
            INSERT INTO OVERLAP_ANALYSIS VALUES (0, {START_NS}, {START_NS + 7}, 3);
        """)
    taken(tmp_path / "workspace", folder.parent)
    _, slices = _trace(tmp_path / "workspace")
    assert "type 3" in {each[2] for each in slices}


def test_parquet_has_every_cell_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "PROF_1" / "mindstudio_profiler_output"
    summary(folder / "op_summary_1.csv", OP_SUMMARY, kernel())
    summary(folder / "step_trace_1.csv", *files.SUMMARIES["step_trace"])
    timeline(folder / "msprof_1.json", [*SHOWN, KERNEL])
    files.database(folder.parent / "msprof_1.db")
    workspace = tmp_path / "workspace"
    taken(workspace, folder.parent)
    lake = _exported(workspace, "parquet")
    for view, columns in (("ascend_files", "file, family, rows"), ("ascend_values", "file, row, column_name, value")):
        with duckdb.connect() as connection:
            read = f"read_parquet('{lake}/{view}/*/*/*.parquet')"
            found = connection.sql(f"SELECT {columns} FROM {read}").fetchall()
        wanted = files.rows(workspace, f"SELECT {columns} FROM {view}")
        texts = [(*row[:-1], row[-1] if row[-1] is None or view != "ascend_values" else str(row[-1])) for row in wanted]
        assert sorted(found, key=repr) == sorted(texts, key=repr) != []


def test_events_that_cannot_be_placed_are_counted(tmp_path: Path) -> None:
    odd = [event("a", 1, _at(0)), event("b", 1, "N/A"), {"name": 7, "ph": "X", "pid": 1, "tid": 1, "ts": 1}]
    taken(tmp_path / "workspace", *(timeline(tmp_path / f"{at}.json", odd[:at]) for at in (2, 3)))
    assert [_unplaced(tmp_path / "workspace", session) for session in (1, 2)] == [1, 2]


def _unplaced(workspace: Path, session: int) -> int:
    with closing(sqlite3.connect(workspace / "profagent.db")) as connection:
        return gather(connection, session)


def test_memory_does_not_grow_with_the_timeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timelines, "TIMELINE_PIECE_BYTES", 16 << 10)

    def gathered(workspace: Path) -> int:
        tracemalloc.start()
        _unplaced(workspace, 1)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    peaks = []
    for times in (300, 1_200):
        workspace = tmp_path / f"{times}"
        taken(workspace, timeline(tmp_path / f"{times}.json", files.TIMELINES["msprof"] * times))
        peaks.append(gathered(workspace))
    assert peaks[1] < 1.2 * peaks[0]
