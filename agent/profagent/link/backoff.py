"""Waits between attempts at something that failed: a link, a connection, a tunnel, a night's capture."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from profagent.limits import LONGEST_DELAY_S

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_DELAY_S = 0.25


def retrying(wait_s: float) -> str:
    """Return the words for an attempt that comes after `wait_s`, in whole seconds."""
    return f"retrying in {max(1, round(wait_s))} s"


class Backoff:
    """Waits in seconds: the limit of each is twice that of the one before, up to `longest_s`.

    A wait is drawn by `draw(0, limit)`, so that many hosts do not return together. `waits` counts those since the
    beginning or the last reset.
    """

    def __init__(
        self,
        first_s: float = FIRST_DELAY_S,
        longest_s: float = LONGEST_DELAY_S,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._first_s, self._longest_s, self._draw = first_s, longest_s, draw
        # The upper limit of the next wait, in seconds.
        self._limit_s = first_s
        self.waits = 0

    def reset(self) -> None:
        """Begin with the shortest wait again: an attempt succeeded."""
        self._limit_s = self._first_s
        self.waits = 0

    def wait_s(self) -> float:
        """Return the wait before the next attempt; the one after it may be twice as long."""
        wait_s = self._draw(0.0, self._limit_s)
        self.waits += 1
        self._limit_s = min(2 * self._limit_s, self._longest_s)
        return wait_s

    async def pause(self, why: str, tell: Callable[[str], None]) -> None:
        """Tell why the last attempt failed and when the next one comes, and wait for it."""
        wait_s = self.wait_s()
        tell(f"{why}; {retrying(wait_s)}")
        await asyncio.sleep(wait_s)
