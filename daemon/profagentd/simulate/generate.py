"""A whole finished JOB at once, without waiting: for tests and benchmarks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from profagentd.simulate.npu import Npu

if TYPE_CHECKING:
    from pathlib import Path

    from profagentd.simulate.options import SimulationOptions

START_US = 1_767_225_600_000_000
"""2026-01-01 00:00:00 UTC."""

_US_PER_S = 1_000_000


def write_job(
    root: Path,
    options: SimulationOptions,
    inferences: int,
    *,
    loads: int = 1,
    gaps: bool = True,
) -> Path:
    """Write a JOB under `root` as fast as the disk takes it, and return its directory.

    The model is loaded `loads` times, each time for so many `inferences`. The times in the files begin at START_US
    and go by the options' rate, or by the NPU where that is slower; `options.for_s` and `options.root` do not matter.
    Without `gaps` each layer leaves its record. Raises DaemonError for the options, OSError for the disk.
    """
    npu = Npu(replace(options, root=root), gaps=gaps)
    now_us = START_US
    for _ in range(loads):
        first_us = now_us = npu.load(now_us)
        for number in range(inferences):
            scheduled_us = first_us + round(number * _US_PER_S / options.rate)
            now_us = npu.infer(max(now_us, scheduled_us))
        now_us = npu.unload(now_us)
    if npu.directory is None:
        raise ValueError("loads must be 1 or more")
    return npu.directory
