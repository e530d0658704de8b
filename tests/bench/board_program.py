"""The profiled program of a benchmark, in a process of its own, so that its cost is nobody else's.

`python board_program.py OPTIONS`, where OPTIONS is JSON: `root`, `model`, `layers`, `rate` (inferences a second) and
`backlog` (inferences before). It prints `ready`, runs inferences until its standard input is closed, unloads, and
prints JSON: when each inference was there, monotonic seconds by number.
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path
from random import SystemRandom
from typing import Any

from profagentd.simulate.npu import Npu
from profagentd.simulate.run import SimulationOptions


def run(options: dict[str, Any]) -> dict[int, float]:
    """Run until standard input is closed."""
    period_s = 1 / options["rate"]
    simulated = SimulationOptions(model=options["model"], layers=options["layers"], root=Path(options["root"]))
    npu = Npu(simulated, gaps=False, names=SystemRandom())
    now_us = npu.load(_wall_us() - round(options["backlog"] * period_s * 1e6))
    for _ in range(options["backlog"]):
        now_us = npu.infer(now_us)
    print("ready", flush=True)
    written: dict[int, float] = {}
    due = time.monotonic()
    while not _is_over(due - time.monotonic()):
        number = npu.inferences
        npu.infer(_wall_us())
        written[number] = time.monotonic()
        due += period_s
    npu.unload(_wall_us())
    return written


def _is_over(delay_s: float) -> bool:
    return bool(select.select([sys.stdin], [], [], max(0.0, delay_s))[0])


def _wall_us() -> int:
    return time.time_ns() // 1000


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))), flush=True)
