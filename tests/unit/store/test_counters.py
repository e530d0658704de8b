"""What cannot be of counters is noted once for each session, when a JOB or the capture ends."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from profagent.formats.board_files import Done
from profagent.formats.countermap import COUNTER_NAMES, RATES, SHARES
from profagent.ingest.changes import FrequencyKnown, InferenceTimed, LogAdvanced, LogReset, Redecoded, SegmentRecords
from profagent.ingest.reasons import IMPLAUSIBLE_COUNTER
from profagent.store.queries import implausible_of
from profagent.store.sessions import MapUsed
from tests.unit.store.rows import AICORE, JOB, Rows, aicore

SECOND = "data/aicore.0.m.3.0.1.1.5"
MAP = MapUsed("mine", "12")


@pytest.fixture
def rows(rows: Rows) -> Rows:
    rows.session(decoded_with=MAP)
    return rows


def some(path: str = AICORE, *values: float, first: int = 0) -> SegmentRecords:
    return aicore(path, [7_000] * len(values), first=first, counters={"dld": list(values)})


def noted(rows: Rows) -> list[tuple[int, str]]:
    rows.finish()
    return rows.query("SELECT session, detail FROM ledger WHERE reason = ?", IMPLAUSIBLE_COUNTER)


def test_a_session_is_marked_once_with_the_latest_numbers(rows: Rows) -> None:
    rows.apply(some(SECOND, 0.5, 2.0), some(AICORE, 0.1, 1.5))
    assert noted(rows) == [(2, f"dld is above 1 in 2 of 4 records, at worst 2; first record 1 of {AICORE}")]
    rows.apply(some(AICORE, 3.0, first=2))
    detail = f"dld is above 1 in 3 of 5 records, at worst 3; first record 1 of {AICORE}"
    assert noted(rows) == [(2, detail)]
    assert rows.ask(implausible_of, 2) == [f"implausible: {JOB}: {detail}"]


@pytest.mark.parametrize("changes", [(some(AICORE, 0.5, 1.0),), (aicore(),)])
def test_counters_that_can_be_leave_no_mark(rows: Rows, changes: tuple[SegmentRecords, ...]) -> None:
    rows.apply(*changes)
    assert noted(rows) == []


def test_rows_that_are_void_do_not_count(rows: Rows) -> None:
    rows.apply(LogAdvanced(AICORE, 1, 512), some(AICORE, 9.0, 0.5), LogAdvanced(SECOND, 1, 512), some(SECOND, 0.5, 2.0))
    rows.apply(LogReset(AICORE))
    assert noted(rows) == [(2, f"dld is above 1 in 1 of 2 records, at worst 2; first record 1 of {SECOND}")]
    rows.apply(Redecoded(SECOND, replace(some(SECOND, 0.5, 2.0), counters={})))
    assert noted(rows) == [], "no map, no counters"


@pytest.mark.parametrize("check", [*SHARES, *RATES])
def test_each_check_is_made(rows: Rows, check: str) -> None:
    counter = RATES.get(check) or SHARES[check][0]
    possible = dict.fromkeys(COUNTER_NAMES[:8], 0.5) | dict.fromkeys(RATES.values(), 1e6)
    impossible = possible | {counter: 1e9 if check in RATES else 1.5 if check.endswith("<= 1") else 0.6}
    counters = {name: [possible[name], impossible[name], math.nan] for name in COUNTER_NAMES}
    rows.apply(FrequencyKnown(700), aicore(ticks=[7_000, 7_000, 0], counters=counters))
    what = f"{counter} is " + ("more than" if check in RATES else "above " + check.partition("<= ")[2])
    assert any(detail.startswith(what) and "in 1 of 2 records" in detail for _, detail in noted(rows))


def test_a_job_that_an_earlier_profagent_began_is_read(rows: Rows) -> None:
    rows.apply(some(AICORE, 2.0))
    rows.query("DROP TABLE counter_bound")
    rows.session(decoded_with=MAP)
    rows.apply(some(SECOND, 0.5))
    assert [session for session, _ in noted(rows)] == [2]


def test_counters_beyond_any_float_are_told(rows: Rows) -> None:
    rows.apply(aicore(ticks=[7_000], counters={"mac_busy": [math.inf], "mac_ppen": [math.inf]}))
    assert [detail.partition(" in ")[0] for _, detail in noted(rows)] == ["mac_busy is above 1", "mac_ppen is above 1"]


@pytest.mark.parametrize(("peak", "is_odd"), [(34.1e9, True), (50e9, False)])
def test_rates_are_judged_by_what_the_memory_can_move(rows: Rows, peak: float, *, is_odd: bool) -> None:
    rows.session(decoded_with=MAP, peak_bytes_per_s=peak)
    counters = {"ddr_read_bytes": [1e6, 40e6], "mac_busy": [0.5, 0.5], "mac_ppen": [0.505, 0.4]}
    rows.apply(aicore(ticks=[7_000, 7_000], counters=counters))
    assert noted(rows) == []
    rows.apply(FrequencyKnown(700))
    what = "ddr_read_bytes is more than the memory can move in 1 of 2 records"
    assert [what in detail for _, detail in noted(rows)] == [True] * is_odd


def test_each_session_has_the_marks_of_what_it_fetched(rows: Rows) -> None:
    rows.apply(some(AICORE, 2.0))
    rows.session(decoded_with=MAP)
    rows.apply(some(AICORE, 0.5, first=1))
    assert [session for session, _ in noted(rows)] == [2]


@pytest.mark.parametrize(("end_us", "share"), [(10_979, None), (10_978, 1000 / 978), (10_500, 2.0)])
def test_layers_take_no_longer_than_their_inference(rows: Rows, end_us: int, share: float | None) -> None:
    change = aicore(ticks=[3_500, 3_500])
    rows.apply(FrequencyKnown(700), change, InferenceTimed(change.name, 0, Done(512, 10_000, end_us)))
    found = noted(rows)
    assert noted(rows) == found
    assert len(found) == (share is not None)
    assert share is None or f"in 1 of 1 inferences, at worst {share:,.4g} times; first {AICORE}" in found[0][1]


def test_a_capture_that_ends_before_its_job_is_marked(rows: Rows) -> None:
    rows.apply(some(AICORE, 2.0))
    rows.run(rows.writer.end(99))
    assert rows.ask(implausible_of, 2)
