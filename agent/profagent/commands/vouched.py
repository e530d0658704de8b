"""Complete logs of which the board has not sent anything yet that is not held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.link.messages import Chunk, Completed, Removed, Started

if TYPE_CHECKING:
    from profagent.store.stored_session import HeldLog


class VouchedLogs:
    """Those of one stream, by their handles."""

    def __init__(self) -> None:
        self._held: dict[int, HeldLog] = {}

    def __contains__(self, handle: int) -> bool:
        return handle in self._held

    def add(self, handle: int, known: HeldLog) -> None:
        """A log is complete, and the mirror has the bytes that were committed."""
        self._held[handle] = known

    def forget(self, handle: int) -> None:
        """The log is announced anew: what is held of it is looked at again."""
        self._held.pop(handle, None)

    def clear(self) -> None:
        """Another stream begins, with handles of its own."""
        self._held.clear()

    def is_known(self, handle: int, event: Started | Chunk | Completed | Removed) -> bool:
        """Whether a log that is complete goes on and ends as it is held: neither its bytes nor its rows change."""
        known = self._held.get(handle)
        if known is None:
            return False
        match event:
            case Started():
                same = (event.generation, event.offset) == (known.generation, known.size)
            case Completed():
                same = (event.generation, event.size, event.digest) == (known.generation, known.size, known.digest)
            case _:
                same = False
        if not same or isinstance(event, Completed):
            self.forget(handle)
        return same
