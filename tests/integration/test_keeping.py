"""What `record` keeps on purpose, and what it passes over: the rows of an import, less those inferences."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from profagent.formats.names import parse_log_name
from tests.integration.board import GrowingJob, content, eventually, mirrored, running, simulated
from tests.integration.host import profagent, recorded, started
from tests.integration.rows import Rows, imported_rows, link_ledger, query, rows_of, so_far

INFERENCES = 40
SCHEDULE = "skip_first=4,wait=3,warmup=1,active=2,repeat=3"
SCHEDULED = {8, 9, 14, 15, 20, 21}
LOGS = "SELECT count(*) FROM log"
# Where the views have it, without session and board.
PIC_COUNT = 7


def only(rows: Rows, kept: Callable[[int], bool]) -> Rows:
    """The rows of an import, of these picture counts and of the calls, which are kept whole."""

    def is_kept(view: str, row: tuple[Any, ...]) -> bool:
        if view in ("op_records", "aicpu_records", "inferences"):
            return kept(row[PIC_COUNT])
        name = parse_log_name(row[0]) if view == "ledger" and row[0] is not None else None
        return name is None or name.current_pic_count is None or kept(name.current_pic_count)

    return {view: [row for row in found if is_kept(view, row)] for view, found in rows.items()}


@pytest.mark.parametrize(
    ("option", "kept", "text"),
    [
        (f"--schedule={SCHEDULE}", SCHEDULED, f"schedule {SCHEDULE}"),
        ("--every=7", {0, 7, 14, 21, 28, 35}, "every 7"),
    ],
)
def test_only_chosen_inferences_have_rows_and_those_are_an_imports(
    root: Path, workspace: Path, tmp_path: Path, option: str, kept: set[int], text: str
) -> None:
    job = simulated(root, INFERENCES, layers=5)
    summary = recorded(root, workspace, option)
    database = workspace / "profagent.db"
    assert rows_of(database, job.name) == only(imported_rows(job, tmp_path / "copy"), kept.__contains__)
    sampling = summary["sampling"]
    assert (sampling["sampled"], sampling["due"], sampling["keeping"]) == (INFERENCES, INFERENCES, text)
    assert (sampling["kept"], sampling["passed_over"]) == (len(kept), INFERENCES - len(kept))
    assert (summary["complete"], summary["ledger"]["loss"]) == (True, {})
    assert mirrored(workspace, job.name) == content(job)
    assert query(database, "SELECT count(*) FROM log WHERE complete = 0") == [(0,)]
    passed_over = query(database, "SELECT count(DISTINCT substr(shown_path, -2)) FROM log WHERE NOT kept")
    assert passed_over > [(0,)]
    line = f"kept {len(kept)} of {INFERENCES} inferences ({text})"
    assert line in profagent("sessions", "--workspace", workspace).out
    assert line in profagent("show", "1", "--workspace", workspace).out
    assert profagent("export", "summary", "1", "--workspace", workspace).code == 0
    (metadata,) = workspace.rglob("metadata.json")
    assert json.loads(metadata.read_text())["sampling"] == sampling


def test_a_replay_tells_what_was_passed_over_as_sampled(root: Path, workspace: Path) -> None:
    simulated(root, INFERENCES, layers=2)
    summary = recorded(root, workspace, "--every=7")
    lines = profagent("watch", "last", "--workspace", workspace, "--speed", "1000", "--json").out.splitlines()
    *events, told = [event for line in lines if (event := json.loads(line))["event"] in {"inference", "summary"}]
    assert [(event["sampled"], event["due"]) for event in events] == [(1 + 7 * n, 1 + 7 * n) for n in range(6)]
    assert told["sampling"] == summary["sampling"]


def test_steps_are_samples_where_the_interval_is_known(root: Path, workspace: Path) -> None:
    profiler = {"switch": "on", "output": str(root.resolve()), "interval": "5"}
    (root / "acl.json").write_text(json.dumps({"profiler": profiler}), "utf-8")
    simulated(root, INFERENCES, layers=5, interval=5)
    assert recorded(root, workspace, "--every", "3")["sampling"]["kept"] == 3
    counts = query(workspace / "profagent.db", "SELECT current_pic_count FROM inferences ORDER BY 1")
    assert counts == [(0,), (15,), (30,)]


def test_logs_that_were_passed_over_are_not_fetched_again_and_nothing_is_said_of_them(
    root: Path, workspace: Path
) -> None:
    job = simulated(root, 20, layers=5)
    first = recorded(root, workspace, "--every=3")
    dumped = rows_of(workspace / "profagent.db", job.name)
    files = mirrored(workspace, job.name)
    again = recorded(root, workspace, "--every=3", "--new")
    assert mirrored(workspace, job.name) == files
    assert rows_of(workspace / "profagent.db", job.name) == dumped
    assert link_ledger(workspace / "profagent.db", job.name) == []
    earlier = [{"job": job.name, "session": 1, "inferences": first["sampling"]["kept"]}]
    for later in (again, recorded(root, workspace, "--every=3", "--new")):
        assert (later["earlier"], later["bytes"], later["sampling"]["sampled"]) == (earlier, 0, 0)
        assert later["simulated"]
    # One that keeps everything finds them passed over by the session before.
    other = recorded(root, workspace, "--new")
    assert mirrored(workspace, job.name) == files
    assert other["earlier"] == earlier


def test_a_recording_that_was_killed_goes_on_with_its_grid(root: Path, workspace: Path, tmp_path: Path) -> None:
    source = simulated(tmp_path / "source", INFERENCES, layers=5)
    job = GrowingJob(source, root, 5)
    names = sorted(job.paths("data/*") + job.paths("data/*.done"), key=lambda path: (_count(path), path))
    job.write("info.json.0")
    job.write("simulated")
    arguments = ("--workspace", workspace, f"--schedule={SCHEDULE}", "--backlog", "--json")
    database, third = workspace / "profagent.db", len(names) // 3
    with running("--root", root, "--quiet-after", "1") as board:
        for part, seen in ((0, third), (1, 2 * third)):
            with started("record", "--board", board.address, *arguments) as host:
                for path in names[part * third : seen]:
                    job.write(path)
                assert eventually(lambda wanted=seen: so_far(database, LOGS) >= [(wanted,)])  # type: ignore[misc]
                host.process.kill()
                host.ended()
        for path in names[2 * third :]:
            job.write(path)
        ended = profagent("record", "--board", board.address, *arguments, "--until-finished")
    assert ended.code == 0, ended.err
    summary = ended.document
    expected = only(imported_rows(source, tmp_path / "copy"), SCHEDULED.__contains__)
    assert rows_of(database, source.name) == expected
    assert (summary["session"], summary["sampling"]["kept"]) == (1, len(SCHEDULED))
    assert mirrored(workspace, source.name) == content(source)


def test_logs_that_are_passed_over_count_as_delivered_on_the_board(root: Path, workspace: Path, tmp_path: Path) -> None:
    job = simulated(root, 20, layers=5)
    expected = only(imported_rows(job, tmp_path / "copy"), lambda count: count % 3 == 0)
    retain = ("--retain", "delivered", "--retain-for", "lab", "--state", tmp_path / "state")
    arguments: tuple[str | Path, ...] = ("--workspace", workspace, "--backlog", "--consumer", "lab")
    with (
        running("--root", root, "--quiet-after", "1", *retain) as board,
        started("record", "--board", board.address, *arguments, "--every", "3") as host,
    ):
        # Names only: files go while they are listed.
        assert eventually(lambda: not any("aicore." in path.name for path in job.glob("data/*")))
        host.interrupt()
    database = workspace / "profagent.db"
    found = rows_of(database, job.name)
    for view in ("inferences", "op_records", "api_records"):
        assert found[view] == expected[view]
    assert query(database, "SELECT losses, sampled, passed_over FROM sessions") == [(0, 20, 13)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--schedule", "wait=1"), "active of at least 1, must be given"),
        (("--schedule", "wait=1,active=1", "--every", "2"), "all choose inferences"),
        (("--every", "0"), "0 is not in the range"),
    ],
)
def test_a_choice_without_a_clear_meaning_is_refused(workspace: Path, arguments: tuple[str, ...], message: str) -> None:
    ended = profagent("record", "--board", "127.0.0.1:1", "--workspace", workspace, *arguments)
    assert (ended.code, message in ended.err) == (2, True), ended.err
    assert not workspace.exists()


def _count(path: str) -> int:
    name = parse_log_name(path)
    return -1 if name is None or name.current_pic_count is None else name.current_pic_count
