"""Owning several pieces of work at once, on Pythons without asyncio.TaskGroup."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine


async def until_first(*works: Coroutine[Any, Any, None]) -> None:
    """Run all of them until the first returns or fails; then cancel the others and wait for their end.

    What the first one raised is raised again. When the caller is cancelled, all are.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    failed = [each for task, each in zip(tasks, results) if task in done and isinstance(each, BaseException)]
    if failed:
        raise failed[0]
