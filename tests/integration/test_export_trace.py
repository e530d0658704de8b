"""`export trace`: one trace of a session with all sources, which is its database event by event."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest

from profagent.export.merged import SessionOperand, export_trace
from profagent.store import inference_pages
from profagent.store.columns import Page, PageQuery
from tests.integration.board import SAMPLES, sample
from tests.integration.host import profagent
from tests.integration.perfetto_file import Found, PerfettoFile, read
from tests.integration.rows import query

Trace = dict[str, Any]


@pytest.fixture(scope="module")
def workspace(demo_workspace: Path) -> Path:
    """The workspace of a demo."""
    return demo_workspace


def exported(workspace: Path, file: Path, *more: object) -> Trace:
    ended = profagent("export", "trace", "1", "--workspace", workspace, "--output", file, *map(str, more))
    assert ended.code == 0, ended.err
    found: Trace = json.loads(file.read_text())
    return found


@pytest.fixture(scope="module")
def trace(workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return exported(workspace, tmp_path_factory.mktemp("trace") / "trace.json")


def of(trace: Trace, phase: str, *categories: str) -> list[dict[str, Any]]:
    return [
        event
        for event in trace["traceEvents"]
        if event["ph"] == phase and (not categories or event.get("cat") in categories)
    ]


def moments(trace: Trace, *categories: str, phase: str = "X") -> list[tuple[str, int, int]]:
    """Names, starts and durations in whole µs of the board's clock."""
    origin = trace["metadata"]["origin_us"]
    return sorted(
        (event["name"], round(origin + event["ts"]), round(event.get("dur", 0)))
        for event in of(trace, phase, *categories)
    )


def agree(found: list[tuple[str, int, int]], rows: list[tuple[Any, ...]]) -> None:
    """The same names, at times that are at most 1 µs apart."""
    assert rows
    assert Counter(name for name, _, _ in found) == Counter(row[0] for row in rows)
    for (name, start, duration), (other, start_us, duration_us) in zip(found, sorted(rows), strict=True):
        assert name == other
        assert abs(start - start_us) <= 1.5
        assert abs(duration - duration_us) <= 2


@pytest.mark.parametrize(
    ("categories", "sql"),
    [
        (["layer"], "SELECT ifnull(layer_name, 'N/A'), start_us, duration_us FROM op_records"),
        (["cpu-layer"], "SELECT ifnull(layer_name, 'N/A'), start_us, duration_us FROM aicpu_records"),
        (["call"], "SELECT name, begin_us, duration_us FROM api_records WHERE begin_us IS NOT NULL"),
        (["span", "range", "step"], "SELECT name, start_us, duration_us FROM ranges WHERE kind <> 'mark'"),
        (["op"], "SELECT op_name, start_us, duration_us FROM op_events"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_each_slice_is_a_row(workspace: Path, trace: Trace, categories: list[str], sql: str) -> None:
    rows = query(workspace / "profagent.db", sql)
    if categories == ["cpu-layer"] and not rows:
        pytest.skip("the network has no CPU segment")
    agree(moments(trace, *categories), rows)


def test_each_sample_is_a_counter(workspace: Path, trace: Trace) -> None:
    rows = query(workspace / "profagent.db", "SELECT name, unit, time_us, value FROM metrics")
    origin = trace["metadata"]["origin_us"]
    found = [
        (event["name"], round(origin + event["ts"]), event["args"]["value"])
        for event in of(trace, "C")
        if event["name"] != "PMU"
    ]
    assert sorted(found) == sorted((f"{name} ({unit})" if unit else name, at, value) for name, unit, at, value in rows)
    assert any(name.startswith("npu") for name, _, _ in found)
    ratios = [event["args"]["mac_busy"] for event in of(trace, "C") if event["name"] == "PMU"]
    assert max(ratios) > 0
    layers, inferences = len(of(trace, "X", "layer")), len(of(trace, "X", "inference"))
    assert len(ratios) == layers + inferences


def test_slices_lie_within_each_other_and_each_track_has_a_name(trace: Trace) -> None:
    named = {(event["pid"], event.get("tid", 0)) for event in of(trace, "M")}
    ends: dict[tuple[int, int], list[float]] = {}
    for event in of(trace, "X"):
        key = (event["pid"], event["tid"])
        assert key in named
        start = round(event["ts"] * 1000)
        end = start + round(event["dur"] * 1000)
        open_ends = ends.setdefault(key, [])
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1], event
        open_ends.append(end)
    names = {event["args"]["name"] for event in of(trace, "M") if "name" in event["args"]}
    assert any(name.startswith("NPU 0, resnet50.0 (") and name.endswith("[simulated])") for name in names), names
    # All of an inference is on one track.
    layers = {(event["pid"], event["tid"]) for event in of(trace, "X", "layer")}
    assert layers == {(event["pid"], event["tid"]) for event in of(trace, "X", "inference")}


def test_an_arrow_leads_from_the_call_to_each_segment(workspace: Path, trace: Trace) -> None:
    executing = [event for event in of(trace, "X", "call") if event["name"].startswith("svp_acl_mdl_execute")]
    begins = {(event["pid"], event["tid"], event["ts"]) for event in executing}
    starts = of(trace, "s")
    assert {(event["pid"], event["tid"], event["ts"]) for event in starts} <= begins
    ((inferences,),) = query(workspace / "profagent.db", "SELECT count(*) FROM inferences WHERE figures = 'final'")
    assert len(starts) == inferences
    segments = {(event["pid"], event["tid"], event["ts"]) for event in of(trace, "X", "segment", "cpu-segment")}
    assert {(event["pid"], event["tid"], event["ts"]) for event in [*of(trace, "t"), *of(trace, "f")]} == segments


def test_a_part_of_the_time_alone(workspace: Path, tmp_path: Path) -> None:
    few = exported(workspace, tmp_path / "last.json", "--last", 3)
    assert len(of(few, "X", "inference")) == 3
    first, last = (event["ts"] for event in (of(few, "X", "inference")[0], of(few, "X", "inference")[-1]))
    end = last + of(few, "X", "inference")[-1]["dur"]
    assert all(event["ts"] + event["dur"] >= first and event["ts"] <= end + 1 for event in of(few, "X"))
    assert of(few, "X", "op")
    database = workspace / "profagent.db"
    ((since, until),) = query(
        database, "SELECT min(start_us), max(start_us) FROM (SELECT * FROM inferences ORDER BY start_us LIMIT 5)"
    )
    some = exported(workspace, tmp_path / "from.json", "--from", since / 1e6, "--to", (until + 1) / 1e6)
    assert len(of(some, "X", "inference")) in {5, 6}


@pytest.fixture
def in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pages, all but the first read in other processes, also where there is one CPU."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(inference_pages, "WORTH_PROCESSES_BYTES", 0)
    monkeypatch.setattr(inference_pages, "RECORDS_PER_PAGE", 200)


@pytest.mark.parametrize("form", ["trace", "perfetto"])
@pytest.mark.usefixtures("in_processes")
def test_pages_that_processes_read_give_the_same_file(
    form: str, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for worth in (1 << 40, 0):
        monkeypatch.setattr(inference_pages, "WORTH_PROCESSES_BYTES", worth)
        ended = profagent("export", form, "1", "--workspace", workspace, "--output", tmp_path / f"{form}-{worth}")
        assert ended.code == 0, ended.err
        made.append((tmp_path / f"{form}-{worth}").read_bytes())
    assert made[0] == made[1]


@pytest.mark.usefixtures("in_processes")
def test_once_somebody_writes_pages_are_read_by_who_sees_the_state_before(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(workspace, tmp_path / "copy")
    database = tmp_path / "copy" / "profagent.db"
    before = exported(tmp_path / "copy", tmp_path / "before.json")
    read_here: list[int] = []

    ask, read = inference_pages.PageReader._ask, PageQuery.read

    def write_then_ask(reader: inference_pages.PageReader, pool: Any, query: PageQuery, *more: Any) -> Any:
        if query.first and not read_here[1:]:
            with closing(sqlite3.connect(database)) as other, other:
                other.execute("UPDATE aicore SET ticks = 1, mac_busy = 0.5")
        return ask(reader, pool, query, *more)

    def noted(query: PageQuery, connection: sqlite3.Connection) -> Page:
        read_here.append(query.first)
        return read(query, connection)

    monkeypatch.setattr(inference_pages.PageReader, "_ask", write_then_ask)
    monkeypatch.setattr(PageQuery, "read", noted)
    assert exported(tmp_path / "copy", tmp_path / "meanwhile.json") == before
    assert len(read_here) > 2


def _dies_or_never_ends(query: PageQuery, *_: object) -> None:
    if query.first == 1:
        os._exit(1)
    signal.pause()


@pytest.mark.usefixtures("in_processes")
def test_a_process_that_ends_leaves_no_file_and_no_other_process(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference_pages, "RECORDS_PER_PAGE", 1)
    monkeypatch.setattr(inference_pages, "_made", _dies_or_never_ends)
    ended = profagent("export", "trace", "1", "--workspace", workspace, "--output", tmp_path / "trace.json")
    assert ended.code != 0
    assert "a process that reads" in ended.err
    assert "--last N" in ended.err
    assert [*tmp_path.iterdir()] == []
    assert active_children() == []


@pytest.mark.usefixtures("in_processes")
def test_of_several_sessions_one_at_a_time_has_processes(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = []

    class Pool(ProcessPoolExecutor):
        def __init__(self, *arguments: Any) -> None:
            others.append(active_children())
            super().__init__(*arguments)

    monkeypatch.setattr(inference_pages, "ProcessPoolExecutor", Pool)
    copy = shutil.copytree(workspace, tmp_path / "copy")
    operands = [SessionOperand(each / "profagent.db") for each in (workspace, copy)]
    asyncio.run(export_trace(operands, tmp_path / "two.json"))
    assert others == [[], []]


def test_a_large_trace_is_cut_and_says_so(workspace: Path, trace: Trace, tmp_path: Path) -> None:
    first = exported(workspace, tmp_path / "trace.json", "--part-size", 1)
    parts = [first]
    while (name := parts[-1]["metadata"]["goes_on_in"]) is not None:
        file = tmp_path / name
        assert file.stat().st_size <= 1_001_000
        parts.append(json.loads(file.read_text()))
    whole = [event for event in trace["traceEvents"] if event["ph"] != "M"]
    assert [event for part in parts for event in part["traceEvents"] if event["ph"] != "M"] == whole
    assert [part["metadata"]["part"] for part in parts] == [*range(1, len(parts) + 1)]
    assert len(parts) > 1 or (tmp_path / "trace.json").stat().st_size < 1_000_000
    twice = profagent("export", "trace", "1", "1", "--workspace", workspace, "--output", tmp_path / "trace.json")
    assert (twice.code, "named twice" in twice.err) == (2, True)
    for part in parts:
        named = {(event["pid"], event.get("tid", 0)) for event in of(part, "M")}
        assert {(event["pid"], 0) for event in part["traceEvents"]} <= named


def test_two_boards_come_on_the_host_s_clock(workspace: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with (
        closing(sqlite3.connect(workspace / "profagent.db")) as source,
        closing(sqlite3.connect(other / "profagent.db")) as copy,
    ):
        source.backup(copy)
        with copy:
            copy.execute("UPDATE board SET identity = 'another', hostname = 'another'")
            copy.execute("UPDATE clock_sample SET offset_us = offset_us + 5000000")
            copy.execute("INSERT INTO ledger_entry (session, origin, grade, reason, detail, count)"
                         " VALUES (1, 'link', 'loss', 'disk-full', 'gone', 1)")  # fmt: skip
            copy.execute("INSERT INTO ledger_entry (session, origin, grade, reason, detail, count)"
                         " VALUES (1, 'board', 'loss', 'deleted-undelivered', 'the cap', 1)")  # fmt: skip
            copy.execute(
                "INSERT INTO kept_loss (board, id, entry, job_name, from_us)"
                " SELECT 1, 'a', max(entry), 'OPS-x', (SELECT min(start_us) FROM inference) FROM ledger_entry"
            )
    merged = asyncio.run(
        export_trace(
            [SessionOperand(workspace / "profagent.db"), SessionOperand(other / "profagent.db")], tmp_path / "two.json"
        )
    )
    both = json.loads((tmp_path / "two.json").read_text())
    assert both["metadata"]["clock"] == "host"
    sessions = merged.metadata["sessions"]
    assert all(session["clock_offset_us"]["uncertainty_us"] < 100_000 for session in sessions)
    # What happened at the same moment of both clocks is 5 s apart on the host's.
    starts: dict[str, float] = {}
    for event in of(both, "M"):
        if event["name"] == "process_name" and event["args"]["name"].startswith("NPU "):
            first = min(each["ts"] for each in of(both, "X", "inference") if each["pid"] == event["pid"])
            starts["another" if "(another " in event["args"]["name"] else "first"] = first
    arrows = [event["id"] for event in of(both, "s")]
    assert len(arrows) == len({*arrows})
    away = starts["another"]
    assert round((starts["first"] - away) / 1e6, 2) == 5.0
    loss, kept = of(both, "i", "loss")
    assert (kept["name"], kept["args"]["job"], round(kept["ts"] - away)) == ("deleted-undelivered", "OPS-x", 0)
    assert (loss["name"], loss["args"]["detail"], loss["args"]["time"]) == ("disk-full", "gone", "N/A")


@pytest.fixture(scope="module")
def perfetto(workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> PerfettoFile:
    file = tmp_path_factory.mktemp("perfetto") / "trace.pftrace"
    ended = profagent("export", "perfetto", "1", "--workspace", workspace, "--output", file)
    assert ended.code == 0, ended.err
    return read(file)


def _placed(trace: Trace, phase: str) -> list[tuple[Any, ...]]:
    """Slices or instants of a JSON trace, as `PerfettoFile` has them."""
    named = [event for event in of(trace, "M") if "name" in event["args"]]
    names = {(event["pid"], event.get("tid", 0)): event["args"]["name"] for event in named}
    return sorted(
        (
            (names[event["pid"], 0], names[event["pid"], event["tid"]], event["cat"], event["name"], start, end,
             tuple(sorted(event.get("args", {}).items())))
            for event in of(trace, phase)
            for start in [round(event["ts"] * 1000)]
            for end in [start + round(event["dur"] * 1000) if "dur" in event else None]
        ),
        key=repr,
    )  # fmt: skip


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_perfetto_file_of_a_sample_has_the_same_events(name: str, tmp_path: Path) -> None:
    """What the runtime library wrote, with all that is odd in it."""
    job = sample(tmp_path, name)
    for kind in ("trace", "perfetto"):
        ended = profagent("export", kind, job, "--output", tmp_path / kind)
        assert ended.code == (4 if "loss: " in ended.err else 0), ended.err
    agree_on_all(json.loads((tmp_path / "trace").read_text()), read(tmp_path / "perfetto"))


def test_a_perfetto_file_has_the_same_events(trace: Trace, perfetto: PerfettoFile) -> None:
    """Of which each was compared with the database above."""
    assert perfetto.flows
    assert perfetto.counters
    agree_on_all(trace, perfetto)


def agree_on_all(trace: Trace, perfetto: PerfettoFile) -> None:
    """The same slices, to the nanosecond, instants, counters and arrows."""
    assert sorted((_as_json(each) for each in perfetto.slices), key=repr) == _placed(trace, "X")
    assert sorted((_as_json(each) for each in perfetto.instants), key=repr) == _placed(trace, "i")
    processes = {event["pid"]: event["args"]["name"] for event in of(trace, "M") if event["name"] == "process_name"}
    counters = [
        (processes[event["pid"]], name, round(event["ts"] * 1000), value)
        for event in of(trace, "C")
        for name, value in _named_values(event)
    ]
    found = [(process, _with_unit(perfetto, name), at, value) for process, name, at, value in perfetto.counters]
    assert Counter(found) == Counter(counters)
    arrows = {number: [at for at, _ in sorted(ends)] for number, ends in perfetto.flows.items()}
    expected: dict[int, list[int]] = {}
    for event in (*of(trace, "s"), *of(trace, "t"), *of(trace, "f")):
        expected.setdefault(event["id"], []).append(round(event["ts"] * 1000))
    assert arrows == {number: sorted(times) for number, times in expected.items()}
    assert all(max(ends)[1] for ends in perfetto.flows.values())


def _as_json(found: Found) -> tuple[Any, ...]:
    """At the times that are left of it as doubles: a year after the origin these have no ns."""
    start = _as_double(found.start_ns)
    end = None if found.end_ns is None else start + _as_double(found.end_ns - found.start_ns)
    return (*found[:4], start, end, found.args)


def _as_double(ns: int) -> int:
    return round(ns / 1000 * 1000)


def _named_values(event: dict[str, Any]) -> list[tuple[str, float]]:
    if event["name"] != "PMU":
        return [(event["name"], event["args"]["value"])]
    return [(f"PMU {name}", value) for name, value in event["args"].items()]


def _with_unit(perfetto: PerfettoFile, name: str) -> str:
    unit = perfetto.units[name]
    return f"{name} ({unit})" if unit else name


def test_a_perfetto_file_tells_where_it_is_from(workspace: Path, trace: Trace, perfetto: PerfettoFile) -> None:
    ((board,),) = query(workspace / "profagent.db", "SELECT board FROM sessions")
    told = {name.removeprefix("profagent."): value for name, value in perfetto.attributes.items()}
    assert (told["session"], told["board"], told["simulated"], told["complete"]) == ("1", board, "true", "true")
    mine = {name: value for name, value in trace["metadata"].items() if name not in {"part", "goes_on_in"}}
    assert json.loads(told["metadata"]) == mine
    assert perfetto.clocks == {1: trace["metadata"]["origin_us"] * 1000, 6: 0}
