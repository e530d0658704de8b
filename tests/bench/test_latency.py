"""From a write on the board to the committed row of `record`, and to the line that `watch --json` prints; loopback."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.bench.commits import committed_inferences, delays_ms
from tests.bench.measure import PROFAGENT, latency_figures, report, started
from tests.bench.probes import PrintedLines
from tests.bench.programs import program
from tests.daemon.daemon_process import running

if TYPE_CHECKING:
    from pathlib import Path

LAYERS = 100
MEASURED_S = 15.0


@pytest.mark.parametrize("rate", [10.0, 100.0])
async def test_latency_from_write_to_row_and_line(rate: float, root: Path) -> None:
    files, workspace = root / "board", root / "workspace"
    files.mkdir()
    with ExitStack() as stack:
        daemon = stack.enter_context(running("--root", files, "--log-level", "warning"))
        with (
            committed_inferences(workspace / "profagent.db") as seen,
            started(*PROFAGENT, "record", "--board", daemon.address, "--workspace", workspace),
            program(files, rate=rate, layers=LAYERS) as profiled,
        ):
            to_row = await delays_ms(profiled, seen, MEASURED_S)
        watch = started(*PROFAGENT, "watch", "--board", daemon.address, "--json", stdout=subprocess.PIPE)
        lines = PrintedLines(stack.enter_context(watch))
        with program(files, rate=rate, layers=LAYERS) as profiled:
            to_line = await delays_ms(profiled, lines.seen, MEASURED_S)
    figures = latency_figures("to the committed row (target p95: 250 ms)", to_row)
    figures |= latency_figures("to the printed line (target p95: 90 ms)", to_line)
    report(f"from a write on the board, {rate * LAYERS:,.0f} records/s ({rate:g} inferences/s)", figures)
