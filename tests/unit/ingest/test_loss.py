"""Ledger entries for what a board reports."""

from __future__ import annotations

import pytest

from profagent.ingest.changes import Entry
from profagent.ingest.loss import loss_entry, removal_entry


@pytest.mark.parametrize(("reason", "grade"), [("unreadable", "loss"), ("removed-unseen", "loss"), ("new", "loss")])
def test_what_a_board_lost_is_a_loss_of_at_least_one(reason: str, grade: str) -> None:
    assert loss_entry(reason, "why", 0) == Entry(grade, reason, "why", count=1)
    assert loss_entry(reason, "why", 77) == Entry(grade, reason, "why", count=77)


def test_what_never_had_bytes_of_a_log_is_a_note() -> None:
    assert loss_entry("not-a-file", "data/x is no regular file", 0).grade == "note"


def test_only_bytes_that_were_not_sent_are_lost_by_a_removal() -> None:
    assert removal_entry(300, 300) == []
    assert removal_entry(300, 200) == []
    (entry,) = removal_entry(300, 512)
    assert (entry.grade, entry.reason, entry.first, entry.last, entry.count) == ("loss", "removed", 300, 512, 212)
