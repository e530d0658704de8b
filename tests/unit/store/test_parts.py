"""Keys of records: unique over all logs, and each in a part of the session that fetched it."""

from __future__ import annotations

import numpy as np
import pytest

from profagent.store.logs import LogRow, LogRows
from profagent.store.parts import RECORDS_PER_PART, PartRows
from profagent.store.samples import SampleRows
from tests.unit.store.rows import AICORE, AICPU, Rows


@pytest.fixture
def row(rows: Rows) -> LogRow:
    rows.apply()
    return LogRows(rows.connection, 1, SampleRows(rows.connection, 1)).row(AICORE)


def keys(rows: Rows, row: LogRow, session: int, *numbers: int, fetched: int = 0) -> list[tuple[int, int, int]]:
    """Part, number in the part and session of each record."""
    found, sessions = PartRows(rows.connection, session).keys(row, np.array(numbers), fetched=fetched)
    return [(*divmod(key, RECORDS_PER_PART), who) for key, who in zip(found.tolist(), sessions, strict=True)]


def test_records_count_from_the_start_of_their_part(rows: Rows, row: LogRow) -> None:
    assert keys(rows, row, 1, 0, 1, 5) == [(1, 0, 1), (1, 1, 1), (1, 5, 1)]
    assert keys(rows, row, 1, 6) == [(1, 6, 1)]
    assert rows.query("SELECT part, log, session, first_record FROM part") == [(1, row.log, 1, 0)]


def test_a_log_without_its_first_record_begins_with_the_first_it_has(rows: Rows, row: LogRow) -> None:
    assert keys(rows, row, 1, 3, 4) == [(1, 0, 1), (1, 1, 1)]


def test_another_log_has_parts_of_its_own(rows: Rows, row: LogRow) -> None:
    other = LogRows(rows.connection, 1, SampleRows(rows.connection, 1)).row(AICPU)
    assert keys(rows, row, 1, 0) == [(1, 0, 1)]
    assert keys(rows, other, 1, 0) == [(2, 0, 1)]
    assert keys(rows, row, 1, 1) == [(1, 1, 1)]


def test_a_part_that_is_full_is_followed_by_another(rows: Rows, row: LogRow) -> None:
    last = RECORDS_PER_PART - 1
    assert keys(rows, row, 1, 0) == [(1, 0, 1)]
    assert keys(rows, row, 1, last, last + 1, last + 2) == [(1, last, 1), (2, 0, 1), (2, 1, 1)]
    assert keys(rows, row, 1, last + 3) == [(2, 2, 1)]


def test_records_may_fill_several_parts_at_once(rows: Rows, row: LogRow) -> None:
    assert keys(rows, row, 1, 0, 3 * RECORDS_PER_PART) == [(1, 0, 1), (4, 0, 1)]


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_later_session_has_the_records_that_it_fetched(rows: Rows, row: LogRow, *, is_forgotten: bool) -> None:
    rows.session()
    keys(rows, row, 1, 0, 1)
    if is_forgotten:
        row.parts = None
    assert keys(rows, row, 2, 2, 3) == [(2, 0, 2), (2, 1, 2)]


def test_records_that_are_decoded_again_stay_where_they_were(rows: Rows, row: LogRow) -> None:
    rows.session()
    before = [*keys(rows, row, 1, 0, 1), *keys(rows, row, 2, 2, 3)]
    rows.session()
    row.parts = None
    assert keys(rows, row, 3, 0, 1, 2, 3, fetched=4) == before
    assert keys(rows, row, 3, 0, 1, 2, 3, 4, fetched=4) == [*before, (3, 0, 3)]


def test_no_records_make_no_part(rows: Rows, row: LogRow) -> None:
    assert keys(rows, row, 1) == []
    assert rows.query("SELECT * FROM part") == []


def test_voided_parts_are_gone(rows: Rows, row: LogRow) -> None:
    keys(rows, row, 1, 0)
    parts = PartRows(rows.connection, 1)
    assert parts.bounds(row) == [(RECORDS_PER_PART, 2 * RECORDS_PER_PART - 1)]
    parts.void(row)
    assert rows.query("SELECT * FROM part") == []
    assert parts.bounds(row) == []
