"""Questions over 10,000,000 aicore records of one session, and files of 1,000,000: whole commands, in turns."""

from __future__ import annotations

import shutil
import sys
from contextlib import chdir
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.bench.checkouts import Checkout, in_turns, report_compared
from tests.bench.measure import CHECKOUT, MIB, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.bench.measure import Run

RECORDS = 10_000_000
QUESTIONS: dict[str, tuple[str, ...]] = {
    "stats": ("stats", "1"),
    "diff with itself": ("diff", "1", "1"),
    "report": ("report", "1", "-o"),  # and its file
}
FILES: dict[str, tuple[str, ...]] = {
    name: ("export", name, "1") for name in ("summary", "timeline", "parquet", "trace", "perfetto")
}
LARGE_FILES = {name: FILES[name] for name in ("parquet", "perfetto")}


@pytest.fixture(scope="module")
def workspaces(million_job: Path, scratch: Path, checkouts: Sequence[Checkout]) -> Iterator[Mapping[Checkout, Path]]:
    """Yield a workspace for each checkout, with a session of 1,000,000 records that it imported."""
    found = {checkout: scratch / f"questions-{checkout.name}" for checkout in checkouts}
    for checkout, workspace in found.items():
        checkout.profagent("import", "-dir", million_job, "--workspace", workspace)
    yield found
    for workspace in found.values():
        shutil.rmtree(workspace)


@pytest.fixture(scope="module")
def full_workspaces(workspaces: Mapping[Checkout, Path]) -> Mapping[Checkout, Path]:
    """Return the same workspaces; the session has 10,000,000 records from now on, in ten JOBs."""
    for workspace in workspaces.values():
        # In a process of its own: no command that is measured later begins with less memory than this one.
        with chdir(CHECKOUT):
            run(sys.executable, "-m", "tests.bench.prefill", workspace / "profagent.db", str(RECORDS))
    return workspaces


def test_files_of_a_million_records(workspaces: Mapping[Checkout, Path], root: Path) -> None:
    _report("1,000,000 records", workspaces, FILES, root)


def test_questions_over_ten_million_records(full_workspaces: Mapping[Checkout, Path], root: Path) -> None:
    _report("10,000,000 records", full_workspaces, QUESTIONS | LARGE_FILES, root)


def _report(of: str, workspaces: Mapping[Checkout, Path], commands: Mapping[str, tuple[str, ...]], root: Path) -> None:
    checkouts = [*workspaces]
    for name, words in commands.items():
        more = (root / "report.html",) if words[0] == "report" else ()
        runs = in_turns(checkouts, partial(_answered, workspaces=workspaces, words=(*words, *more)))
        figures: dict[str, Callable[[Run], float]] = {
            "wall clock, s": lambda each: each.wall_s,
            "processor time, s": lambda each: each.cpu_s,
            "peak RSS, MiB": lambda each: each.peak_bytes / MIB,
        }
        rows = {what: [[value(each) for each in of_one] for of_one in runs] for what, value in figures.items()}
        report_compared(f"{name} of {of}", checkouts, rows)


def _answered(checkout: Checkout, workspaces: Mapping[Checkout, Path], words: Sequence[str | Path]) -> Run:
    """Run a command; the files that it writes into the workspace go before the next one."""
    answered = checkout.profagent(*words, "--workspace", workspaces[checkout])
    shutil.rmtree(workspaces[checkout] / "exports", ignore_errors=True)
    return answered
