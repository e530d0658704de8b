"""Checks of the workspace."""

from __future__ import annotations

from dataclasses import replace

from profagent.doctor.checks import WorkspaceFacts, workspace_checks
from profagent.doctor.finding import Mark

FACTS = WorkspaceFacts(
    "/home/me/ws",
    exists=True,
    error="",
    database="/home/me/ws/profagent.db",
    database_error="",
    database_hint="",
    free_bytes=50_000_000_000,
    total_bytes=100_000_000_000,
)


def marks(facts: WorkspaceFacts) -> dict[str, Mark]:
    return {finding.check: finding.mark for finding in workspace_checks(facts)}


def test_a_workspace_in_good_order() -> None:
    assert marks(FACTS) == dict.fromkeys(("workspace", "database", "host-space"), Mark.GOOD)
    assert marks(replace(FACTS, exists=False, database="")) == dict.fromkeys(("workspace", "host-space"), Mark.GOOD)


def test_what_is_wrong_with_one() -> None:
    assert marks(replace(FACTS, error="Permission denied")) == {"workspace": Mark.BAD}
    assert marks(replace(FACTS, is_checked=False))["database"] is Mark.UNKNOWN
    assert marks(replace(FACTS, free_bytes=10_000_000))["host-space"] is Mark.BAD
    (found,) = (
        finding
        for finding in workspace_checks(replace(FACTS, database_error="schema 9", database_hint="use the newer one"))
        if finding.check == "database"
    )
    assert (found.mark, found.remedy) == (Mark.BAD, "use the newer one")
