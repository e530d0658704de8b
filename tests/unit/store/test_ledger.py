"""The ledger: entries that follow from bytes replace each other, those of the way are added once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.ingest.changes import ContentLedger, Entry, LinkLedger, LogAdvanced, LogReset
from profagent.store import ledger as module
from tests.unit.store.rows import AICORE, AICPU, Rows

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


def test_details_are_text_for_people(rows: Rows) -> None:
    odd = Entry("note", "foreign-file", "data/\udcff\x1b[31m")
    rows.apply(ContentLedger(AICORE, (odd,)))
    rows.apply(ContentLedger(AICORE, (odd,)))
    assert rows.query("SELECT detail FROM ledger") == [("data/\\xff\\x1b[31m",)]


def test_what_is_told_without_end_is_counted(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TOLD", 3)
    for number in range(6):
        rows.apply(LinkLedger(None, Entry("loss", "unreadable", f"file {number}", count=2**60)))
    found = rows.query("SELECT reason, count(*), max(count) FROM ledger GROUP BY reason ORDER BY reason")
    assert found == [("more", 1, 2**48), ("unreadable", 3, 2**48)]


def test_to_tell_without_end_looks_through_the_rows_once(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TOLD", 3)
    statements: list[str] = []
    rows.connection.set_trace_callback(statements.append)
    rows.apply(*(LinkLedger(None, Entry("loss", "unreadable", f"file {number}")) for number in range(50)))
    rows.apply(*(LinkLedger(None, Entry("loss", "unreadable", f"file {number}")) for number in range(50, 100)))
    rows.connection.set_trace_callback(None)
    assert sum("FROM ledger_entry" in each for each in statements) == 2, "what was told, and what counts the rest"
    assert rows.query("SELECT sum(count) FROM ledger") == [(100,)]


def test_what_is_counted_goes_on_after_a_restart(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TOLD", 1)
    for number in range(4):
        rows.apply(LinkLedger(None, Entry("loss", "unreadable", f"file {number}")))
        rows.writer.forget()
    assert rows.query("SELECT reason, count FROM ledger ORDER BY reason") == [("more", 3), ("unreadable", 1)]
