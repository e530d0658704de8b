"""Rows of records, from the changes that carry them."""

from __future__ import annotations

from profagent.ingest.changes import LogAdvanced, LogReset, Redecoded
from profagent.store.database import RECORDS_PER_PART
from tests.unit.store.rows import AICORE, AICPU, CALLS, Rows, aicore, aicpu, calls

RELOAD = "data/aicore.0.m.3.0.1.1.9"


def test_times_beyond_63_bits_are_kept_as_near_as_the_database_can(rows: Rows) -> None:
    huge = 2**64 - 1
    rows.apply(aicpu([(1, huge)], (2, huge)), calls([0, 1], [huge, 2**63 - 1]))
    assert rows.query("SELECT begin_us, end_us FROM aicpu") == [(1, float(huge))]
    assert rows.query("SELECT start_us, end_us FROM segment") == [(2, float(huge))]
    assert rows.query("SELECT end_us FROM api ORDER BY record") == [(float(huge),), (2**63 - 1,)]


def test_a_later_session_extends_the_segment_and_keeps_its_records(rows: Rows) -> None:
    rows.apply(aicore(ticks=(10, 20)))
    rows.session()
    rows.apply(aicore(ticks=(30,), first=2))
    assert rows.query("SELECT session, sequence, ticks FROM op_records") == [(1, 0, 10), (1, 1, 20), (2, 2, 30)]
    assert rows.query("SELECT session FROM inferences") == [(1,)]
    assert rows.query("SELECT ticks FROM segment") == [(60,)]


def test_records_decoded_again_stay_with_the_sessions_that_fetched_them(rows: Rows) -> None:
    rows.apply(LogAdvanced(AICORE, 1, 512), aicore(ticks=(10, 20)))
    rows.session()
    rows.apply(aicore(ticks=(30,), first=2))
    rows.session()
    rows.apply(Redecoded(AICORE, aicore(ticks=(1, 2, 3), ordinals=(0, 0, 1), loads=(0, 0, 1))))
    rows.apply(aicore(ticks=(4,), first=3, ordinals=(1,), loads=(1,)))
    assert rows.query("SELECT session, ticks FROM op_records") == [(1, 1), (1, 2), (2, 3), (3, 4)]
    assert rows.query("SELECT session, load FROM inferences") == [(1, 0), (2, 1)]
    assert rows.query("SELECT ordinal, ticks FROM segment ORDER BY ordinal") == [(0, 3), (1, 7)]


def test_bytes_that_no_transaction_knows_are_not_decoded_again(rows: Rows) -> None:
    rows.apply(Redecoded(AICORE, aicore()))
    assert rows.query("SELECT * FROM aicore") == rows.query("SELECT * FROM segment") == []


def test_a_new_generation_voids_one_log_and_leaves_the_others(rows: Rows) -> None:
    rows.apply(*(LogAdvanced(path, 1, 9) for path in (AICORE, AICPU, RELOAD, CALLS)))
    rows.apply(aicore(), aicpu([(1, 2)], (1, 2)), aicore(RELOAD), calls([0, 1]))
    rows.apply(LogReset(AICORE), LogReset(CALLS))
    assert rows.query("SELECT count(*) FROM aicore") == [(2,)]
    assert rows.query("SELECT count(*) FROM aicpu") == [(1,)]
    assert rows.query("SELECT count(*) FROM api") == [(0,)]
    assert rows.query("SELECT kind, current_pic_count FROM segment JOIN inference USING (inference)") == [
        ("aicpu", 0),
        ("aicore", 9),
    ]
    rows.apply(LogReset(AICPU))
    assert rows.query("SELECT current_pic_count FROM inference") == [(9,)]
    rows.apply(aicore(ticks=(7,)))
    assert rows.query("SELECT ticks FROM op_records WHERE current_pic_count = 0") == [(7,)]


def test_a_voided_log_may_have_filled_several_parts(rows: Rows) -> None:
    rows.apply(LogAdvanced(CALLS, 1, 9), calls([0, RECORDS_PER_PART, RECORDS_PER_PART + 1]))
    assert rows.query("SELECT count(*) FROM part") == [(2,)]
    rows.apply(LogReset(CALLS))
    assert rows.query("SELECT * FROM api") == rows.query("SELECT * FROM part") == []


def test_a_log_without_its_first_record_begins_with_the_first_it_has(rows: Rows) -> None:
    rows.apply(calls([3, 4]))
    assert rows.query("SELECT record & 0xffffff, first_record FROM api JOIN part") == [(0, 3), (1, 3)]


def test_records_may_fill_several_parts_at_once(rows: Rows) -> None:
    rows.apply(calls([0, 3 * RECORDS_PER_PART]))
    assert rows.query("SELECT record >> 24, record & 0xffffff FROM api") == [(1, 0), (4, 0)]
