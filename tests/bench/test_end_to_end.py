"""Flat out, both sides on this machine: from files on the board's disk to rows that are committed, durably."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.captures import capture, finished_job
from tests.bench.measure import Child, report, size_text, spread
from tests.bench.programs import AICORE_ONLY
from tests.daemon.daemon_process import running

MODELS: list[tuple[str | Path, str]] = [
    (AICORE_ONLY, "2 files an inference"),
    ("yolov5s", "4 files an inference, with aicpu"),
]
LAYERS, INFERENCES, REPEATS = 100, 3000, 5


@pytest.mark.parametrize(("model", "files"), MODELS)
def test_from_file_to_committed_row(model: str | Path, files: str, root: Path) -> None:
    finished_job(root / "board", INFERENCES, layers=LAYERS, model=model)
    captures, daemon_s = [], []
    with running("--root", root / "board", "--log-level", "warning") as daemon:
        process = Child(daemon.process.pid)
        for number in range(REPEATS):
            workspace, before_s = root / f"workspace-{number}", process.cpu_s()
            captures.append(capture(daemon.address, workspace, LAYERS * INFERENCES))
            daemon_s.append(process.cpu_s() - before_s)
    report(
        f"end to end: {LAYERS * INFERENCES:,} aicore records in files of {LAYERS}, {files}",
        {
            "aicore records (target: 80 thousand/s)": spread([each.rate / 1000 for each in captures], "thousand/s"),
            "inferences": spread([each.rate / LAYERS for each in captures], "a second", 0),
            "processor time of record": spread([each.process.cpu_s for each in captures], "s"),
            "processor time of the daemon": spread(daemon_s, "s"),
            "RSS of record, peak": size_text(max(each.process.peak_bytes for each in captures)),
        },
    )
