"""Losses that a daemon keeps: once for each board, with their newest figures, of the session that heard first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from profagent.ingest.changes import Change, Entry, JobChanges, KeptLoss, LogAdvanced
from profagent.store import kept_losses
from profagent.store.kept_losses import kept_losses_of
from profagent.store.sessions import SessionStart, begin_session
from profagent.store.summaries import all_sessions, session_summary
from profagent.store.writer import Writer
from tests.unit.store.rows import AICORE, JOB, Rows

if TYPE_CHECKING:
    import pytest

DELETED = KeptLoss(
    2**64 - 1, Entry("loss", "deleted-undelivered", "made room", count=512), JOB, 3, 512, from_us=10, to_us=20
)
FULL = KeptLoss(7, Entry("loss", "disk-full", "no space"), from_us=5)


def hear(rows: Rows, *changes: Change) -> None:
    rows.writer.apply([JobChanges("", "", changes)])


def test_a_kept_loss_is_written_with_its_ledger_entry(rows: Rows) -> None:
    rows.apply(LogAdvanced(AICORE, 1, 0))
    hear(rows, DELETED, FULL)
    assert kept_losses_of(rows.connection, 1) == [
        {
            "job": None,
            "reason": "disk-full",
            "detail": "no space",
            "lost_logs": None,
            "lost_bytes": None,
            "from_us": 5,
            "to_us": None,
        },
        {
            "job": JOB,
            "reason": "deleted-undelivered",
            "detail": "made room",
            "lost_logs": 3,
            "lost_bytes": 512,
            "from_us": 10,
            "to_us": 20,
        },
    ]
    assert rows.query("SELECT job, grade, reason, count FROM ledger ORDER BY count") == [
        (None, "loss", "disk-full", 1),
        (JOB, "loss", "deleted-undelivered", 512),
    ]
    assert rows.query("SELECT id FROM kept_losses ORDER BY id") == [("0000000000000007",), ("f" * 16,)]


def test_told_again_it_is_not_counted_again_and_has_the_newest_figures(rows: Rows) -> None:
    hear(rows, FULL)
    rows.session()
    hear(rows, FULL, replace(FULL, entry=replace(FULL.entry, detail="still none"), to_us=99))
    assert rows.query("SELECT session, detail, to_us FROM kept_losses") == [(1, "still none", 99)]
    assert rows.query("SELECT session, detail, count FROM ledger") == [(1, "still none", 1)]
    assert session_summary(rows.connection, 1)["complete"] is False
    assert session_summary(rows.connection, 2)["complete"] is True
    assert [len(session["kept_losses"]) for session in all_sessions(rows.connection)] == [1, 0]


def test_boards_number_their_losses_by_themselves(rows: Rows) -> None:
    hear(rows, FULL)
    start = SessionStart("b2", "", "", "record", "there", 1, simulated=False)
    rows.writer = Writer(rows.connection, *begin_session(rows.connection, start))
    hear(rows, FULL)
    assert rows.query("SELECT board, session FROM kept_losses ORDER BY session") == [("b1", 1), ("b2", 2)]


def test_a_board_that_tells_of_ever_more_losses_does_not_fill_the_database(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_losses, "LARGEST_NUMBER", 3)
    hear(rows, *(replace(FULL, number=number) for number in range(9)))
    assert rows.query("SELECT count(*) FROM kept_loss") == [(3,)]
    assert rows.query("SELECT grade, count FROM ledger WHERE reason = 'too-many-losses'") == [("note", 1)]


def test_a_loss_of_a_job_that_was_never_copied_keeps_its_name(rows: Rows) -> None:
    hear(rows, DELETED)
    assert rows.query("SELECT job FROM kept_losses") == [(JOB,)]
    assert rows.query("SELECT job FROM ledger") == [(None,)]
    assert rows.query("SELECT count(*) FROM job") == [(0,)]
