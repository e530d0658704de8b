"""Questions over 10,000,000 aicore records of one session, and files of 1,000,000: whole commands, in turns."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import chdir
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagent.ingest.local import OUTPUT_FOLDERS
from tests.bench.checkouts import Checkout, in_turns, report_compared
from tests.bench.measure import CHECKOUT, MIB, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.bench.measure import Run

RECORDS = 10_000_000
QUESTIONS: dict[str, tuple[str, ...]] = {
    "stats": ("stats", "1"),
    "diff with itself": ("diff", "1", "1"),
    "report": ("report", "1", "-o", "report.html"),
}
FILES: dict[str, tuple[str, ...]] = {name: ("export", name, "1") for name in ("parquet", "trace", "perfetto")}
# These two write a folder of the JOB itself.
FILES_OF_A_JOB: dict[str, tuple[str, ...]] = {name: ("export", name, "-dir") for name in ("summary", "timeline")}
LARGE_FILES = {name: FILES[name] for name in ("parquet", "perfetto")}


@dataclass(frozen=True, slots=True)
class Imported:
    """What one checkout imported: a JOB of 1,000,000 records with its own database, and a workspace with its session.

    `folder` is where commands run.
    """

    folder: Path
    job: Path

    @property
    def workspace(self) -> Path:
        """The workspace."""
        return self.folder / "workspace"


@pytest.fixture(scope="module")
def imports(million_job: Path, checkouts: Sequence[Checkout]) -> Iterator[Mapping[Checkout, Imported]]:
    """Yield what each checkout imported from the same files; its database has the schema of its own."""
    found: dict[Checkout, Imported] = {}
    with tempfile.TemporaryDirectory(prefix="questions-", dir=million_job.parent) as folder:
        for checkout in checkouts:
            job = Path(folder) / checkout.name / million_job.name
            shutil.copytree(million_job, job, copy_function=os.link, ignore=shutil.ignore_patterns(*OUTPUT_FOLDERS))
            found[checkout] = each = Imported(job.parent, job)
            checkout.profagent("import", "-dir", each.job)
            checkout.profagent("import", "-dir", each.job, "--workspace", each.workspace)
        yield found


@pytest.fixture(scope="module")
def full_imports(imports: Mapping[Checkout, Imported]) -> Mapping[Checkout, Imported]:
    """Return the same imports; the workspace's session has 10,000,000 records from now on, in ten JOBs."""
    for each in imports.values():
        # In a process of its own: no command that is measured later begins with more memory than this one has now.
        with chdir(CHECKOUT):
            run(sys.executable, "-m", "tests.bench.prefill", each.workspace / "profagent.db", str(RECORDS))
    return imports


def test_files_of_a_million_records(imports: Mapping[Checkout, Imported]) -> None:
    _report("1,000,000 records", imports, FILES_OF_A_JOB | FILES)


def test_questions_over_ten_million_records(full_imports: Mapping[Checkout, Imported]) -> None:
    _report("10,000,000 records", full_imports, QUESTIONS | LARGE_FILES)


def _report(of: str, imports: Mapping[Checkout, Imported], commands: Mapping[str, Sequence[str]]) -> None:
    checkouts = [*imports]
    for name, words in commands.items():
        runs = in_turns(checkouts, partial(_answered, imports=imports, words=words))
        figures: dict[str, Callable[[Run], float]] = {
            "wall clock, s": lambda each: each.wall_s,
            "processor time, s": lambda each: each.cpu_s,
            "peak RSS, MiB": lambda each: each.peak_bytes / MIB,
        }
        rows = {what: [[value(each) for each in of_one] for of_one in runs] for what, value in figures.items()}
        report_compared(f"{name} of {of}", checkouts, rows)


def _answered(checkout: Checkout, imports: Mapping[Checkout, Imported], words: Sequence[str]) -> Run:
    """Run a command; the files that it writes go before the next one."""
    found = imports[checkout]
    where = (found.job,) if words[-1] == "-dir" else ("--workspace", found.workspace)
    with chdir(found.folder):
        answered = checkout.profagent(*words, *where)
    for written in (found.workspace / "exports", *(found.job / name for name in FILES_OF_A_JOB)):
        shutil.rmtree(written, ignore_errors=True)
    return answered
