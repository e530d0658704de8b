"""What the layers on the screen are compared with: the medians of a session."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from profagent.errors import UsageError
from profagent.stats.stats import stats
from profagent.store.workspace import session_named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from profagent.store.workspace import Workspace


class Against(NamedTuple):
    """What it is called, and by model the median of each layer in µs."""

    name: str
    medians: Mapping[str, Mapping[str, float]]


NOTHING = Against("", {})


async def against_of(workspace: Workspace, name: str | None) -> Against:
    """The medians of the session that a word names. Raises UsageError, StoreError."""
    if name is None:
        return NOTHING
    session = await session_named(workspace, name)
    medians: dict[str, dict[str, float]] = defaultdict(dict)
    found = await stats(workspace.readable_database(), session=session, by="layer")
    if found.unit != "us":
        raise UsageError(
            f"session {session} has no times in microseconds: the NPU's clock is not known",
            hint="name another one with --against",
        )
    for row in found.rows:
        if row.figures.median is not None:
            medians[row.key[0]].setdefault(row.key[1], row.figures.median)
    return Against(name if "=" in name else f"session {session}", medians)
