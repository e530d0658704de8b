"""Finished JOBs, a `record` of them, and how fast it was, by what it left: the mirror's times and its session's end."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from profagent.store.database import CACHE_KIB, RECORDS_PER_PART
from profagentd.simulate.run import SimulationOptions
from tests.bench.measure import CHECKOUT, PROFAGENT, Run, environment, run
from tests.daemon.simulated_job import write_job

ENDED_S_AGO = 60.0
RECORD_ALL = ("--backlog", "--until-finished", "--new")
ROWS_PER_COMMIT = 10_000
# CROSS JOIN keeps SQLite from scanning all records for each part.
_RECORDS = f"""
    SELECT count(*) FROM session CROSS JOIN part USING (session)
    CROSS JOIN aicore ON record BETWEEN part * {RECORDS_PER_PART} AND part * {RECORDS_PER_PART} + {RECORDS_PER_PART - 1}
    WHERE started_us > ?
"""


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


def capture(address: str, workspace: Path, records: int) -> Capture:
    """Record everything that a board holds, durably, which must be so many aicore records."""
    begun_s = time.time()
    process = run(*PROFAGENT, "record", "--board", address, *RECORD_ALL, "--workspace", workspace)
    with closing(sqlite3.connect(workspace / "profagent.db")) as connection:
        (found,) = connection.execute(_RECORDS, (begun_s * 1e6,)).fetchone()
        (ended_us,) = connection.execute("SELECT max(ended_us) FROM session").fetchone()
    assert found == records, f"{found} records came"
    mirrored = (path.stat().st_mtime for path in workspace.rglob("data/*"))
    return Capture(records, ended_us / 1e6 - min(at for at in mirrored if at > begun_s), process)


def own_rate(recorded: Path, scratch: Path) -> float:
    """Rows a second that SQLite itself takes of the same aicore rows, in the same schema and as durably.

    In a process of its own: the rows take much memory, which every process that is started here would begin with.
    """
    command = (sys.executable, "-m", "tests.bench.captures", recorded, scratch)
    return float(subprocess.check_output(command, cwd=CHECKOUT, env=environment()))


def _own_rate(recorded: Path, scratch: Path) -> float:
    with closing(sqlite3.connect(recorded)) as connection:
        rows = connection.execute("SELECT * FROM aicore").fetchall()
    statement = f"INSERT INTO aicore VALUES (?{', ?' * (len(rows[0]) - 1)})"
    shutil.copyfile(recorded, scratch)
    with closing(sqlite3.connect(scratch, isolation_level=None)) as connection:
        for pragma in ("journal_mode = WAL", "synchronous = FULL", f"cache_size = -{CACHE_KIB}"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("DELETE FROM aicore")
        begin = time.monotonic()
        for start in range(0, len(rows), ROWS_PER_COMMIT):
            connection.execute("BEGIN")
            connection.executemany(statement, rows[start : start + ROWS_PER_COMMIT])
            connection.execute("COMMIT")
        return len(rows) / (time.monotonic() - begin)


if __name__ == "__main__":
    print(_own_rate(Path(sys.argv[1]), Path(sys.argv[2])))
