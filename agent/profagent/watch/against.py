"""Baseline of the layers on the screen: the medians of a stored session."""

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
    """Baseline: its name, and the median of each layer in µs, by model and layer."""

    name: str
    medians: Mapping[str, Mapping[str, float]]


NOTHING = Against("", {})


async def against_of(workspace: Workspace, name: str | None) -> Against:
    """Return the baseline that a session's name stands for, NOTHING without a name. Raises UsageError, StoreError."""
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
