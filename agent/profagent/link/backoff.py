"""How long to wait before the next attempt: full jitter, so that many hosts do not return together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_S = 0.25
LONGEST_S = 30.0
# 0.25 s doubled this often is above the longest wait.
LARGEST_EXPONENT = 7


def delay_s(attempt: int, uniform: Callable[[float, float], float]) -> float:
    """Seconds before attempt number `attempt` (0: the first after a failure), drawn by `uniform(low, high)`."""
    return uniform(0.0, min(LONGEST_S, FIRST_S * 2 ** min(attempt, LARGEST_EXPONENT)))
