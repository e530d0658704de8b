"""Reading files for a stream, below roots that may hang: what follows is done when they answer, others go on."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from profagentd.disks import Patience, on_disk

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import Callable

    from profagentd.budget import Share
    from profagentd.stream import Stream

_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")


class Held(NamedTuple):
    """Room that was taken for what is being read."""

    share: Share
    size: int


class Reader:
    """Has files read in the threads of their roots."""

    def __init__(self, stream: Stream, wake: Callable[[], None]) -> None:
        """`wake` is called when a root answers that was late."""
        self._stream = stream
        self._wake = wake
        self._patience = Patience()
        self._late: dict[bytes, Callable[[], Awaitable[None]]] = {}  # what is to follow, by root

    def close(self) -> None:
        """Wait for no root any more."""
        self._patience.close()

    async def read(self, root: bytes, work: Callable[[], T], then: Callable[[T], Awaitable[None]], held: Held) -> None:
        """Have a root's files read, into the room that is held for what they say.

        Where it hangs, what follows is done when it answers; other roots go on, and others have the room until then.
        """
        task = await self._patience.wait(root, on_disk(root, work))
        if task.done():
            await then(task.result())
            return
        _LOGGER.warning("%s does not answer: its logs wait", os.fsdecode(root))
        self._stream.away.add(root)
        held.share.give_back(held.size)

        async def go_on() -> None:
            held.share.take(held.size)
            await then(task.result())

        self._late[root] = go_on
        task.add_done_callback(lambda _: self._wake())

    async def take_late(self) -> bool:
        """Go on with roots that answer again; whether there are any."""
        back = [root for root in self._late if not self._patience.is_late(root)]
        for root in back:
            self._stream.came_back(root)
            await self._late.pop(root)()
        return bool(back)
