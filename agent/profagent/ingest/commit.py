"""The rule that makes a capture survive: mirror, sync, transaction, acknowledgement, in this order and no other.

What is in the database is in the mirror, durably; what was acknowledged is in the database. A process that ends
between two steps leaves bytes in the mirror that no row speaks of: they are undone before the next stream. So a restart
finds no record lost and none twice, whichever step it died at.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from profagent.ingest.changes import JobChanges


class Step(Enum):
    """What has just been done."""

    MIRRORED = "mirrored"
    SYNCED = "synced"
    COMMITTED = "committed"
    ACKNOWLEDGED = "acknowledged"


async def commit(
    write: Callable[[], Awaitable[Sequence[JobChanges]]],
    sync: Callable[[], Awaitable[None]],
    apply: Callable[[Sequence[JobChanges]], Awaitable[None]],
    acknowledge: Callable[[], Awaitable[None]],
    reached: Callable[[Step], None],
) -> Sequence[JobChanges]:
    """Take bytes through the rule; returns what they mean. `reached` is called after each step."""
    changes = await write()
    reached(Step.MIRRORED)
    await sync()
    reached(Step.SYNCED)
    await apply(changes)
    reached(Step.COMMITTED)
    await acknowledge()
    reached(Step.ACKNOWLEDGED)
    return changes
