"""The directories below which JOBs are looked for, for those who do something about each; more may come."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Callable

from profagentd.supervisor import until_first

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator

    _Work = Callable[[bytes], Coroutine[Any, Any, None]]


class Roots:
    """Absolute paths without links, in the order in which they were named."""

    def __init__(self, roots: Iterable[bytes]) -> None:
        self._roots = list(roots)
        self._waiting: list[asyncio.Queue[bytes]] = []

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._roots)

    def __len__(self) -> int:
        return len(self._roots)

    def add(self, root: bytes) -> None:
        """One more."""
        self._roots.append(root)
        for queue in self._waiting:
            queue.put_nowait(root)

    async def each(self, work: _Work) -> None:
        """Do the work for each root that there is or comes, all at once; what the first one raises is raised."""
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        for root in self._roots:
            queue.put_nowait(root)
        self._waiting.append(queue)
        try:
            await _for_each(queue, work)
        finally:
            self._waiting.remove(queue)


async def _for_each(queue: asyncio.Queue[bytes], work: _Work) -> None:
    root = await queue.get()
    await until_first(work(root), _for_each(queue, work))
