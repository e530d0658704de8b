"""How well a board sampled: from the acl.json, or inferred, live as on import, wherever it is shown."""

from __future__ import annotations

import json
import os
import shutil
import time
from itertools import pairwise
from pathlib import Path

from tests.integration.board import AGE_S, eventually, running, simulated
from tests.integration.host import profagent, recorded, started
from tests.integration.rows import query, rows_of

# Each tenth sample is being written while 13 inferences run, at an interval of 5: the next is 3 late, one never comes.
INTERVAL, BUSY = 5, 13
INFERENCES = 1 + 9 * 5 + 13 + 9 * 5 + 13 + 4
SAMPLED, DUE = 21, 23
FIGURES = {"sampled": SAMPLED, "due": DUE, "late": 2, "never_came": 2, "interval": INTERVAL, "why": None, "thinned": 0}
NOTES = [
    ("sample-late", "yolov5s.0: the sample at picture 58 came 3 inferences late", 1),
    ("sample-never-came", "yolov5s.0: due at picture 50, never came", 1),
    ("sample-late", "yolov5s.0: the sample at picture 116 came 3 inferences late", 1),
    ("sample-never-came", "yolov5s.0: due at picture 108, never came", 1),
]
_SAMPLES = "SELECT current_pic_count FROM sample WHERE session IS NOT NULL ORDER BY 1"
_NOTES = "SELECT reason, detail, count FROM ledger_entry WHERE origin = 'sampling' ORDER BY entry"


def acl_json(root: Path, interval: int = INTERVAL) -> Path:
    """The acl.json of a program that puts its JOBs into `root`."""
    file = root / "acl.json"
    profiler = {"switch": "on", "output": str(root.resolve()), "interval": str(interval), "acl_api": "on"}
    file.write_text(json.dumps({"profiler": profiler}), "utf-8")
    before_the_job = time.time() - 2 * AGE_S
    os.utime(file, (before_the_job, before_the_job))
    return file


def job_of(root: Path) -> Path:
    return simulated(root, INFERENCES, interval=INTERVAL, busy=BUSY, layers=3)


def test_a_capture_and_an_import_with_the_acl_json_agree(root: Path, tmp_path: Path) -> None:
    file, job = acl_json(root), job_of(root)
    summary = recorded(root, tmp_path / "workspace")
    assert summary["sampling"] == {
        **FIGURES,
        "interval_from": "acl.json",
        "keeping": None,
        "kept": SAMPLED,
        "passed_over": 0,
    }
    database = tmp_path / "workspace/profagent.db"
    assert query(database, _NOTES) == NOTES
    assert query(database, "SELECT acl_json, sampled, due FROM sampling_by_model") == [(str(file.resolve()), 21, 23)]
    gaps = "SELECT pic_count_before, current_pic_count, inferences, late_by, never_came FROM sample_gaps"
    assert query(database, gaps) == [(45, 58, 13, 3, 1), (103, 116, 13, 3, 1)]
    copy = Path(shutil.copytree(job, tmp_path / "copy" / job.name))
    imported = profagent("import", "-dir", copy, "--acl-json", file, "--json")
    assert imported.document["sampling"] == summary["sampling"]
    assert rows_of(copy / "sqlite/profagent.db", job.name) == rows_of(database, job.name)
    other = tmp_path / "other"
    assert profagent("import", "-dir", copy, "--acl-json", file, "--workspace", other).code == 0
    assert rows_of(other / "profagent.db", job.name) == rows_of(database, job.name)


def test_without_an_acl_json_the_interval_is_inferred_and_marked_everywhere(root: Path, tmp_path: Path) -> None:
    job_of(root)
    workspace = tmp_path / "workspace"
    summary = recorded(root, workspace)
    assert summary["sampling"] == {
        **FIGURES,
        "interval_from": "inferred",
        "keeping": None,
        "kept": SAMPLED,
        "passed_over": 0,
    }
    line = "captured 21 of 23 due (interval 5, inferred); 2 late"
    assert line in profagent("show", "1", "--workspace", workspace).out
    assert "21 of 23 due" in profagent("sessions", "--workspace", workspace).out
    listed = profagent("sessions", "--workspace", workspace, "--json").document
    assert (listed[0]["sampled"], listed[0]["due"], listed[0]["passed_over"]) == (21, 23, 0)
    for kind in ("timeline", "summary"):
        assert profagent("export", kind, "1", "--workspace", workspace).code == 0
    documents = [json.loads(file.read_text()) for file in workspace.rglob("metadata.json")]
    assert [document["sampling"]["due"] for document in documents] == [23, 23]
    (trace,) = workspace.rglob("task_time_*.json")
    assert json.loads(trace.read_text())["metadata"]["sampling"]["never_came"] == 2


def test_captures_that_are_stopped_and_begun_again_divide_the_job_and_none_changes_later(
    root: Path, workspace: Path
) -> None:
    def figures() -> list[tuple[int, int]]:
        listed = profagent("sessions", "--workspace", workspace, "--json").document
        return [(each["sampling"]["sampled"], each["sampling"]["due"]) for each in listed]

    options = ("--interval", INTERVAL, "--busy", BUSY, "--rate", "400", "--layers", "2")
    known: list[tuple[int, int]] = []
    with running("--root", root, "--simulate", *map(str, options)) as board:
        for number in (1, 2, 3):
            arguments = ("--board", board.address, "--workspace", workspace, "--every", "5")
            assert profagent("record", *arguments, "--inferences", str(number + 2), "--new").code == 0
            assert figures()[:-1] == known
            known = figures()
    counts = [count for (count,) in query(workspace / "profagent.db", _SAMPLES)]
    assert sum(sampled for sampled, _ in known) == len(counts)
    assert sum(due for _, due in known) == 1 + sum((after - before) // INTERVAL for before, after in pairwise(counts))
    assert sum(due for _, due in known) > len(counts) > sum(1 for _ in known)


def test_watching_tells_what_was_due_live_and_at_the_end(root: Path) -> None:
    acl_json(root)
    options = ("--interval", INTERVAL, "--busy", BUSY, "--rate", "200", "--layers", "3")
    with (
        running("--root", root, "--simulate", *map(str, options)) as board,
        started("watch", "--board", board.address, "--from-start", "--json") as host,
    ):
        assert eventually(lambda: any((event["due"] or 0) >= DUE for event in host.events("inference")))
        events = host.events("inference")
        assert any(event["sampled"] < event["due"] for event in events if event["due"] is not None)
        host.interrupt()
        (summary,) = host.events("summary")
    sampling = summary["sampling"]
    assert (sampling["interval"], sampling["interval_from"]) == (INTERVAL, "acl.json")
    assert sampling["due"] == sampling["sampled"] + sampling["never_came"]
    assert sampling["never_came"] >= 1
