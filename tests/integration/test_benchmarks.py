"""The benchmarks still run: each once, with next to nothing to do. What they print is nobody's measure here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
BENCHMARKS = sorted((CHECKOUT / "tests/bench").glob("test_*.py"))
# It does nothing without py-spy, which only `make bench` has.
NEEDS_PY_SPY = "test_profile.py"
MODULES = [path for path in BENCHMARKS if path.name != NEEDS_PY_SPY] + [CHECKOUT / "tests/bench/growth_of_rows.py"]


@pytest.mark.timeout(300)
def test_every_benchmark_runs() -> None:
    environment = {**os.environ, "PROFAGENT_BENCH_SMOKE": "1"}
    options = ["--quiet", "--timeout=0", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *MODULES],
        check=False,
        cwd=CHECKOUT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
