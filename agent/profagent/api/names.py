"""Public names of the Python API, each with its place and its tier of stability: the one list of them."""

from __future__ import annotations

import pkgutil
from typing import Any, Literal, NamedTuple

Tier = Literal["stable", "provisional"]
TIERS: dict[Tier, str] = {
    "stable": "changes only with a new major version, and is deprecated for one minor version before",
    "provisional": "may change in any minor version, with a line in the changelog",
}


class Name(NamedTuple):
    """Place of a public name as `MODULE:NAME`, and its tier."""

    place: str
    tier: Tier


NAMES: dict[str, Name] = {
    "open": Name("profagent.api.workspace:open", "stable"),
    "Workspace": Name("profagent.api.workspace:Workspace", "stable"),
    "Session": Name("profagent.api.session:Session", "stable"),
    "Table": Name("profagent.api.table:Table", "stable"),
    "Field": Name("profagent.tables.arrow:Field", "stable"),
    "Provenance": Name("profagent.api.provenance:Provenance", "stable"),
    "Answer": Name("profagent.api.answers:Answer", "stable"),
    "diff": Name("profagent.api.answers:diff", "provisional"),
    "record": Name("profagent.api.live:record", "provisional"),
    "LiveRecording": Name("profagent.api.live:LiveRecording", "provisional"),
    "watch": Name("profagent.api.live:watch", "provisional"),
    "LiveEvents": Name("profagent.api.live:LiveEvents", "provisional"),
    "LiveEvent": Name("profagent.api.live:LiveEvent", "provisional"),
    "level_changes": Name("profagent.stats.levels:level_changes", "provisional"),
    "LevelChange": Name("profagent.stats.levels:LevelChange", "provisional"),
    "ProfagentError": Name("profagent.errors:ProfagentError", "stable"),
    "UsageError": Name("profagent.errors:UsageError", "stable"),
    "StoreError": Name("profagent.errors:StoreError", "stable"),
    "UnreachableError": Name("profagent.errors:UnreachableError", "stable"),
}


def resolved(name: str) -> Any:
    """Return what a public name stands for; `__all__` is the list of them. Raises AttributeError for another name."""
    if name == "__all__":
        return [*NAMES]
    if name not in NAMES:
        raise AttributeError(f"module 'profagent' has no attribute {name!r}")
    return pkgutil.resolve_name(NAMES[name].place)
