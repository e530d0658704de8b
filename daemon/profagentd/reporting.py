"""The daemon's signs of life and its line of status, as long as it serves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Callable

from profagentd.supervisor import until_first

if TYPE_CHECKING:
    from profagentd.clock import Clock
    from profagentd.notify import Notifier

# How often the status is told when it has changed.
STATUS_S = 2.0


async def report(notifier: Notifier, clock: Clock, status: Callable[[], str]) -> None:
    """Tell of both until cancelled; nothing where nobody listens."""
    if not notifier.is_heard:
        await asyncio.Event().wait()
    await until_first(_tell_status(notifier, clock, status), _prove_life(notifier, clock))


async def _tell_status(notifier: Notifier, clock: Clock, status: Callable[[], str]) -> None:
    told = ""
    while True:
        if status() != told:
            told = status()
            notifier.status(told)
        await clock.sleep(STATUS_S)


async def _prove_life(notifier: Notifier, clock: Clock) -> None:
    """A sign of life is one of the loop, which comes here, and of the threads, which take work and give it back."""
    if notifier.watchdog_s is None:
        await asyncio.Event().wait()
        return
    while True:
        await asyncio.to_thread(_nothing)
        notifier.alive()
        await clock.sleep(notifier.watchdog_s / 2)


def _nothing() -> None:
    """Work for a thread."""
