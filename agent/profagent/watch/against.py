"""What the layers on the screen are compared with: the medians of a baseline's session, or of any other."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from profagent.errors import UsageError
from profagent.stats.stats import stats
from profagent.store.workspace import baseline_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from profagent.store.workspace import Workspace


class Against(NamedTuple):
    """What it is called, and by model the median of each layer in µs."""

    name: str
    medians: Mapping[str, Mapping[str, float]]


NOTHING = Against("", {})


async def against_of(workspace: Workspace, name: str | None) -> Against:
    """The session of a baseline's name, or of a number. Raises UsageError, StoreError."""
    if name is None:
        return NOTHING
    session = int(name) if name.isdecimal() else await baseline_session(workspace, name)
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
    return Against(name if not name.isdecimal() else f"session {name}", medians)
