"""Results of other tools in the store: kernels, steps, calls, and what is damaged."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from profagent.ascend import database, importing
from profagent.ascend import timeline as timelines
from profagent.ascend.csv_rows import Rows
from profagent.ascend.timeline import EventPieces
from profagent.sessions.cli import gc as gc_command
from profagent.stats.cli import command as stats_command
from profagent.store.subset import tables_of
from profagent.tables.table import Column, sheet_pieces
from tests.integration.host import profagent
from tests.unit.ascend import files
from tests.unit.ascend.files import OP_SUMMARY, START_NS, event, kernel, process, rows, summary, taken, timeline, write

_KERNELS = (
    "SELECT l.name, l.type, s.start_us * 1000 + r.ticks_before, r.ticks, s.net, i.current_pic_count, i.device_id,"
    " m.name FROM aicore r JOIN segment s USING (segment) JOIN inference i USING (inference) JOIN model m USING (model)"
    " JOIN layer l ON l.model = m.model AND l.layer_index = r.layer_index ORDER BY r.record"
)


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


def test_a_session_is_as_old_as_its_results(tmp_path: Path, workspace: Path) -> None:
    wall, monotonic = f"{1_704_067_200_000_000}.315\t", f"{56_635_000_000}.315\t"
    late = summary(tmp_path / "late.csv", OP_SUMMARY, kernel(start=wall), kernel(start=wall, duration="2500000.0"))
    by_name = tmp_path / "PROF_000001_20230818142704322_AB" / "mindstudio_profiler_output"
    summary(by_name / "op_summary_20230819010101.csv", OP_SUMMARY, kernel(start=monotonic))
    ahead = summary(tmp_path / "ahead.csv", OP_SUMMARY, kernel(start="4102444800000000.000\t"))
    before_us = time.time_ns() // 1000
    taken(workspace, late, by_name.parent, ahead)
    stamp_us = int(time.mktime(time.strptime("20230818142704", "%Y%m%d%H%M%S"))) * 1_000_000
    one, two, (begun_us, ended_us) = rows(workspace, "SELECT started_us, ended_us FROM session ORDER BY session")
    assert (one, two) == ((1_704_067_200_000_000, 1_704_067_202_500_000), (stamp_us, stamp_us))
    assert before_us <= begun_us <= ended_us <= time.time_ns() // 1000
    replayed = [profagent("watch", number, "--workspace", workspace).err for number in ("1", "2")]
    assert ["the date is unknown" in text for text in replayed] == [False, True]


def test_times_that_are_not_known_leave_the_row(tmp_path: Path, workspace: Path) -> None:
    lines = [kernel(duration="N/A"), kernel(start="N/A", duration="1.5"), kernel(start="12", duration="2")]
    taken(workspace, summary(tmp_path / "x.csv", OP_SUMMARY, *lines))
    assert [row[3] for row in rows(workspace, _KERNELS)] == [1500, 2000]
    assert rows(workspace, "SELECT rows FROM ascend_files") == [(3,)]
    assert rows(workspace, "SELECT reason, count FROM ledger") == [("not-counted", 1)] * 2


def test_executions_of_a_graph_are_inferences(tmp_path: Path, workspace: Path) -> None:
    lines = [kernel(name, model="5") for name in ("conv1", "relu1", "conv1", "relu1")]
    taken(workspace, summary(tmp_path / "x.csv", OP_SUMMARY, *lines))
    found = [(row[0], row[5], row[7]) for row in rows(workspace, _KERNELS)]
    assert found == [("conv1", 0, "model 5"), ("relu1", 0, "model 5"), ("conv1", 1, "model 5"), ("relu1", 1, "model 5")]


def test_what_ran_on_the_ai_cpu_is_told(tmp_path: Path, workspace: Path) -> None:
    one = summary(tmp_path / "x.csv", OP_SUMMARY, kernel(), kernel().replace("AI_CORE", "AI_CPU"))
    rest = "1.5,2.5,0,8"
    lines = [f"7,conv1,Conv2D,{unit},{rest}" for unit in ("AI_VECTOR_CORE", "AI_CPU")]
    two = summary(tmp_path / "y.csv", files.KERNEL_DETAILS, *lines)
    three = files.database(tmp_path / "msprof_1.db")
    with closing(sqlite3.connect(three)) as connection, connection:
        connection.execute("INSERT INTO STRING_IDS VALUES (10, 'AI_CPU')")
        connection.execute("UPDATE COMPUTE_TASK_INFO SET taskType = 10 WHERE globalTaskId = 2")
    taken(workspace, one, two, three)
    assert [row[1] for row in rows(workspace, _KERNELS)] == ["Conv2D", "Conv2D (AI_CPU)"] * 3
    answer = CliRunner().invoke(stats_command, ["1", "--workspace", str(workspace), "--by", "type", "--json"])
    assert {row["type"] for row in json.loads(answer.output)["rows"]} == {"Conv2D", "Conv2D (AI_CPU)"}


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
    assert (one.session, one.rows, one.kernels, one.notes) == (1, 6, 1, 0)
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
    assert rows(workspace, "SELECT key, number, total FROM figure ORDER BY key") == [
        ('["aclmdlExecute", "acl"]', 2, 4.0),
        ('["all steps", ""]', 2, pytest.approx(8.999)),
        ('["step 1", ""]', 1, 4.0),
        ('["step 2", ""]', 1, 4.999),
    ]
    tables = dict(rows(workspace, "SELECT family, rows FROM ascend_files"))
    assert (tables["TASK"], tables["status_info"]) == (2, 0)


@pytest.mark.parametrize("more", [", deviceId INTEGER, opType INTEGER", ""])
def test_communication_and_parts_of_steps_are_those_of_the_summaries(
    tmp_path: Path, workspace: Path, more: str
) -> None:
    """The same result as a database of either generation, and as tables: the same kernels and steps."""
    with closing(sqlite3.connect(files.database(tmp_path / "rank" / "ascend_pytorch_profiler_0.db"))) as connection:
        connection.executescript(f"""
            INSERT INTO STRING_IDS VALUES (10, 'allReduce_1'), (11, 'allReduce');
            CREATE TABLE COMMUNICATION_OP (opName INTEGER, startNs INTEGER, endNs INTEGER{more});
            INSERT INTO COMMUNICATION_OP VALUES (10, {START_NS} + 1200, {START_NS} + 1700{", 2, 11" if more else ""});
            CREATE TABLE OVERLAP_ANALYSIS (id INTEGER, deviceId INTEGER, startNs INTEGER, endNs INTEGER, type INTEGER);
            INSERT INTO OVERLAP_ANALYSIS VALUES (1, 2, {START_NS}, {START_NS} + 1001, 0),
                (2, 2, {START_NS} + 1200, {START_NS} + 1700, 1), (3, 2, {START_NS} + 1200, {START_NS} + 1700, 2),
                (4, 2, {START_NS} + 1001, {START_NS} + 1200, 3), (5, 2, 0, 1, 0),
                (6, 2, {START_NS}, {START_NS}, 65535);
        """)
    kernels = [
        ("1", "conv1", "Conv2D", "AI_CORE", START_NS, "1.001"),
        ("1", "allReduce_1", "allReduce" if more else "N/A", "HCCL", START_NS + 1200, "0.5"),
        ("2", "conv1", "Conv2D", "AI_CORE", START_NS + 5000, "2.002"),
    ]
    lines = [
        f"{step},{name},{kind},{unit},{ns // 1000}.{ns % 1000:03},{us},0,8"
        for step, name, kind, unit, ns, us in kernels
    ]
    taken(workspace, tmp_path / "rank")
    taken(workspace, summary(tmp_path / "kernel_details.csv", f"{files.KERNEL_DETAILS}", *lines))
    sql = "SELECT layer_name, layer_type, start_us, duration_us, current_pic_count FROM op_records WHERE session = {}"
    ours, theirs = (rows(workspace, sql.format(session) + " ORDER BY start_us") for session in (1, 2))
    assert ours == theirs
    assert len(ours) == len(kernels)
    layers = "SELECT layer_index, layer.name FROM layer JOIN model USING (model) JOIN session_job USING (job)"
    assert rows(workspace, f"{layers} WHERE session = 1") == rows(workspace, f"{layers} WHERE session = 2")
    assert rows(workspace, "SELECT DISTINCT device_id FROM inference WHERE session = 1") == [(2,)]
    assert rows(workspace, "SELECT key, total FROM figure WHERE key LIKE '%step %' ORDER BY key") == [
        ('["step 1", ""]', 1.7),
        ('["step 1", "Communication"]', 0.5),
        ('["step 1", "Communication(Not Overlapped)"]', 0.5),
        ('["step 1", "Computing"]', 1.001),
        ('["step 1", "Free"]', 0.199),
        ('["step 2", ""]', 4.999),
    ]


def test_steps_that_a_database_tells_are_not_told_again(tmp_path: Path, workspace: Path) -> None:
    folder = tmp_path / "rank" / "ASCEND_PROFILER_OUTPUT"
    files.database(folder / "ascend_mindspore_profiler_0.db")
    with closing(sqlite3.connect(folder / "communication_analyzer.db")) as connection:
        connection.execute("CREATE TABLE StepTraceTime AS SELECT 1 AS step, 3 AS computing, 1 AS free")
        connection.commit()
    timeline(folder / "trace_view.json", [files.event("ProfilerStep#1", 1, "10.500", 15.0)])
    taken(workspace, tmp_path / "rank")
    assert rows(
        workspace,
        "SELECT key, number, total FROM figure WHERE key LIKE '%step %' ORDER BY key",
    ) == [
        ('["step 1", ""]', 1, 4.0),
        ('["step 1", "Computing"]', 1, 3.0),
        ('["step 1", "Free"]', 1, 1.0),
    ]


def test_pipes_of_a_database_are_counters_where_they_are_of_one_execution(tmp_path: Path, workspace: Path) -> None:
    taken(workspace, files.database(tmp_path / "msprof_1.db"))
    counters = "SELECT mac_busy, vec_busy, dstr, dtrans, dld FROM op_records ORDER BY start_us"
    assert rows(workspace, counters) == [(0.75, 0.0, 0.25, None, None), (None,) * 5]
    assert rows(workspace, "SELECT counter_map FROM session") == [("Ascend pipes",)]
    assert rows(workspace, "SELECT rows FROM ascend_files WHERE family = 'TASK_PMU_INFO'") == [(6,)]


def test_shares_of_a_kernel_on_both_cores_are_of_the_time_of_the_longer(tmp_path: Path, workspace: Path) -> None:
    file = files.database(tmp_path / "msprof_1.db")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("INSERT INTO STRING_IDS VALUES (21, 'aic_total_time'), (22, 'aiv_total_time')")
        connection.execute("INSERT INTO TASK_PMU_INFO VALUES (1, 21, 10), (1, 22, 40)")
    taken(workspace, file)
    counters = "SELECT mac_busy, vec_busy, dstr FROM op_records ORDER BY start_us LIMIT 1"
    assert rows(workspace, counters) == [(0.75 / 4, 0.0, 0.25)]


def test_memory_does_not_grow_with_the_tasks_of_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "ROWS_PER_BLOCK", 100)
    file = files.database(tmp_path / "msprof_1.db")
    taken(tmp_path / "workspace", file)
    peaks = []
    for first, last in ((10, 500), (500, 8_000)):
        with closing(sqlite3.connect(file)) as connection, connection:
            numbers = [(number, START_NS + number) for number in range(first, last)]
            connection.executemany("INSERT INTO TASK SELECT ?2, ?2 + 9, 2, 1, ?1, 1, 3, 0, 5, 1, 1, 0", numbers)
            connection.executemany("INSERT INTO COMPUTE_TASK_INFO SELECT 1, ?1, ?2, 3, 2", numbers)
            connection.executemany("INSERT INTO TASK_PMU_INFO SELECT ?1, 5, ?2 / 1e20", numbers)
            del numbers
        tracemalloc.start()
        taken(tmp_path / "workspace", file)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0], peaks


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


def test_only_the_same_bytes_are_known(tmp_path: Path, workspace: Path) -> None:
    """A file system with times of 2 s, or an archive, gives files of other content the same size and time."""
    for folder, duration in (("a", "4.380"), ("b", "9.380"), ("c", "9.380")):
        file = summary(tmp_path / folder / "kernel_details.csv", OP_SUMMARY, kernel(duration=duration))
        os.utime(file, (1, 1))
        taken(workspace, file)
    assert rows(workspace, "SELECT session, ticks FROM aicore JOIN part ON part = record >> 24") == [
        (1, 4380),
        (2, 9380),
    ]


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


def test_slices_and_devices_of_a_run_have_all_of_their_kernels(tmp_path: Path, workspace: Path) -> None:
    for number in range(2):
        folder = tmp_path / "PROF_0" / "mindstudio_profiler_output"
        summary(folder / f"op_summary_slice_{number}.csv", OP_SUMMARY, *[kernel()] * (2 + number))
    header, row = OP_SUMMARY.removeprefix("Device_id,"), kernel().removeprefix("0,")
    for device in range(2):
        summary(tmp_path / "PROF_1" / f"device_{device}" / "summary" / f"op_summary_{device}_1_1.csv", header, row)
    taken(workspace, tmp_path / "PROF_0", tmp_path / "PROF_1")
    counts = (
        "SELECT i.session, i.device_id, count(*) FROM aicore r JOIN segment s USING (segment)"
        " JOIN part p ON p.part = r.record >> 24 AND p.log = s.log JOIN inference i USING (inference) GROUP BY 1, 2"
    )
    assert rows(workspace, counts) == [(1, 0, 5), (2, 0, 1), (2, 1, 1)]


@pytest.mark.parametrize("size", [50, 51, 100, 333])
def test_events_are_the_same_in_pieces_of_any_size(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = files.TIMELINES["msprof"] * 3
    file = write(tmp_path / "x.json", json.dumps(events, indent=1))
    monkeypatch.setattr(timelines, "TIMELINE_PIECE_BYTES", size)
    assert [event for text, _ in EventPieces(file) for event in json.loads(text)] == events


# SQLite's cache is as large for each; the first file has had all the rest loaded.
_PEAKS = """
import sys
from pathlib import Path
from profagent.store import drafts
from tests.unit.ascend.files import taken
drafts.CACHE_KIB = 1024
for name in sys.argv[1:]:
    (one,) = taken(Path(name).with_suffix(".workspace"), Path(name))
    (peak,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(one.kernels, peak.split()[1])
"""


# Bounded queues of events fill by 10 MB while the machine is busy; the larger timeline alone has 17 MB more.
@pytest.mark.parametrize(("kind", "many", "room_kib"), [("csv", 20_000, 10_000), ("json", 40_000, 16_000)])
def test_memory_does_not_grow_with_the_file(kind: str, many: int, room_kib: int, tmp_path: Path) -> None:
    inputs = [str(tmp_path / f"{times}.{kind}") for times in (5_000, many)]
    for times, file in zip((5_000, many), map(Path, inputs), strict=True):
        if kind == "csv":
            summary(file, OP_SUMMARY, *[kernel()] * times)
        else:
            timeline(file, files.TIMELINES["msprof"] * times)
    command = [sys.executable, "-c", _PEAKS, *inputs]
    told = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True).stdout
    (few, before_kib), (many_kernels, after_kib) = (map(int, line.split()) for line in told.splitlines())
    assert (few, many_kernels, after_kib - before_kib < room_kib) == (5_000, many, True)


def test_a_process_and_processes_side_by_side_bring_the_same_rows(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [kernel(f"conv{place % 7}", duration=f"{place}.5", stream=str(place % 3)) for place in range(123)]
    inputs = [
        summary(tmp_path / "1.csv", OP_SUMMARY, *lines),
        timeline(tmp_path / "2.json", files.TIMELINES["msprof"]),
        files.database(tmp_path / "msprof_3.db"),
        summary(tmp_path / "4.csv", *files.SUMMARIES["step_trace"]),
        write(tmp_path / "bad.csv", f"{OP_SUMMARY}\n{kernel()}\n{kernel()[:100]}"),
        write(tmp_path / "PROF_6" / "device_0" / "data" / "x.slice_0", "x").parents[2],
    ]
    assert {each.session for each in taken(workspace, *inputs)} == {1, 2, 3, 4, 5, None}
    monkeypatch.setattr(importing, "WORTH_A_PROCESS_BYTES", 0)
    assert {each.session for each in taken(tmp_path / "other", *inputs)} == {1, 2, 3, 4, 5, None}
    with closing(sqlite3.connect(workspace / "profagent.db")) as connection:
        tables = [*tables_of(connection)]
    found = {}
    for table in tables:
        columns = {"session": "session, address, counter_map"}.get(table, "*")
        sql = f"SELECT {columns} FROM {table}"
        found[table] = rows(workspace, sql)
        assert found[table] == rows(tmp_path / "other", sql), table
    assert all(found[table] for table in ("layer", "log", "aicore", "ledger_entry", "figure", "ascend_block"))


def test_operators_without_a_model_are_named_without_its_number(tmp_path: Path, workspace: Path) -> None:
    taken(workspace, summary(tmp_path / "x.csv", OP_SUMMARY, kernel()))
    file = tmp_path / "trace.json"
    assert profagent("export", "trace", "1", "--workspace", workspace, "--output", file).code == 0
    shown = [*profagent("watch", "1", "--workspace", workspace).out.splitlines(), file.read_text("utf-8")]
    assert sum("single-op" in text for text in shown) == 2
    assert not any("4294967295" in text for text in shown)


def test_what_was_written_for_spreadsheets_is_read_as_it_was(tmp_path: Path) -> None:
    names = ["=1+1", "'=x", "a\tb", "two\nlines", "C:\\x1b", "it's plain"]
    file, columns = tmp_path / "op_summary.csv", (Column("Name"), Column("Time(us)", 3))
    file.write_bytes(b"".join(sheet_pieces(columns, [(each, -1.5) for each in names], "csv")))
    assert [row for rows, _ in Rows(file) for row in rows] == [[name, "-1.500"] for name in names]
