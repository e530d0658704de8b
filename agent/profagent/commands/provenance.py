"""Where the figures of a JOB come from, read from its database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profagent.export.provenance import describe_provenance
from profagent.store.counter_checks import implausible_of
from profagent.store.kept_losses import kept_losses_of
from profagent.store.queries import ledger_of, unknown_figures
from profagent.store.sampling import sampling_of

if TYPE_CHECKING:
    import sqlite3

    from profagent.store.queries import Scope

__all__ = ["provenance_of"]


def provenance_of(connection: sqlite3.Connection, scope: Scope) -> dict[str, Any]:
    """Where a JOB's figures come from, and what is missing."""
    session = scope.session.session
    return describe_provenance(
        scope,
        ledger_of(connection, scope),
        sampling_of(connection, session, scope.job.job),
        kept_losses_of(connection, session),
        implausible_of(connection, session, scope.job.job),
        unknown_figures(connection, scope),
    )
