"""Results of other tools in the store: kernels, steps, calls, and what is damaged."""

from __future__ import annotations

import json
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from profagent.ascend import csv_rows, database, importing
from profagent.ascend import timeline as timelines
from profagent.ascend.csv_rows import blocks
from profagent.ascend.importing import found_sources
from profagent.ascend.timeline import pieces
from profagent.errors import UsageError
from profagent.importing.importing import command as import_command
from profagent.sessions.clearing import command as gc_command
from profagent.stats.cli import command as stats_command
from tests.unit.ascend import files
from tests.unit.ascend.files import OP_SUMMARY, START_NS, event, kernel, process, rows, summary, taken, timeline, write

_KERNELS = (
    "SELECT l.name, l.type, s.start_us * 1000 + r.ticks_before, r.ticks, s.net, i.current_pic_count, i.device_id,"
    " m.name FROM aicore r JOIN segment s USING (segment) JOIN inference i USING (inference) JOIN model m USING (model)"
    " JOIN layer l ON l.model = m.model AND l.layer_index = r.layer_index ORDER BY r.record"
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "workspace"


def test_kernels_have_exact_times_and_their_text_survives(tmp_path: Path, workspace: Path) -> None:
    taken(workspace, summary(tmp_path / "x.csv", OP_SUMMARY, kernel(), kernel("relu1", "Relu", duration="0.5")))
    assert rows(workspace, _KERNELS) == [
        ("conv1", "Conv2D", START_NS, 4380, 46, 0, 0, "single-op"),
        ("relu1", "Relu", START_NS, 500, 46, 0, 0, "single-op"),
    ]
    texts = "SELECT value FROM ascend_values WHERE column_name = 'Task Start Time(us)'"
    assert rows(workspace, texts) == [("1787504007005868.315\t",)] * 2
    shapes = "SELECT value FROM ascend_values WHERE column_name = 'Input Shapes' AND row = 1"
    assert rows(workspace, shapes) == [('"512,16;;"',)]


def test_times_that_are_not_known_leave_the_row(tmp_path: Path, workspace: Path) -> None:
    lines = [kernel(duration="N/A"), kernel(start="N/A", duration="1.5"), kernel(start="12", duration="2")]
    taken(workspace, summary(tmp_path / "x.csv", OP_SUMMARY, *lines))
    assert [row[3] for row in rows(workspace, _KERNELS)] == [1500, 2000]
    assert rows(workspace, "SELECT rows FROM ascend_files") == [(3,)]


def test_executions_of_a_graph_are_inferences(tmp_path: Path, workspace: Path) -> None:
    lines = [kernel(name, model="5") for name in ("conv1", "relu1", "conv1", "relu1")]
    taken(workspace, summary(tmp_path / "x.csv", OP_SUMMARY, *lines))
    found = [(row[0], row[5], row[7]) for row in rows(workspace, _KERNELS)]
    assert found == [
        ("conv1", 0, "model 5"),
        ("relu1", 0, "model 5"),
        ("conv1", 1, "model 5"),
        ("relu1", 1, "model 5"),
    ]


def test_steps_streams_and_devices_are_told_apart(tmp_path: Path, workspace: Path) -> None:
    lines = ["7,conv1,Conv2D,AI_CORE,1.5,2.5,0,8", "8,conv1,Conv2D,AI_CORE,11.5,2.5,0,8", ",conv1,C,AI_CORE,20,1,0,8"]
    taken(workspace, summary(tmp_path / "x.csv", files.KERNEL_DETAILS, *lines))
    assert [row[5] for row in rows(workspace, _KERNELS)] == [7, 8, 0]


def test_pipes_are_counters_and_tell_what_bounds_a_layer(tmp_path: Path, workspace: Path) -> None:
    taken(workspace, summary(tmp_path / "x.csv", OP_SUMMARY, kernel()))
    counters = "SELECT mac_busy, dtrans, dld, dstr, vec_busy FROM op_records"
    assert rows(workspace, counters) == [(0.5, 0.1, 0.25, 0.125, None)]


def test_columns_that_are_not_known_stay(tmp_path: Path, workspace: Path) -> None:
    taken(workspace, summary(tmp_path / "x.csv", f"{OP_SUMMARY},new column", f"{kernel()},seen"))
    assert rows(workspace, "SELECT value FROM ascend_values WHERE column_name = 'new column'") == [("seen",)]


def test_a_directory_is_one_session_and_nothing_is_counted_twice(tmp_path: Path, workspace: Path) -> None:
    folder = tmp_path / "PROF_000001_20260823165326062_AB" / "mindstudio_profiler_output"
    summary(folder / "op_summary_1.csv", OP_SUMMARY, kernel(duration="4.250"))
    summary(folder / "api_statistic_1.csv", *files.SUMMARIES["api_statistic"])
    timeline(folder / "msprof_1.json", files.TIMELINES["msprof"])
    (one,) = taken(workspace, folder.parent)
    assert (one.session, one.rows, one.kernels, one.entries) == (1, 6, 1, 0)
    assert rows(workspace, "SELECT key, number, total FROM figure WHERE \"by\" = 'api'") == [
        ('["aclrtMalloc", "acl"]', 1 + 1, 222.36)
    ]
    (again,) = taken(workspace, folder.parent)
    assert (again.session, again.is_known) == (1, True)


def test_a_timeline_alone_tells_kernels_and_calls(tmp_path: Path, workspace: Path) -> None:
    taken(workspace, timeline(tmp_path / "x.json", files.TIMELINES["msprof"]))
    ((name, kind, start_ns, ticks, stream, *_),) = rows(workspace, _KERNELS)
    assert (name, kind, start_ns, ticks, stream) == ("conv1", "AI_CORE", 1787504007005870001, 4250, 3)
    assert rows(workspace, "SELECT key, total FROM figure") == [('["aclmdlExecute", "AscendCL"]', 9.5)]


def test_a_process_is_known_by_its_name_and_not_by_its_number(tmp_path: Path, workspace: Path) -> None:
    hardware, host = 640551167, 640551328
    args = {"Task Type": "AI_CORE"}
    events = [
        process(hardware, "Ascend Hardware"),
        process(host, "CANN"),
        event("k", hardware, 1, args=args),
        event("k", host, 1, args=args),
    ]
    assert taken(workspace, timeline(tmp_path / "x.json", events))[0].kernels == 1


def test_flows_and_counters_are_kept(tmp_path: Path, workspace: Path) -> None:
    events = [
        {
            "name": "HostToDevice1",
            "ph": "s",
            "cat": "HostToDevice",
            "id": "4294967296",
            "pid": 1,
            "tid": 1,
            "ts": "1.5",
        },
        {"name": "AI Core Freq", "ph": "C", "pid": 2, "tid": 0, "ts": "2.000", "args": {"MHz": 1800}},
    ]
    taken(workspace, write(tmp_path / "x.json", json.dumps({"schemaVersion": 1, "traceEvents": events})))
    values = rows(workspace, "SELECT row, column_name, value FROM ascend_values WHERE column_name IN ('id', 'args')")
    assert values == [(1, "id", "4294967296"), (2, "args", '{"MHz":1800}')]


def test_a_database_tells_kernels_steps_and_calls(tmp_path: Path, workspace: Path) -> None:
    taken(workspace, files.database(tmp_path / "msprof_1.db"))
    assert rows(workspace, _KERNELS) == [
        ("conv1", "Conv2D", START_NS, 1001, 5, 1, 2, "single-op"),
        ("conv1", "Conv2D", START_NS + 5000, 2002, 5, 2, 2, "single-op"),
    ]
    assert rows(workspace, "SELECT key, number, total FROM figure") == [('["aclmdlExecute", "acl"]', 2, 4.0)]
    tables = dict(rows(workspace, "SELECT family, rows FROM ascend_files"))
    assert tables["TASK"] == 2
    assert "status_info" not in tables


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


def test_steps_of_timelines_are_told(tmp_path: Path, workspace: Path) -> None:
    taken(
        workspace,
        *(timeline(tmp_path / f"{name}.json", files.TIMELINES[name]) for name in ("step_trace", "trace_view")),
    )
    found = rows(workspace, "SELECT session, key, total FROM figure WHERE \"by\" = 'step' ORDER BY session, place")
    assert found == [
        (1, '["step 1", ""]', 50.0),
        (1, '["step 1", "FP to BP"]', 40.0),
        (1, '["step 1", "Iteration Refresh"]', 10.0),
        (1, '["step 1", "Data Aug Bound"]', 2.5),
        (2, '["step 7", ""]', 15.0),
    ]


def test_directories_of_mindspore_and_of_2023_are_known(tmp_path: Path, workspace: Path) -> None:
    mindspore = tmp_path / "in" / "host_1_20260101_ascend_ms"
    facts = {"ms_version": "2.10.0", "ms_profiler_info": {"rank_id": 3, "device_id": 1}, "cann_version": "9.0"}
    write(mindspore / "profiler_info_3.json", json.dumps(facts))
    row = "7,conv1,Conv2D,AI_CORE,1.5,2.5,0,8"
    summary(mindspore / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv", files.KERNEL_DETAILS, row)
    older = tmp_path / "in" / "older" / "device_2"
    without_device = [line.partition(",")[2] for line in (OP_SUMMARY, kernel())]
    summary(older / "summary" / "op_summary_2_1_1.csv", *without_device)
    timeline(older / "timeline" / "step_trace_2_1_1.json", files.TIMELINES["step_trace"])
    assert [each.rows for each in taken(workspace, tmp_path / "in")] == [1, 1 + len(files.TIMELINES["step_trace"])]
    labels = dict(rows(workspace, "SELECT key, value FROM session_label WHERE session = 1 AND key <> 'content'"))
    assert labels == {"source": "ascend", "framework": "MindSpore", "cann": "9.0", "rank": "3", "device": "1"}
    assert [row[6] for row in rows(workspace, _KERNELS)] == [1, 2]


def test_what_gc_has_cleared_is_brought_again(tmp_path: Path, workspace: Path) -> None:
    file = summary(tmp_path / "x.csv", OP_SUMMARY, kernel())
    taken(workspace, file)
    answer = CliRunner().invoke(gc_command, ["--keep-last", "0", "--workspace", str(workspace)])
    assert answer.exit_code == 0
    assert rows(workspace, "SELECT count(*) FROM ascend_values") == [(0,)]
    assert taken(workspace, file)[0].session == 2


def test_raw_slices_get_the_command_that_makes_results(tmp_path: Path, workspace: Path) -> None:
    write(tmp_path / "PROF_1" / "device_0" / "data" / "stars_soc.data.0.slice_0", "x")
    (one,) = taken(workspace, tmp_path / "PROF_1")
    assert one.error is not None
    assert one.error.hint.endswith(f"msprof --export=on --output={tmp_path / 'PROF_1'}")


def test_a_folder_without_results_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no results"):
        found_sources([tmp_path])


BYTES = {
    "empty": (b"", "0 bytes"),
    "utf-16": (f"{OP_SUMMARY}\n{kernel()}\n".encode("utf-16"), "line 1: it is not UTF-8"),
    "latin-1": (f"{OP_SUMMARY}\n{kernel()}\n{kernel('é')}\n".encode("latin-1"), "line 3: it is not UTF-8"),
}


@pytest.mark.parametrize("name", BYTES)
def test_a_file_of_which_nothing_can_be_read_is_an_error_with_its_line(
    name: str, tmp_path: Path, workspace: Path
) -> None:
    content, said = BYTES[name]
    (tmp_path / "op_summary_1.csv").write_bytes(content)
    (one,) = taken(workspace, tmp_path / "op_summary_1.csv")
    assert said in str(one.error)
    assert rows(workspace, "SELECT count(*) FROM session UNION ALL SELECT count(*) FROM log") == [(0,), (0,)]


def test_what_stands_before_a_damage_is_kept_with_a_loss(tmp_path: Path, workspace: Path) -> None:
    write(tmp_path / "b.csv", f"{OP_SUMMARY}\n{kernel()}\n{kernel()[:100]}")
    events = json.dumps(files.TIMELINES["msprof"])
    write(tmp_path / "c.json", events[: events.index('"conv1"') + 20])
    found = taken(workspace, *(tmp_path / name for name in ("b.csv", "c.json")))
    assert [(each.error, each.entries) for each in found] == [(None, 1)] * 2
    details = rows(workspace, "SELECT grade, reason, detail FROM ledger ORDER BY session")
    assert {row[:2] for row in details} == {("loss", "damaged-result")}
    assert "line 3" in details[0][2]
    assert rows(workspace, "SELECT rows FROM ascend_files ORDER BY session") == [(1,), (3,)]


def test_a_mark_mixed_line_ends_and_empty_lines_change_nothing(tmp_path: Path, workspace: Path) -> None:
    text = f"\ufeff{OP_SUMMARY}\r\n{kernel()}\n\n{kernel()}\r\n"
    (one,) = taken(workspace, write(tmp_path / "x.csv", text))
    assert (one.rows, one.kernels, one.entries) == (2, 2, 0)


def test_a_database_that_another_has_locked_or_altered_is_an_error(tmp_path: Path, workspace: Path) -> None:
    whole = files.database(tmp_path / "whole.db")
    altered = tmp_path / "msprof_2.db"
    altered.write_bytes(whole.read_bytes()[:4096] + b"\xff" * 4096)
    (one,) = taken(workspace, altered)
    assert "cannot be read" in str(one.error)
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE something (x)")
    (two,) = taken(workspace, other)
    assert "of no profiler: something" in str(two.error)


def test_a_database_that_another_writes_is_an_error_and_nothing_is_made_beside_it(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_MS", 10)
    file = files.database(tmp_path / "in" / "msprof_1.db")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        (locked,) = taken(workspace, file)
        assert "locked" in str(locked.error)
        connection.execute("ROLLBACK")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("INSERT INTO STRING_IDS VALUES (9, 'new')")
        connection.commit()
        assert taken(workspace, file)[0].error is None
    texts = rows(workspace, "SELECT rows FROM ascend_files WHERE family = 'STRING_IDS'")
    assert texts == [(5,)]
    again = file.rename(tmp_path / "in" / "msprof_2.db")
    assert taken(workspace, again)[0].error is None
    assert [each.name for each in (tmp_path / "in").iterdir()] == ["msprof_2.db"]


@pytest.mark.parametrize("size", [50, 51, 100, 333])
def test_events_are_the_same_in_pieces_of_any_size(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = files.TIMELINES["msprof"] * 3
    file = write(tmp_path / "x.json", json.dumps(events, indent=1))
    monkeypatch.setattr(timelines, "PIECE_BYTES", size)
    assert [event for text, _ in pieces(file) for event in json.loads(text)] == events


@pytest.mark.parametrize("name", ["x.csv", "x.json"])
def test_memory_does_not_grow_with_the_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_rows, "ROWS_PER_BLOCK", 500)
    monkeypatch.setattr(timelines, "PIECE_BYTES", 128 << 10)
    peaks = []
    for times in (2_000, 8_000):
        if name == "x.csv":
            file = summary(tmp_path / name, OP_SUMMARY, *[kernel()] * times)
        else:
            file = timeline(tmp_path / name, files.TIMELINES["msprof"] * times)
        tracemalloc.start()
        for _ in blocks(file) if name == "x.csv" else pieces(file):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def test_processes_side_by_side_bring_the_same(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "WORTH_A_PROCESS_BYTES", 0)
    inputs = [summary(tmp_path / f"{number}.csv", OP_SUMMARY, *[kernel()] * number) for number in (1, 2)]
    bad = write(tmp_path / "bad.csv", f"{OP_SUMMARY}\n{kernel()[:50]}")
    found = taken(workspace, inputs[0], bad, inputs[1])
    assert [each.kernels for each in found] == [1, 0, 2]
    assert [each.entries for each in found] == [0, 1, 0]


def test_one_that_fails_stops_no_other_and_the_exit_code_says_it(tmp_path: Path, workspace: Path) -> None:
    summary(tmp_path / "in" / "a.csv", OP_SUMMARY, kernel())
    write(tmp_path / "in" / "PROF_2" / "device_0" / "data" / "x.slice_0", "x")
    answer = CliRunner().invoke(import_command, [str(tmp_path / "in"), "--workspace", str(workspace), "--json"])
    assert answer.exit_code == 0
    found = json.loads(answer.stdout)
    assert [each["session"] for each in found] == [None, 1]
