"""Finished JOBs, a `record` of them, and how fast it was, by what it left: the mirror's times and its session's end."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.store.database import RECORDS_PER_PART
from profagentd.simulate.run import SimulationOptions
from tests.bench.checkouts import THIS, Checkout
from tests.bench.programs import AICORE_ONLY
from tests.daemon.simulated_job import write_job

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.measure import Run

ENDED_S_AGO = 60.0
RECORD_ALL = ("--backlog", "--until-finished", "--new")
# CROSS JOIN keeps SQLite from scanning all records for each part.
_RECORDS = f"""
    SELECT count(*) FROM session CROSS JOIN part USING (session)
    CROSS JOIN aicore ON record BETWEEN part * {RECORDS_PER_PART} AND part * {RECORDS_PER_PART} + {RECORDS_PER_PART - 1}
    WHERE started_us > ?
"""


@dataclass(frozen=True, slots=True)
class Shape:
    """A finished JOB of 300,000 aicore records, or with `files` 4 as many aicpu records as its model has."""

    files: int
    layers: int

    @property
    def records(self) -> int:
        """How many aicore records it has."""
        return self.layers * self.inferences

    @property
    def inferences(self) -> int:
        """How many inferences it has."""
        return 300_000 // self.layers

    @property
    def title(self) -> str:
        """Its name in a table."""
        return (
            f"{self.layers:,} records a file, {self.files} files an inference: {self.files * self.inferences:,} files"
        )


SHAPES = (Shape(2, 25), Shape(2, 100), Shape(4, 100), Shape(2, 1_000))


class ShapedJobs:
    """JOBs of these shapes, each made when it is first asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._jobs: dict[Shape, Path] = {}

    def of(self, shape: Shape) -> Path:
        """Return the JOB's directory, the only one in its parent."""
        if shape not in self._jobs:
            model = AICORE_ONLY if shape.files == 2 else "yolov5s"
            root = self._root / f"{shape.files}x{shape.layers}"
            self._jobs[shape] = finished_job(root, shape.inferences, layers=shape.layers, model=model)
        return self._jobs[shape]


@dataclass(frozen=True, slots=True)
class Capture:
    """One flat-out capture: aicore records, and seconds from the first byte that was mirrored to the last commit."""

    records: int
    took_s: float
    process: Run

    @property
    def rate(self) -> float:
        """Aicore records a second."""
        return self.records / self.took_s


def finished_job(root: Path, inferences: int, *, layers: int, model: str | Path, seed: int = 0) -> Path:
    """A JOB that is over, of so many inferences of `layers` aicore records; its name follows from the seed."""
    root.mkdir(parents=True, exist_ok=True)
    options = SimulationOptions(model=str(model), layers=layers, rate=100.0, seed=seed, root=root)
    job = write_job(root, options, inferences, gaps=False)
    # It ended some time ago: no daemon waits to see whether it goes on.
    at = time.time() - ENDED_S_AGO
    for path in (*job.rglob("*"), job):
        os.utime(path, (at, at))
    return job


def capture(address: str, workspace: Path, records: int, *more: str, by: Checkout = THIS) -> Capture:
    """Record everything that a board holds, durably, which must be so many aicore records; `more` are options."""
    begun_s = time.time()
    process = by.profagent("record", "--board", address, *RECORD_ALL, "--workspace", workspace, *more)
    with closing(sqlite3.connect(workspace / "profagent.db")) as connection:
        (found,) = connection.execute(_RECORDS, (begun_s * 1e6,)).fetchone()
        (ended_us,) = connection.execute("SELECT max(ended_us) FROM session").fetchone()
    assert found == records, f"{found} records came"
    mirrored = (path.stat().st_mtime for path in workspace.rglob("data/*"))
    return Capture(records, ended_us / 1e6 - min(at for at in mirrored if at > begun_s), process)
