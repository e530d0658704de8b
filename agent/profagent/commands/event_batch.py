"""Events that arrived together, as the commit rule sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from profagent.ingest.changes import JobChanges
    from profagent.link.messages import Acknowledgement
    from profagent.link.session import Happened

    Acknowledge = Callable[[Sequence[Acknowledgement]], Awaitable[None]]


class Mirroring(Protocol):
    """Where events are written."""

    async def write(self, events: Sequence[Happened]) -> tuple[list[JobChanges], list[Acknowledgement]]:
        """Put events into the mirrors: what they mean, and what can be acknowledged once that is durable."""

    async def sync(self) -> None:
        """Make the mirrors durable."""


class EventBatch:
    """A batch for `commit`."""

    def __init__(self, mirroring: Mirroring, events: Sequence[Happened], acknowledge: Acknowledge) -> None:
        self._mirroring = mirroring
        self._events = events
        self._acknowledge = acknowledge
        self._reached: list[Acknowledgement] = []

    async def write(self) -> Sequence[JobChanges]:
        """Put the events into the mirrors; returns what they mean."""
        changes, self._reached = await self._mirroring.write(self._events)
        return changes

    async def sync(self) -> None:
        """Make the mirrors durable."""
        await self._mirroring.sync()

    async def acknowledge(self) -> None:
        """Tell the board what is durable."""
        if self._reached:
            await self._acknowledge(self._reached)
