"""How fast rows come into a database that holds 1 M, 10 M and 50 M of them; `make bench-growth`. Takes 9 GB of disk."""

from __future__ import annotations

import asyncio
import shutil
import statistics
from typing import TYPE_CHECKING

from tests.bench.captures import capture, finished_job
from tests.bench.commits import committed_inferences, delays_ms
from tests.bench.measure import PROFAGENT, percentile, report_table, size_text, spread, started
from tests.bench.prefill import prefill
from tests.bench.programs import AICORE_ONLY, program
from tests.daemon.daemon_process import running

if TYPE_CHECKING:
    from pathlib import Path

LAYERS, INFERENCES, REPEATS = 100, 1000, 3
ROWS = [0, 1_000_000, 10_000_000, 50_000_000]
BYTES_A_ROW = 180
RATE, MEASURED_S = 100.0, 8.0
COLUMNS = [
    "rows stored",
    "database",
    "flat out, thousand records/s",
    "of that with none",
    f"latency at {RATE * LAYERS:,.0f} records/s, p50, p95, p99",
]


async def test_growth_of_rows(root: Path) -> None:
    free_bytes = shutil.disk_usage(root).free
    assert free_bytes > max(ROWS) * BYTES_A_ROW, f"needs {size_text(max(ROWS) * BYTES_A_ROW)} of free space in TMPDIR"
    workspace, lines, first = root / "workspace", [], 0.0
    database = workspace / "profagent.db"
    for rows in ROWS:
        if rows:
            prefill(database, rows)
        rates = [_flat_out(root / f"{rows}-{repeat}", workspace, rows + repeat) for repeat in range(REPEATS)]
        first = first or statistics.median(rates)
        delays = await _live(root / f"live-{rows}", workspace)
        percents = ", ".join(f"{percentile(delays, percent):.0f}" for percent in (50, 95, 99))
        lines.append(
            [
                f"{rows:,}",
                size_text(sum(file.stat().st_size for file in workspace.glob("profagent.db*"))),
                spread([rate / 1000 for rate in rates]),
                f"{statistics.median(rates) / first:.0%}",
                f"{percents} ms (n={len(delays)})",
            ]
        )
        # Seen at once, not only when the largest size is done.
        report_table("growth: rows stored before (rate may fall by 20 % at most)", COLUMNS, lines)


def _flat_out(root: Path, workspace: Path, seed: int) -> float:
    """Records a second of one more finished JOB into the workspace."""
    finished_job(root, INFERENCES, layers=LAYERS, model=AICORE_ONLY, seed=seed)
    with running("--root", root, "--log-level", "warning") as daemon:
        return capture(daemon.address, workspace, records=INFERENCES * LAYERS).rate


async def _live(root: Path, workspace: Path) -> list[float]:
    """Milliseconds from writes to committed rows."""
    await asyncio.to_thread(root.mkdir)
    with (
        running("--root", root, "--log-level", "warning") as daemon,
        committed_inferences(workspace / "profagent.db") as seen,
        started(*PROFAGENT, "record", "--board", daemon.address, "--workspace", workspace),
        program(root, rate=RATE, layers=LAYERS) as profiled,
    ):
        return await delays_ms(profiled, seen, MEASURED_S)
