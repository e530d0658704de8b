"""The rule that makes a capture survive: mirror, sync, transaction, acknowledgement, in this order and no other.

What is in the database is in the mirror, durably; what was acknowledged is in the database. A process that ends
between two steps leaves bytes in the mirror that no row speaks of: they are undone before the next stream. So a restart
finds no record lost and none twice, whichever step it died at.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from profagent.ingest.changes import JobChanges


class Step(Enum):
    """What has just been done."""

    MIRRORED = "mirrored"
    SYNCED = "synced"
    COMMITTED = "committed"
    ACKNOWLEDGED = "acknowledged"


class Batch(Protocol):
    """Bytes that arrived together."""

    async def write(self) -> Sequence[JobChanges]:
        """Put the bytes into the mirror; returns what they mean."""

    async def sync(self) -> None:
        """Make the mirror durable."""

    async def acknowledge(self) -> None:
        """Tell the board what is durable."""


class Rows(Protocol):
    """Where rows are kept."""

    async def apply(self, changes: Sequence[JobChanges]) -> None:
        """Write rows and the logs' offsets in one durable transaction."""


def _unobserved(_: Step) -> None:
    """Nobody watches the steps."""


async def commit(batch: Batch, rows: Rows, *, reached: Callable[[Step], None] = _unobserved) -> Sequence[JobChanges]:
    """Take a batch through the rule; returns its changes. `reached` is called after each step."""
    changes = await batch.write()
    reached(Step.MIRRORED)
    await batch.sync()
    reached(Step.SYNCED)
    await rows.apply(changes)
    reached(Step.COMMITTED)
    await batch.acknowledge()
    reached(Step.ACKNOWLEDGED)
    return changes
