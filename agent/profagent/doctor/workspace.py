"""Checks of this host's workspace."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.doctor.finding import bad, good, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagent.doctor.finding import Finding

# An hour of a large model at 15 inferences a second, its rows included, takes some gigabytes; this is its beginning.
LEAST_FREE_BYTES = 1_000_000_000


@dataclass(frozen=True, slots=True)
class WorkspaceFacts:
    """A workspace: why it, or its database, cannot be used, empty when they can; `database` is empty without one.

    `is_checked`: the database was looked at to its end.
    """

    root: str
    exists: bool
    error: str
    database: str
    database_error: str
    database_hint: str
    free_bytes: int
    total_bytes: int
    is_checked: bool = True


def workspace_checks(facts: WorkspaceFacts) -> Iterator[Finding]:
    """It can be written, its database is of this version, and there is room."""
    if facts.error:
        yield bad(
            "workspace",
            f"{facts.root}: {facts.error}",
            f"ls -ld {shlex.quote(facts.root)}; or name another one: --workspace DIR",
        )
        return
    yield good("workspace", f"{facts.root} can be written" if facts.exists else f"{facts.root} can be made")
    if facts.database_error:
        yield bad("database", facts.database_error, facts.database_hint)
    elif facts.database and not facts.is_checked:
        yield unknown("database", f"{facts.database} can be read; it is large, and was not checked to the end")
    elif facts.database:
        yield good("database", f"{facts.database} can be read, and its pages fit each other")
    told = f"{facts.free_bytes / 1e9:,.1f} of {facts.total_bytes / 1e9:,.1f} GB are free for {facts.root}"
    if facts.free_bytes < LEAST_FREE_BYTES:
        yield bad("host-space", told, "make room, or name another one: --workspace DIR")
    else:
        yield good("host-space", told)
