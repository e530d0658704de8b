"""What the daemon costs the board at 100 inferences/s of 100 records, without a client and with one record."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from pathlib import Path

from profagentd.simulate.options import SimulationOptions
from tests.bench.growing_job import GrowingJob
from tests.bench.measure import PROFAGENT, Child, report, size_text, started
from tests.daemon.daemon_process import running

LAYERS, RATE = 100, 100.0
MEASURED_S = 20.0
# Until a client has opened its stream and has what was there before.
SETTLING_S = 4.0


async def test_cost_of_the_daemon(root: Path) -> None:
    (root / "board").mkdir()
    growing = GrowingJob(root / "board", SimulationOptions(layers=LAYERS, rate=RATE))
    with ExitStack() as stack:
        daemon = stack.enter_context(running("--root", root / "board", "--log-level", "warning"))
        process = Child(daemon.process.pid)
        figures = {"RSS without a client": size_text(process.rss_bytes())}
        stack.enter_context(growing)
        await asyncio.sleep(SETTLING_S)
        figures["without a client"] = await _share(process, growing)
        command = (*PROFAGENT, "record", "--board", daemon.address, "--workspace", root / "workspace")
        record = Child(stack.enter_context(started(*command)).pid)
        await asyncio.sleep(SETTLING_S)
        figures["with one record"], figures["the record itself"] = await asyncio.gather(
            _share(process, growing), _share(record, growing)
        )
        figures["RSS of the daemon, peak"] = size_text(process.peak_bytes())
        figures["RSS of the record, peak"] = size_text(record.peak_bytes())
    report(f"daemon at {RATE:g} inferences/s of {LAYERS} aicore records", figures)


async def _share(process: Child, growing: GrowingJob) -> str:
    """Processor time as a share of one core, and the rate that was kept meanwhile."""
    begin, cpu_s, inferences = time.monotonic(), process.cpu_s(), growing.inferences
    await asyncio.sleep(MEASURED_S)
    took_s = time.monotonic() - begin
    rate = (growing.inferences - inferences) / took_s
    return f"{(process.cpu_s() - cpu_s) / took_s:.1%} of a core ({rate:.0f} inferences/s)"
