"""Subscribed operators, marks and metrics come into their views: from a board, from a copy, and from mirrors anew."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from profagent.record import record
from profagent.record.options import RecordOptions
from profagent.store.database import made_anew
from profagent.store.workspace import Workspace
from profagent_app.marks import Kind
from tests.fakes.spooled import MARKS, METRICS, OPS, START_US, mark, spooled, sweeps
from tests.integration.board import eventually, running, sample
from tests.integration.host import COMMAND, ENVIRONMENT, hurry, is_event, profagent, started
from tests.integration.rows import query, so_far

PIPES = sorted((Path(__file__).parents[1] / "data" / "pipe").glob("*.bin"))
VIEWS = ("op_events", "ranges", "metrics")
# Collections that have come as far as they were there.
CAUGHT_UP = "SELECT count(*) FROM job WHERE caught_up = 1"
LEDGER = "SELECT job, log, grade, reason, first, last, count FROM ledger ORDER BY job, log, reason"


def rows(database: Path) -> dict[str, list[tuple[Any, ...]]]:
    """What the views have, whoever captured it."""
    found = {view: query(database, f"SELECT * FROM {view}") for view in VIEWS}
    return {view: sorted(row[2:] for row in rows) for view, rows in found.items()}


def imported(directory: Path) -> Path:
    ended = profagent("import", "-dir", directory)
    assert ended.code in {0, 4}, ended.err
    return directory / "sqlite" / "profagent.db"


@pytest.mark.parametrize("pipe", PIPES, ids=lambda pipe: pipe.stem)
def test_each_op_is_what_the_library_s_accessors_answer(pipe: Path, tmp_path: Path) -> None:
    data = pipe.read_bytes()
    database = imported(spooled(tmp_path / OPS, data[:1024], data[1024:]))
    said = json.loads(pipe.with_suffix(".json").read_text())
    found = query(database, "SELECT source, model_id, op_type, op_name, start_us, end_us, duration_us FROM op_events")
    assert len(found) == said["op_num"]
    for (source, model_id, kind, name, *times), op in zip(found, said["ops"], strict=True):
        assert (source, model_id, times) == ("camera", op["model_id"], [op["start"], op["end"], op["duration"]])
        for what, text in (("type", kind), ("name", name)):
            if op[f"{what}_rc"] == 0:  # of 32 bytes the accessor tells nothing
                assert text == op[f"{what}_written"].rstrip("\0")


def test_marks_and_metrics_are_rows(tmp_path: Path) -> None:
    records = mark(Kind.SPAN, "preprocess", START_US, START_US + 900, '{"frame":1}', number=3)
    records += mark(Kind.MARK, "frame", START_US + 5, START_US + 5, tid=8)
    database = imported(spooled(tmp_path / MARKS, records))
    assert rows(database)["ranges"] == [
        (5, 7, "span", "preprocess", '{"frame": 1}', START_US, START_US + 900, 900, 0, 3),
        (5, 8, "mark", "frame", "{}", START_US + 5, START_US + 5, 0, 0, 0),
    ]
    numbered = query(database, "SELECT process, frame, kind, name, start_us, duration_us FROM frame_marks")
    assert numbered == [(5, 1, "span", "preprocess", START_US, 900)]
    names = ("npu.utilization", "self.cpu")
    database = imported(spooled(tmp_path / METRICS, sweeps((START_US, 12), (START_US + 10, 7.5), names=names)))
    assert rows(database)["metrics"] == [
        (name.split(".")[0], name, "%", time_us, value)
        for name in names
        for time_us, value in ((START_US, 12), (START_US + 10, 7.5))
    ]


def test_what_is_torn_lost_or_nonsense_is_in_the_ledger(tmp_path: Path) -> None:
    data = PIPES[0].read_bytes()
    ended = profagent("import", "-dir", spooled(tmp_path / OPS, data[:600], b"\xff" * 256 + data[:256], first=3))
    assert ended.code == 4
    found = query(tmp_path / OPS / "sqlite" / "profagent.db", LEDGER)
    assert found == [
        (OPS, None, "note", "missing-segment", None, None, 2),
        (OPS, "00000003", "loss", "torn-record", 512, 600, 1),
        (OPS, "00000004", "loss", "bad-record", None, None, 1),
    ]
    lines = sweeps((START_US, 1)) + b"s 1 0=nan\ns -1 0=1\ns 99999999999999999999999 0=1\ns 5 0=1 0="
    directory = spooled(tmp_path / METRICS, lines, is_over=False)
    assert profagent("import", "-dir", directory).code == 4
    database = directory / "sqlite" / "profagent.db"
    assert {row[1:4] + row[6:] for row in query(database, LEDGER)} == {
        ("00000001", "loss", "bad-record", 3),
        ("00000001", "loss", "torn-record", 1),
        ("00000001", "note", "no-done", 1),
    }
    assert query(database, "SELECT value FROM metrics") == [(1,)]
    assert query(database, "SELECT state FROM job") == [("quiet",)]


def test_a_killed_daemon_is_noted(tmp_path: Path) -> None:
    directory = spooled(tmp_path / OPS, PIPES[0].read_bytes()[:256])
    (directory / "end").write_text("killed\n")
    found = query(imported(directory), LEDGER)
    assert found == [(OPS, "end", "note", "daemon-killed", None, None, 1)]


def numbered(*numbers: int, pid: int = 5) -> bytes:
    return b"".join(mark(Kind.MARK, "frame", START_US, START_US, number=number, pid=pid) for number in numbers)


def test_marks_that_were_dropped_are_in_the_ledger(tmp_path: Path) -> None:
    dropped = "SELECT j.name, log, count FROM ledger l JOIN job j ON j.name = l.job WHERE reason = 'dropped-marks'"
    first, later = MARKS, MARKS.replace("T14", "T15")
    interleaved = [numbered(n, pid=pid) for n in (0, 2, 1, 3) for pid in (5, 6)]  # threads take their numbers in turn
    root = tmp_path / "root"
    # A gap in a segment, one between two segments, and a process that has the pid of another.
    spooled(root / first, b"".join(interleaved), numbered(6, 8) + numbered(0, 1, pid=6))
    # The daemon was away from 9 to 19; before it came, another program had made marks.
    spooled(root / later, numbered(20, 21) + numbered(3, pid=7), is_over=False)
    wanted = [(first, "00000002", 3), (later, "00000001", 14)]
    workspace = tmp_path / "live"
    with running("--root", root) as board:
        recorded(board.address, workspace, "SELECT count(*) FROM ranges", [(15,)], killed=True)
        with (root / later / "00000001").open("ab") as file:
            file.write(numbered(23))
        recorded(board.address, workspace, "SELECT count(*) FROM ranges", [(16,)], killed=False, code=4)
    wanted[-1] = (later, "00000001", 15)
    assert sorted(query(workspace / "profagent.db", dropped)) == wanted
    # By itself a collection has none of the marks that came before its own.
    for name, expected in ((first, wanted[:1]), (later, [(later, "00000001", 20 + 1 + 3)])):
        assert query(imported(root / name), dropped) == expected
    part = imported(spooled(tmp_path / "part" / first, numbered(7, 8), first=3))
    assert query(part, dropped) == [(first, "00000003", 7)]


def test_a_value_that_is_no_json_is_null(tmp_path: Path) -> None:
    records = mark(Kind.MARK, "nan", START_US, START_US, '{"v":NaN,"w":-Infinity,"n":7}')
    database = imported(spooled(tmp_path / MARKS, records))
    extracted = "SELECT json_extract(attributes, '$.v'), json_extract(attributes, '$.n') FROM ranges"
    assert query(database, extracted) == [(None, 7)]


def test_a_workspace_is_made_anew_from_its_mirrors(tmp_path: Path) -> None:
    data = PIPES[0].read_bytes()
    root, live, anew = tmp_path / "root", tmp_path / "live", tmp_path / "live.new"
    spooled(root / OPS, data[:1024], data[1024:])
    spooled(root / MARKS, mark(Kind.SPAN, "preprocess", START_US, START_US + 900))
    spooled(root / METRICS, sweeps((START_US, 12)), sweeps((START_US + 10, 13)))
    sample(root, "small")
    with running("--root", root) as board:
        # With the files that say that the others are over, for which --until-finished does not wait.
        recorded(board.address, live, "SELECT count(*), state FROM job GROUP BY state", [(4, "finished")], killed=False)
    told = made_anew(live / "profagent.db").replace("profagent import", f"{shlex.join(COMMAND)} import")
    subprocess.run(["sh", "-c", told], env=ENVIRONMENT, check=False, capture_output=True, timeout=60)
    assert rows(anew / "profagent.db") == rows(live / "profagent.db")
    assert query(anew / "profagent.db", "SELECT DISTINCT state FROM job") == [("finished",)]
    listed = profagent("sessions", "--workspace", live)
    assert f"session 1: {len(data) // 256} ops, 1 ranges, 2 samples" in listed.out
    shown = profagent("show", "1", "--workspace", live)
    assert f"beside its JOBs, session 1 has {len(data) // 256} ops, 1 ranges, 2 samples" in shown.out
    assert profagent("show", "-dir", root / METRICS).out == "session 1: 2 samples; no JOB\n"


def recorded(
    address: str, workspace: Path, until: str, wanted: list[tuple[Any, ...]], *, killed: bool, code: int = 0
) -> None:
    """Record until a query has these rows; then it is killed, or told to end."""
    database = workspace / "profagent.db"
    with started("record", "--board", address, "--workspace", str(workspace), "--backlog") as host:
        assert eventually(lambda: so_far(database, until) == wanted)
        if killed:
            host.process.kill()
        else:
            assert host.interrupt().code == code


def test_rows_are_there_once_whoever_was_killed_and_each_session_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch, "profagent.watch.watch", "WatchView.board_each_s", 0.2)
    data = PIPES[0].read_bytes()
    root, workspace = tmp_path / "root", tmp_path / "workspace"
    ops, lines = spooled(root / OPS, data[:700], is_over=False), sweeps((START_US, 1), (START_US + 1, 2))
    metrics = spooled(root / METRICS, lines[:-3], is_over=False)
    counts = "SELECT (SELECT count(*) FROM op_events), (SELECT count(*) FROM metrics)"
    with running("--root", root) as board:
        recorded(board.address, workspace, counts, [(2, 1)], killed=True)
        for file, rest in ((ops / "00000001", data[700:1500]), (metrics / "00000001", lines[-3:])):
            with file.open("ab") as out:
                out.write(rest)
        recorded(board.address, workspace, counts, [(5, 2)], killed=False)
        with (ops / "00000001").open("ab") as out:
            out.write(data[1500:])
        number = len(data) // 256
        recorded(board.address, workspace, counts, [(number, 2)], killed=False)
    by_session = "SELECT session, count(*) FROM op_events GROUP BY session ORDER BY session"
    assert query(workspace / "profagent.db", by_session) == [(1, 5), (2, number - 5)]
    assert query(workspace / "profagent.db", "SELECT sequence FROM op_events") == query(
        imported(spooled(tmp_path / "copy" / OPS, data)), "SELECT sequence FROM op_events"
    )
    assert query(workspace / "profagent.db", "SELECT time_us, value FROM metrics") == [(START_US, 1), (START_US + 1, 2)]
    # Who goes on with a segment knows the names of its metrics.
    with running("--root", root) as board:
        arguments = ("--board", board.address, "--workspace", str(workspace), "--save", "--json")
        with started("watch", *arguments) as host:
            host.err.until("watching")
            with (metrics / "00000001").open("ab") as out:
                out.write(f"s {START_US + 2} 0=77\n".encode())
            assert json.loads(host.out.until(is_event("board"))[-1])["npu_utilization"] == 77
            assert host.interrupt().code == 0
    # Sessions that share a collection go together.
    cleared = profagent("gc", "--workspace", workspace, "--keep-last", "0")
    assert cleared.code == 0, cleared.err
    assert query(workspace / "profagent.db", counts) == [(0, 0)]
    assert query(workspace / "profagent.db", "SELECT (SELECT count(*) FROM op_event)") == [(0,)]


@pytest.mark.parametrize("age_s", [0.0, 3600.0], ids=["open", "quiet"])
def test_from_now_leaves_out_what_other_sources_wrote_before(age_s: float, tmp_path: Path) -> None:
    root, workspace = tmp_path / "root", tmp_path / "workspace"
    data, old = PIPES[0].read_bytes(), sweeps((START_US, 1))
    for directory, before in (
        (root / MARKS, numbered(20, 30) + b"\xff" * 256),
        (root / METRICS, old),
        (root / OPS, data[:256]),
    ):
        spooled(directory, before, before, is_over=False)
        (directory / "00000001.done").write_text(f"bytes:{len(before)}\n")
        for path in (*directory.iterdir(), directory):
            os.utime(path, (time.time() - age_s,) * 2)

    def written(numbers: bytes, sweep: str, ops: bytes) -> None:
        for directory, new in ((root / MARKS, numbers), (root / METRICS, sweep.encode()), (root / OPS, ops)):
            with (directory / "00000002").open("ab") as file:
                file.write(new)

    counts = "SELECT " + ", ".join(f"(SELECT count(*) FROM {view})" for view in VIEWS)
    with running("--root", root) as board:
        arguments = ("--board", board.address, "--workspace", str(workspace), "--from-now")
        with started("record", *arguments) as host:
            assert eventually(lambda: so_far(workspace / "profagent.db", CAUGHT_UP) == [(3,)])
            written(numbered(31), f"s {START_US + 5} 0=7\n", data[256:512])
            assert eventually(lambda: query(workspace / "profagent.db", counts) == [(1, 1, 1)])
            assert host.interrupt().code == 0
    assert query(workspace / "profagent.db", "SELECT number FROM ranges") == [(31,)]
    assert query(workspace / "profagent.db", "SELECT time_us, value FROM metrics") == [(START_US + 5, 7)]
    assert query(workspace / "profagent.db", "SELECT count(*) FROM ledger WHERE grade = 'loss'") == [(0,)]
    assert not list(workspace.glob("mirror/*/*/00000001"))


async def test_what_is_said_of_another_source_fits_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "LEAST_BYTES", 1)
    root, is_told = tmp_path / "root", asyncio.Event()
    directory = spooled(root / MARKS, numbered(0) * 20_000, is_over=False)

    def tell(line: str) -> None:
        if f"{MARKS} holds 5.1 MB that came before" in line:
            is_told.set()

    with running("--root", root) as board:
        options = RecordOptions((board.address,), Workspace(tmp_path / "workspace"))
        await asyncio.wait_for(record.record(options, tell, is_told), 60)
    examined = profagent("doctor", directory)
    assert examined.code == 2
    assert "it holds subscribed operators, marks or metrics" in examined.err
    assert f"`profagent show -dir {directory}`" in examined.err


def test_what_a_cap_took_is_told_by_the_session_that_hears_it_first(tmp_path: Path) -> None:
    root, state = tmp_path / "root", tmp_path / "state"
    spooled(root / MARKS, numbered(0, 1))
    sample(root, "runtime-api")
    state.mkdir()
    loss = {"id": 7, "reason": "deleted-undelivered", "job": MARKS, "from_wall_us": START_US, "to_wall_us": START_US}
    (state / "losses.jsonl").write_text(json.dumps({**loss, "lost_bytes": 512, "lost_logs": 1}) + "\n")
    with running("--root", root, "--state", state, "--quiet-after", "0.3") as board:
        arguments = ("--board", board.address, "--workspace", tmp_path / "workspace", "--new", "--json")
        first, second = (profagent("record", *arguments, "--backlog", "--until-finished") for _ in range(2))
    assert (first.code, first.document["complete"]) == (4, False)
    assert (second.code, second.document["complete"]) == (0, True)


def test_watch_tells_of_the_newest_segment_and_what_comes_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch, "profagent.watch.watch", "WatchView.board_each_s", 0.2)
    root = tmp_path / "root"
    names = ("npu.hw_utilization", "daemon.cpu")
    old, now = sweeps((START_US, 50), names=names), sweeps((START_US + 10, 12), names=names)
    metrics = spooled(root / METRICS, old, now, is_over=False)
    (metrics / "00000001.done").write_text(f"bytes:{len(old)}\n")
    with running("--root", root) as board, started("watch", "--board", board.address, "--json") as host:
        (line,) = host.out.until(is_event("board"))
        event = json.loads(line)
        assert (event["npu_utilization"], event["daemon_cpu"], event["temperature"]) == (12, 12, None)
        (ops := root / OPS).mkdir()
        (ops / "00000001").write_bytes(PIPES[0].read_bytes()[:1024])
        with (metrics / "00000002").open("ab") as file:
            file.write(f"s {START_US + 2_000_000_000_000} 0=33\n".encode())
        host.out.until(lambda line: '"count":4' in line)
        ended = host.interrupt()
    events = [json.loads(line) for line in ended.out.splitlines()]
    last = [each for each in events if each["event"] == "board"][-1]
    assert (last["npu_utilization"], last["daemon_cpu"]) == (33, 12)
    assert [each for each in events if each["event"] not in {"board", "summary"}] == []
    assert ended.code == 0, ended.err
