"""Ending what is done when somebody asks to stop."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from profagent.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["interrupted_by"]


@asynccontextmanager
async def interrupted_by(stop: asyncio.Event, before: str) -> AsyncIterator[None]:
    """End what is done inside when `stop` is set. Raises UnreachableError then: it was stopped `before` something."""
    task = asyncio.current_task()
    assert task is not None

    async def interrupt() -> None:
        await stop.wait()
        task.cancel()

    watching = asyncio.create_task(interrupt())
    try:
        yield
    except asyncio.CancelledError:
        if stop.is_set() and task.uncancel() == 0:
            raise UnreachableError(f"stopped before {before}", hint="start it again") from None
        raise
    finally:
        watching.cancel()
