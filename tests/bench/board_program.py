"""The profiled program of a benchmark, in a process of its own, so that its cost is nobody else's.

`python board_program.py OPTIONS`, where OPTIONS is JSON: `roots`, `model`, `layers`, `rate` (inferences a second) and
`backlog` (inferences before), each of a root: a JOB in each, whose inferences take turns. It prints `ready`, runs
inferences until its standard input is closed, unloads, and prints JSON: when each inference below the first root was
there, monotonic seconds by number.
"""

from __future__ import annotations

import itertools
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
    model, layers, rate, backlog = (options[name] for name in ("model", "layers", "rate", "backlog"))
    simulated = [SimulationOptions(model=model, layers=layers, root=Path(root)) for root in options["roots"]]
    npus = [Npu(each, gaps=False, names=SystemRandom()) for each in simulated]
    for npu in npus:
        now_us = npu.load(_wall_us() - round(backlog / rate * 1e6))
        for _ in range(backlog):
            now_us = npu.infer(now_us)
    print("ready", flush=True)
    written: dict[int, float] = {}
    due, period_s = time.monotonic(), 1 / rate / len(npus)
    for npu in itertools.cycle(npus):
        if _is_over(due - time.monotonic()):
            break
        number = npu.inferences
        npu.infer(_wall_us())
        if npu is npus[0]:
            written[number] = time.monotonic()
        due += period_s
    for npu in npus:
        npu.unload(_wall_us())
    return written


def _is_over(delay_s: float) -> bool:
    return bool(select.select([sys.stdin], [], [], max(0.0, delay_s))[0])


def _wall_us() -> int:
    return time.time_ns() // 1000


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))), flush=True)
