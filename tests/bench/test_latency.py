"""From the write on the board's side to the line that `profagent watch --json` prints, on loopback."""

from __future__ import annotations

import asyncio
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from profagentd.simulate.options import SimulationOptions
from tests.bench.growing_job import GrowingJob
from tests.bench.measure import PROFAGENT, percentile, report, started
from tests.bench.probes import PrintedLines, until
from tests.daemon.daemon_process import running

LAYERS = 100


@pytest.mark.parametrize(("rate", "inferences"), [(10.0, 100), (100.0, 1000)])
async def test_latency_from_write_to_line(rate: float, inferences: int, root: Path) -> None:
    growing = GrowingJob(root, SimulationOptions(layers=LAYERS, rate=rate))
    with ExitStack() as stack:
        daemon = stack.enter_context(running("--root", root, "--log-level", "warning"))
        watch = stack.enter_context(
            started(*PROFAGENT, "watch", "--board", daemon.address, "--json", stdout=subprocess.PIPE)
        )
        printed = PrintedLines(watch)
        stack.enter_context(growing)
        await until(lambda: bool(printed.seen))
        first = min(printed.seen)
        await until(lambda: growing.inferences > first + inferences)
        await until(lambda: first + inferences in printed.seen)
        await asyncio.to_thread(growing.finish)
    begin = growing.written[first + 1]
    delays_ms = printed.delays_ms(growing.written, begin)[:inferences]
    figures = {f"p{percent}": f"{percentile(delays_ms, percent):.0f} ms" for percent in (50, 95, 99)}
    figures |= {"least, most": f"{min(delays_ms):.0f} ms, {max(delays_ms):.0f} ms", "lines": str(len(delays_ms))}
    report(f"write to printed line, {rate:g} inferences/s of {LAYERS} aicore records", figures)
