"""The ledger: entries that follow from bytes replace each other, those of the way are added once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from profagent.ingest.changes import (
    Change,
    ContentLedger,
    Entry,
    JobChanges,
    KeptLoss,
    LinkLedger,
    LogAdvanced,
    LogReset,
)
from profagent.store import rows as module
from profagent.store.queries import kept_losses_of
from profagent.store.summary import all_sessions, session_summary
from tests.unit.store.rows import AICORE, AICPU, JOB, Rows

if TYPE_CHECKING:
    import pytest

GAP = Entry("note", "sequence-gap", "records missing", 0, 512, 3)
TORN = Entry("loss", "torn-record", "the last record has 44 bytes", 256, 300)


def ledger(rows: Rows) -> list[tuple[object, ...]]:
    return rows.query("SELECT session, log, reason, count FROM ledger ORDER BY log, reason")


def test_an_entry_has_everything(rows: Rows) -> None:
    rows.apply(LogAdvanced(AICORE, 1, 300), ContentLedger(AICORE, (TORN,)))
    assert rows.query("SELECT * FROM ledger") == [
        (1, "JOB" + "A" * 29, AICORE, "loss", "torn-record", "the last record has 44 bytes", 256, 300, 1)
    ]


def test_what_is_said_of_a_logs_bytes_replaces_what_was(rows: Rows) -> None:
    rows.apply(ContentLedger(AICORE, (TORN,)), ContentLedger(AICPU, (TORN,)))
    rows.apply(ContentLedger(AICORE, (GAP,)))
    assert ledger(rows) == [(1, AICORE, "sequence-gap", 3), (1, AICPU, "torn-record", 1)]
    rows.apply(ContentLedger(AICORE, ()))
    assert ledger(rows) == [(1, AICPU, "torn-record", 1)]


def test_what_follows_from_the_job_s_files_together_replaces_what_was(rows: Rows) -> None:
    rows.apply(ContentLedger(None, (GAP,)), LinkLedger(None, TORN), ContentLedger(AICORE, (GAP,)))
    rows.apply(ContentLedger(None, (GAP,)))
    assert ledger(rows) == [(1, None, "sequence-gap", 3), (1, None, "torn-record", 1), (1, AICORE, "sequence-gap", 3)]
    rows.apply(ContentLedger(None, ()))
    assert ledger(rows) == [(1, None, "torn-record", 1), (1, AICORE, "sequence-gap", 3)]


def test_what_was_told_before_stays_with_the_session_that_told_it(rows: Rows) -> None:
    rows.apply(ContentLedger(AICORE, (GAP,)))
    before = rows.query("SELECT * FROM ledger_entry")
    rows.session()
    rows.apply(ContentLedger(AICORE, (GAP, TORN)))
    assert ledger(rows) == [(1, AICORE, "sequence-gap", 3), (2, AICORE, "torn-record", 1)]
    assert rows.query("SELECT * FROM ledger_entry WHERE session = 1") == before


def test_what_happened_on_the_way_is_added_once(rows: Rows) -> None:
    for _ in range(2):
        rows.apply(LinkLedger(AICORE, Entry("loss", "unreadable", "EIO")), LinkLedger(None, Entry("note", "x", "y")))
        rows.session()
    rows.apply(LinkLedger(AICORE, Entry("loss", "unreadable", "EACCES")))
    assert ledger(rows) == [(1, None, "x", 1), (1, AICORE, "unreadable", 1), (3, AICORE, "unreadable", 1)]


def test_a_new_generation_keeps_what_happened_on_the_way_only(rows: Rows) -> None:
    rows.apply(LogAdvanced(AICORE, 1, 9), ContentLedger(AICORE, (GAP,)), LinkLedger(AICORE, TORN))
    rows.apply(LogReset(AICORE))
    assert ledger(rows) == [(1, AICORE, "torn-record", 1)]
    rows.apply(ContentLedger(AICORE, (GAP,)))
    assert len(ledger(rows)) == 2


def test_what_is_about_the_board_itself_has_no_job(rows: Rows) -> None:
    for _ in range(2):
        rows.apply(LinkLedger(None, Entry("loss", "unreadable", "EIO")), job="")
    assert rows.query("SELECT session, job, log, reason FROM ledger") == [(1, None, None, "unreadable")]
    assert rows.query("SELECT * FROM job") == []
    rows.session()
    rows.apply(LinkLedger(None, Entry("loss", "unreadable", "EIO")), job="")
    assert len(rows.query("SELECT * FROM ledger")) == 2


def test_what_had_come_before_is_not_lost_when_its_job_goes(rows: Rows) -> None:
    unread = LinkLedger(None, Entry("loss", "removed-unread", "the JOB was removed before all of it was looked at"))
    rows.finish()
    rows.apply(unread)
    assert rows.query("SELECT * FROM ledger") == []
    rows.apply(state="open")
    rows.apply(unread)
    assert rows.query("SELECT reason FROM ledger") == [("removed-unread",)]


def test_what_is_told_without_end_is_counted(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NOTED", 3)
    for number in range(6):
        rows.apply(LinkLedger(None, Entry("loss", "unreadable", f"file {number}", count=2**60)))
    found = rows.query("SELECT reason, count(*), max(count) FROM ledger GROUP BY reason ORDER BY reason")
    assert found == [("more", 1, 2**48), ("unreadable", 3, 2**48)]


def test_what_is_counted_goes_on_after_a_restart(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NOTED", 1)
    for number in range(4):
        rows.apply(LinkLedger(None, Entry("loss", "unreadable", f"file {number}")))
        rows.session(always_new=False)
    assert rows.query("SELECT reason, count FROM ledger ORDER BY reason") == [("more", 3), ("unreadable", 1)]


DELETED = KeptLoss(
    2**64 - 1, Entry("loss", "deleted-undelivered", "made room", count=512), JOB, 3, 512, from_us=10, to_us=20
)
FULL = KeptLoss(7, Entry("loss", "disk-full", "no space"), from_us=5)


def hear(rows: Rows, *changes: Change) -> None:
    rows.write(JobChanges("", "", changes))


def test_a_kept_loss_is_written_with_its_ledger_entry(rows: Rows) -> None:
    rows.apply(LogAdvanced(AICORE, 1, 0))
    hear(rows, DELETED, FULL)
    assert rows.ask(kept_losses_of, 1) == [
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
    assert rows.ask(session_summary, 1)["complete"] is False
    assert rows.ask(session_summary, 2)["complete"] is True
    assert [len(session["kept_losses"]) for session in rows.ask(all_sessions)] == [1, 0]
