"""What cannot be of counters is counted with the rows, and marks its session once."""

from __future__ import annotations

import sqlite3

import pytest

from profagent.formats.done import Done
from profagent.ingest.changes import (
    Change,
    FrequencyKnown,
    InferenceTimed,
    LogAdvanced,
    LogReset,
    Redecoded,
    SegmentRecords,
)
from profagent.ingest.reasons import IMPLAUSIBLE_COUNTER
from profagent.store.counter_checks import implausible_of
from profagent.store.stored_session import note_ticks
from profagent.store.writer import Writer
from tests.unit.store.rows import AICORE, JOB, Rows, aicore

SECOND = "data/aicore.0.m.3.0.1.1.5"
CHECKS = "SELECT name, records, implausible, worst, first_pictures, first_path, first_record FROM counter_check"


def some(path: str = AICORE, *values: float, first: int = 0) -> SegmentRecords:
    return aicore(path, [7_000] * len(values), first=first, counters={"dld": list(values)})


def arrived(change: SegmentRecords) -> tuple[Change, Change]:
    return change, LogAdvanced(change.path, 1, 256 * len(change.sequence))


def test_a_session_is_marked_once_with_the_latest_numbers(rows: Rows) -> None:
    rows.apply(*arrived(some(SECOND, 0.5, 2.0)))
    rows.apply(some(AICORE, 0.1, 1.5))
    rows.apply(some(AICORE, 3.0, first=2))
    assert rows.query(CHECKS) == [("dld <= 1", 5, 3, 3.0, 0, AICORE, 1)]
    detail = f"dld is above 1 in 3 of 5 records, at worst 3; first record 1 of {AICORE}"
    query = "SELECT grade, reason, detail, count FROM ledger"
    assert rows.query(query) == [("note", IMPLAUSIBLE_COUNTER, detail, 1)]
    assert implausible_of(rows.connection, 1) == [f"implausible: {JOB}: {detail}"]


def test_counters_that_can_be_leave_no_mark(rows: Rows) -> None:
    rows.apply(some(AICORE, 0.5, 1.0))
    assert rows.query(CHECKS) == [("dld <= 1", 2, 0, None, None, None, None)]
    assert rows.query("SELECT * FROM ledger") == []


def test_rows_that_are_void_do_not_count_and_their_first_and_worst_neither(rows: Rows) -> None:
    rows.apply(*arrived(some(AICORE, 9.0, 0.5)), *arrived(some(SECOND, 0.5, 2.0)))
    rows.apply(LogReset(AICORE))
    assert rows.query(CHECKS) == [("dld <= 1", 2, 1, 2.0, 5, SECOND, 1)]
    rows.apply(LogReset(SECOND))
    assert rows.query(CHECKS) == []
    assert rows.query("SELECT * FROM ledger") == []


def test_rows_that_are_decoded_again_count_once(rows: Rows) -> None:
    rows.apply(*arrived(some(AICORE, 0.5, 2.0)))
    before = rows.query(CHECKS)
    rows.apply(Redecoded(AICORE, some(AICORE, 0.5, 2.0)))
    assert rows.query(CHECKS) == before
    rows.apply(Redecoded(AICORE, some(AICORE, 0.5, 2.0)._replace(counters={})))
    assert rows.query(CHECKS) == [], "no map, no counters"


def test_a_frequency_that_comes_late_makes_rates_known(rows: Rows) -> None:
    rows.apply(aicore(ticks=[7_000, 7_000], counters={"ddr_read_bytes": [1e6, 40e6], "dld": [0.5, 0.5]}))
    assert [row[0] for row in rows.query(CHECKS)] == ["dld <= 1"]
    rows.apply(FrequencyKnown(700))
    assert rows.query(CHECKS) == [
        ("ddr_read_bytes rate", 2, 1, 40e9, 0, AICORE, 1),
        ("dld <= 1", 2, 0, None, None, None, None),
    ]


def test_another_peak_of_the_memory_counts_anew(rows: Rows) -> None:
    rows.apply(FrequencyKnown(700), aicore(ticks=[7_000], counters={"ddr_read_bytes": [40e6]}))
    assert rows.query("SELECT implausible FROM counter_check") == [(1,)]
    rows.writer = Writer(rows.connection, 1, 1, 50e9)
    rows.apply(aicore(ticks=[7_000], first=1, counters={"ddr_read_bytes": [60e6]}))
    assert rows.query("SELECT records, implausible, peak_bytes_per_s FROM counter_check") == [(2, 1, 50e9)]


def test_each_session_has_the_marks_of_what_it_fetched(rows: Rows) -> None:
    rows.apply(some(AICORE, 2.0))
    rows.session()
    rows.apply(some(AICORE, 0.5, first=1))
    assert rows.query("SELECT session, records, implausible FROM counter_check") == [(1, 1, 1), (2, 1, 0)]
    assert implausible_of(rows.connection, 2) == []


@pytest.mark.parametrize(("end_us", "share"), [(10_979, None), (10_978, 1000 / 978), (10_500, 2.0)])
def test_layers_take_no_longer_than_their_inference(rows: Rows, end_us: int, share: float | None) -> None:
    change = aicore(ticks=[3_500, 3_500])
    done = Done(512, 10_000, end_us)
    rows.apply(FrequencyKnown(700), change, InferenceTimed(change.name, 0, done))
    for _ in range(2):
        note_ticks(rows.connection, 1, JOB)
    assert rows.query("SELECT name, records, implausible, worst FROM counter_check") == [
        ("ticks <= .done", 1, 0 if share is None else 1, share)
    ]
    assert len(rows.query("SELECT * FROM ledger")) == (share is not None)


def test_the_ledger_and_the_check_of_ticks_are_written_together(rows: Rows) -> None:
    rows.connection.execute("PRAGMA journal_mode = MEMORY")
    change = aicore(ticks=[3_500, 3_500])
    rows.apply(FrequencyKnown(700), change, InferenceTimed(change.name, 0, Done(512, 10_000, 10_005)))
    rows.connection.execute(
        "CREATE TEMP TRIGGER refused BEFORE INSERT ON main.counter_check BEGIN SELECT raise(FAIL, 'refused'); END"
    )
    with pytest.raises(sqlite3.IntegrityError, match="refused"):
        note_ticks(rows.connection, 1, JOB)
    assert rows.query("SELECT * FROM ledger") == []
