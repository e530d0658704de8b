"""The profiled program of a benchmark, in a process of its own, so that its cost is nobody else's.

`python board_program.py OPTIONS`, where OPTIONS is JSON: `roots`, `model`, `layers` and `rate` (inferences a second in
each root). It prints `ready`, runs inferences until its standard input is closed, unloads, and prints JSON: for each
root when each inference was there (`written`, monotonic seconds by number), and what each one's own work took, without
the waiting for its time (`work`: monotonic seconds at its end, and microseconds).
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


def run(options: dict[str, Any]) -> dict[str, Any]:
    """Run until standard input is closed."""
    boards = [_loaded(Path(root), options) for root in options["roots"]]
    print("ready", flush=True)
    written: list[dict[int, float]] = [{} for _ in boards]
    work: list[tuple[float, float]] = []
    begun, period_s = time.monotonic(), 1 / (options["rate"] * len(boards))
    number = 0
    while not _is_over(begun + number * period_s - time.monotonic()):
        board = number % len(boards)
        inference = boards[board].inferences
        before = time.perf_counter()
        boards[board].infer(_wall_us())
        took_s = time.perf_counter() - before
        written[board][inference] = time.monotonic()
        work.append((written[board][inference], took_s * 1e6))
        number += 1
    for npu in boards:
        npu.unload(_wall_us())
    return {"written": written, "work": work}


def _loaded(root: Path, options: dict[str, Any]) -> Npu:
    simulated = SimulationOptions(model=options["model"], layers=options["layers"], root=root)
    npu = Npu(simulated, gaps=False, names=SystemRandom())
    npu.load(_wall_us())
    return npu


def _is_over(delay_s: float) -> bool:
    return bool(select.select([sys.stdin], [], [], max(0.0, delay_s))[0])


def _wall_us() -> int:
    return time.time_ns() // 1000


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))), flush=True)
