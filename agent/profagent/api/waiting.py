"""The bridge from synchronous calls to the asynchronous functions of profagent."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine, which runs on a loop of its own in a thread; Ctrl-C cancels it.

    The caller may have a running loop, as a notebook has: that stands still meanwhile.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    running: list[asyncio.Task[Any]] = []

    async def begun() -> T:
        task = asyncio.current_task()
        assert task is not None
        running.append(task)
        return await work

    def run() -> None:
        try:
            results.append(asyncio.run(begun()))
        except BaseException as error:  # noqa: BLE001 - raised below, where the caller waits
            errors.append(error)

    thread = threading.Thread(target=run, name="profagent")
    thread.start()
    try:
        thread.join()
    except BaseException:
        for task in running:
            task.get_loop().call_soon_threadsafe(task.cancel)
        thread.join()
        raise
    if errors:
        raise errors[0]
    return results[0]
