"""How much the benchmarks do: all of it, or next to nothing, which shows in the suite that they still run."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")
SMOKE = "PROFAGENT_BENCH_SMOKE" in os.environ


def sized(full: T, smoke: T) -> T:
    """The size of a benchmark: `full`, or `smoke` where it only has to run."""
    return smoke if SMOKE else full
