"""Work that a cancellation waits for: nobody closes a file that is being written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


async def finished(task: asyncio.Task[T]) -> T:
    """Wait for a task, also when this is cancelled meanwhile."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def to_the_end(function: Callable[..., T], *arguments: object) -> T:
    """Run a function on a thread, and let it finish."""
    return await finished(asyncio.create_task(asyncio.to_thread(function, *arguments)))
