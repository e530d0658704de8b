"""How long to wait before the next attempt: full jitter, so that many hosts do not return together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_S = 0.25
LONGEST_S = 30.0
# 0.25 s doubled this often is above the longest wait.
LARGEST_EXPONENT = 7
# A credential does not mend itself.
SLOWEST_S = 60.0
# Whatever a daemon asks for.
LONGEST_TOLD_S = 60.0


def delay_s(attempt: int, uniform: Callable[[float, float], float]) -> float:
    """Seconds before attempt number `attempt` (0: the first after a failure), drawn by `uniform(low, high)`."""
    return uniform(0.0, min(LONGEST_S, FIRST_S * 2 ** min(attempt, LARGEST_EXPONENT)))


def slow_delay_s(uniform: Callable[[float, float], float]) -> float:
    """Seconds before the next attempt with a credential that was refused."""
    return uniform(LONGEST_S, SLOWEST_S)


def told_delay_s(retry_after_us: int, uniform: Callable[[float, float], float]) -> float:
    """Seconds after which a daemon that said goodbye is tried: as it said, and a little, drawn against a rush."""
    return min(retry_after_us / 1e6, LONGEST_TOLD_S) + uniform(0.0, FIRST_S)
