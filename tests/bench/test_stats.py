"""`stats` of a JOB of 2,000,000 aicore records, the whole command."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from profagentd.simulate.run import SimulationOptions
from tests.bench.measure import PROFAGENT, report, run, size_text, spread
from tests.daemon.simulated_job import write_job

if TYPE_CHECKING:
    from pathlib import Path

REPEATS = 5
LAYERS, INFERENCES = 100, 20_000
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
