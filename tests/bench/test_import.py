"""Import of finished JOBs: files × records a file, into a workspace, from a cold page cache; SQLite's time beside."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.captures import SHAPES, ShapedJobs
from tests.bench.checkouts import TURNS, Checkout, in_turns, report_compared
from tests.bench.conftest import INFERENCES, LAYERS
from tests.bench.measure import MIB, Run, report

if TYPE_CHECKING:
    from collections.abc import Sequence

SQLITE_RATE = Path(__file__).with_name("sqlite_rate.py")


def test_import_by_records_a_file(shaped_jobs: ShapedJobs, checkouts: Sequence[Checkout]) -> None:
    rows = {}
    for shape in SHAPES:
        runs = in_turns(checkouts, partial(imported, job=shaped_jobs.of(shape)))
        rows[shape.title] = [[each.cpu_s for each in of_one] for of_one in runs]
    report_compared("import -dir: processor time, s", checkouts, rows)


def test_import_of_a_million_records(million_job: Path, memory: Path, checkouts: Sequence[Checkout]) -> None:
    warm = in_turns(checkouts, partial(imported, job=million_job))
    own_s, count = sqlite_rate(million_job, memory)
    workspace = in_turns(checkouts, partial(imported, job=million_job, workspace=memory / "workspace"))
    cold = in_turns(checkouts, partial(imported, job=million_job, is_cold=True))
    files = sum(1 for _ in (million_job / "data").iterdir())
    report_compared(
        f"import: {LAYERS * INFERENCES:,} aicore records, {files:,} files in all",
        checkouts,
        {
            "processor time, s": [[each.cpu_s for each in of_one] for of_one in warm],
            "wall clock, s": [[each.wall_s for each in of_one] for of_one in warm],
            "wall clock from a cold page cache, s": [[each.wall_s for each in of_one] for of_one in cold],
            "cold against warm": [[_wall_s(one) / _wall_s(other)] for one, other in zip(cold, warm, strict=True)],
            "peak RSS, MiB": [[each.peak_bytes / MIB for each in of_one] for of_one in warm],
            "into a workspace in memory: processor time, s": [[each.cpu_s for each in of_one] for of_one in workspace],
        },
    )
    report("SQLite's own processor time for these rows", {f"{count:,} rows of all tables": f"{own_s:.2f} s"})


def imported(checkout: Checkout, job: Path, workspace: Path | None = None, *, is_cold: bool = False) -> Run:
    """Import a JOB, into a new database."""
    for before in (job / "sqlite", workspace):
        if before is not None:
            shutil.rmtree(before, ignore_errors=True)
    if is_cold:
        forget(job)
    return checkout.profagent("import", "-dir", job, *(("--workspace", workspace) if workspace else ()))


def forget(folder: Path) -> None:
    """Have the kernel forget what files hold; their names and sizes it may still know."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def sqlite_rate(job: Path, folder: Path) -> tuple[float, int]:
    """Return seconds of processor time, the median of some runs, and rows."""
    command = (sys.executable, SQLITE_RATE, job / "sqlite" / "profagent.db", folder / "rows.db")
    took, count = [], "0"
    for _ in range(TURNS):
        (folder / "rows.db").unlink(missing_ok=True)
        took_s, count = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
        took.append(float(took_s))
    return statistics.median(took), int(count)


def _wall_s(runs: Sequence[Run]) -> float:
    return statistics.median(each.wall_s for each in runs)
