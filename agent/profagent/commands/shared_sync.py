"""One `syncfs` for all boards that wait for one: it writes the whole file system, whoever asks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from profagent.commands.to_the_end import finished
from profagent.ingest.mirror import syncfs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class SharedSync:
    """Makes durable what was written below a folder. One call runs at a time, and one waits for its turn."""

    def __init__(self, folder: Path, *, sync: Callable[[Path], None] = syncfs) -> None:
        self._folder = folder
        self._sync = sync
        self._turn = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None

    async def sync(self) -> None:
        """Return when all that was written before this was called is durable. Raises StoreError, DiskFullError.

        A call that runs may have begun before: it is the next one that counts, for all who come until it begins.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._run())
        await finished(self._next)

    async def _run(self) -> None:
        async with self._turn:
            self._next = None
            await asyncio.to_thread(self._sync, self._folder)
