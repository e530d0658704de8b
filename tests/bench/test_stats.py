"""`stats` of a JOB of 2,000,000 aicore records, the whole command; and its records as Arrow, from Python."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from profagentd.simulate.run import SimulationOptions
from tests.bench.measure import PROFAGENT, report, run, size_text, spread
from tests.daemon.simulated_job import write_job

if TYPE_CHECKING:
    from pathlib import Path

REPEATS = 5
LAYERS, INFERENCES = 100, 20_000
COLUMNS = ("layer_name,duration_us", "layer_name,start_us,ticks,duration_us", "")
READ = """
import sys, pyarrow, profagent
session = profagent.open(sys.argv[1]).session()
records = session.records(columns=list(filter(None, sys.argv[2].split(","))))
assert sum(map(len, pyarrow.RecordBatchReader.from_stream(records))) == int(sys.argv[3])
"""
BY = ("layer", "type", "model", "segment", "aicpu", "api")


@pytest.fixture(scope="module")
def large_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished JOB with its database."""
    options = SimulationOptions(layers=LAYERS, rate=100.0)
    job = write_job(tmp_path_factory.mktemp("stats"), options, INFERENCES, gaps=False)
    run(*PROFAGENT, "import", "-dir", job)
    return job


@pytest.mark.parametrize("by", BY)
def test_stats_of_two_million_records(by: str, large_job: Path) -> None:
    runs = [run(*PROFAGENT, "stats", large_job, "--by", by) for _ in range(REPEATS)]
    report(
        f"stats --by {by}: {LAYERS * INFERENCES:,} aicore records, load {os.getloadavg()[0]:.1f}",
        {
            "wall clock": spread([each.wall_s for each in runs], "s", 2),
            "processor time": spread([each.cpu_s for each in runs], "s", 2),
            "peak RSS": size_text(max(each.peak_bytes for each in runs)),
        },
    )


@pytest.mark.parametrize("columns", COLUMNS)
def test_two_million_records_as_arrow(columns: str, large_job: Path) -> None:
    """By batches, without what it takes to open the session."""
    words = (sys.executable, "-c", READ, large_job, columns)
    opened = run(
        sys.executable, "-c", "import sys, pyarrow, profagent; profagent.open(sys.argv[1]).session()", large_job
    )
    runs = [run(*words, str(LAYERS * INFERENCES)) for _ in range(REPEATS)]
    rates = [LAYERS * INFERENCES / 1e6 / (each.cpu_s - opened.cpu_s) for each in runs]
    report(
        f"records as Arrow, {columns or 'all columns'}: {LAYERS * INFERENCES:,}, load {os.getloadavg()[0]:.1f}",
        {
            "records for a second of processor time": spread(rates, "M", 2),
            "wall clock": spread([each.wall_s - opened.wall_s for each in runs], "s", 2),
            "peak RSS": size_text(max(each.peak_bytes for each in runs)),
        },
    )
