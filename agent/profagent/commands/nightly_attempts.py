"""A board's attempts of a night, and the waits between them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.commands.durations import duration_s
from profagent.nightly.calls import Captured

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from profagent.nightly.settings import Nightly
    from profagent.nightly.verdict import Outcome

__all__ = ["Attempts", "wait_for_stop"]

# A board that is away is tried again so often at least before its time is over.
LONGEST_WAIT_S = 900.0


async def wait_for_stop(delay_s: float, stop: asyncio.Event) -> None:
    """Return after `delay_s`, or when `stop` is set."""
    try:
        async with asyncio.timeout(delay_s):
            await stop.wait()
    except TimeoutError:
        return


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often a board is tried, and how far apart: `clock` is in seconds, `wait` is done with one of its own."""

    settings: Nightly
    tell: Callable[[str], None]
    clock: Callable[[], float]
    wait: Callable[[float, asyncio.Event], Awaitable[None]] = wait_for_stop

    async def made(
        self, outcome: Outcome, attempt: Callable[[float], Awaitable[Captured]], stop: asyncio.Event
    ) -> Captured:
        """Attempts until one reaches the board, which is not restarted meanwhile, or its time is over.

        `attempt` is given its deadline by `clock`; the outcome counts them.
        """
        deadline = self.clock() + duration_s(self.settings.time_limit)
        wait_s = duration_s(self.settings.wait)
        while not stop.is_set():
            outcome.attempts += 1
            found = await attempt(deadline)
            left_s = deadline - self.clock()
            if not (found.is_away or found.is_lost) or outcome.attempts >= self.settings.attempts or left_s <= 0:
                return found
            delay_s = min(wait_s, left_s)
            self.tell(f"{outcome.board}: {found.problem}; the next attempt is in {delay_s:.0f} s")
            await self.wait(delay_s, stop)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
        return Captured(None, "the night was stopped before it was this board's turn")
