"""Where the runtime's ring of calls may have overflowed."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest

from profagent.formats.done import Done
from profagent.ingest.changes import ContentLedger, InferenceTimed, PassedOver
from profagent.ingest.datalog import RING_CALLS
from profagent.store.stored_session import most_calls_between, note_full_rings
from tests.unit.store.rows import AICORE, CALLS, JOB, Rows, aicore, calls, name_of


@pytest.mark.parametrize(
    ("ends", "flushes", "most"),
    [
        ([], [], 0),
        ([], [5], 0),
        ([1, 2, 3], [], 3),
        ([1, 2, 3], [2], 2),
        ([1, 2, 3, 7, 8, 9, 10], [3, 6], 4),
        ([1, 5, 9], [1, 5, 9], 1),
    ],
)
def test_calls_are_counted_up_to_the_flush_that_wrote_them(ends: list[int], flushes: list[int], most: int) -> None:
    assert most_calls_between(np.array(ends, np.float64), np.array(flushes, np.float64)) == most


def fill(rows: Rows, count: int, *flushes: int) -> None:
    """Calls that end at 0, 1, 2, …, and inferences that end at `flushes`."""
    rows.apply(calls(range(count), range(count)))
    for number, end_us in enumerate(flushes):
        path = f"data/aicore.0.m.3.0.1.1.{number}"
        rows.apply(aicore(path), InferenceTimed(name_of(path), 0, Done(512, 1, end_us)))


def noted(rows: Rows, session: int = 1) -> list[tuple[object, ...]]:
    note_full_rings(rows.connection, session, 1, JOB)
    return rows.query("SELECT session, log, grade, reason, count FROM ledger")


@pytest.mark.parametrize(("count", "is_full"), [(RING_CALLS - 1, False), (RING_CALLS, True), (2 * RING_CALLS, True)])
def test_as_many_calls_as_the_ring_holds_are_noted(rows: Rows, count: int, *, is_full: bool) -> None:
    fill(rows, count)
    assert noted(rows) == [(1, CALLS, "note", "ring-full", count)] * is_full


def test_a_sampled_inference_flushes_the_ring(rows: Rows) -> None:
    fill(rows, 600, 300)
    assert noted(rows) == []


def test_the_note_stays_until_it_is_another(rows: Rows) -> None:
    fill(rows, 600)
    first = noted(rows)
    rows.session()
    assert noted(rows, 2) == first
    rows.apply(ContentLedger(CALLS, ()))
    assert noted(rows, 2) == first


def test_a_note_is_not_taken_back_where_the_other_is_not_written(rows: Rows) -> None:
    rows.connection.execute("PRAGMA journal_mode = MEMORY")
    fill(rows, 600)
    first = noted(rows)
    rows.apply(calls(range(600, 700), range(600, 700)))
    rows.connection.execute(
        "CREATE TEMP TRIGGER refused BEFORE INSERT ON main.ledger_entry BEGIN SELECT raise(FAIL, 'refused'); END"
    )
    with pytest.raises(sqlite3.IntegrityError, match="refused"):
        note_full_rings(rows.connection, 1, 1, JOB)
    assert rows.query("SELECT session, log, grade, reason, count FROM ledger") == first
    fill(rows, 0, 300)
    assert noted(rows, 2) == []


def test_times_beyond_63_bits_do_not_harm(rows: Rows) -> None:
    rows.apply(calls(range(3), [1, 2**64 - 1, 2]))
    assert noted(rows) == []


def test_calls_of_other_models_are_not_counted(rows: Rows) -> None:
    for model in ("m", "n"):
        path = f"data/acl_api.0.{model}.0"
        rows.apply(calls(range(300), path=path))
    assert noted(rows) == []
    assert AICORE not in str(rows.query("SELECT * FROM ledger"))


def test_flushes_at_samples_that_were_passed_over_are_not_known(rows: Rows) -> None:
    path = "data/aicore.0.m.3.0.1.1.0"
    fill(rows, 600)
    rows.apply(aicore(path), PassedOver(path))
    assert noted(rows) == []
