"""Rows of inferences: one for each file and load, timed by its `.done`, its segments placed in time."""

from __future__ import annotations

import pytest

from profagent.formats.board_files import Done
from profagent.ingest.changes import (
    Change,
    FrequencyKnown,
    InferenceTimed,
    LogAdvanced,
    LogAnnounced,
    LogJudged,
    LogReset,
)
from tests.unit.store.rows import AICORE, AICPU, Rows, aicore, aicpu, name_of

DONE = Done(512, 1_000, 2_000, cache_hit=3, cache_miss=1)


def timed(path: str = AICORE, load: int = 0, done: Done | None = DONE) -> InferenceTimed:
    return InferenceTimed(name_of(path), load, done)


def whole(path: str = AICORE) -> LogJudged:
    """All records of a log's first inference are here."""
    return LogJudged(path, 1, "")


def test_an_inference_is_what_its_files_name_says(rows: Rows) -> None:
    path = "data/aicore.0.my.model.65535.7.8.29.18446744073709551600"
    rows.apply(aicore(path), aicore(path, first=2))
    columns = "device_id, model, model_id, stream_id, batch_num, input_pic_num, current_pic_count, load, complete"
    assert rows.query(f"SELECT {columns} FROM inferences") == [
        (0, "my.model", 7, 65535, 8, 29, "18446744073709551600", 0, 0)
    ]


def test_a_done_times_its_load_and_can_be_taken_back(rows: Rows) -> None:
    query = "SELECT load, start_us, end_us, cache_hit, cache_miss, online_batch_num, complete FROM inferences"
    rows.apply(aicore(ordinals=(0, 1), loads=(0, 1)), timed(load=1, done=DONE._replace(online_batch_num=(4, 2))))
    assert rows.query(query) == [(0, *(None,) * 5, 0), (1, 1_000, 2_000, 3, 1, "4,2", 1)]
    rows.apply(timed(load=1, done=None), timed(load=0))
    assert rows.query(query) == [(0, 1_000, 2_000, 3, 1, None, 1), (1, *(None,) * 5, 0)]


def placed(rows: Rows) -> list[tuple[object, ...]]:
    return rows.query("SELECT kind, net, start_us, end_us FROM segment ORDER BY net")


def test_segments_stand_one_after_the_other_between_the_units(rows: Rows) -> None:
    changes = [aicore(ticks=(7, 14), net=0), aicore(ticks=(21,), first=2, net=2, ordinals=(1,))]
    cpu = aicpu([(1_005, 1_010)], (1_004, 1_012))
    rows.apply(FrequencyKnown(700), *changes, cpu, timed(), whole(), whole(AICPU))
    # 7 ticks at 700 MHz are 1 µs.
    assert placed(rows) == [("aicore", 0, 1_000, 1_003), ("aicpu", 1, 1_004, 1_012), ("aicore", 2, 1_012, 1_015)]
    assert rows.query("SELECT start_us, duration_us FROM op_records ORDER BY segment, sequence") == [
        (1_000, 1),
        (1_001, 2),
        (1_012, 3),
    ]


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5), (5, 4, 3, 2, 1, 0), (1, 3, 5, 0, 2, 4), (2, 5, 0, 4, 3, 1)])
def test_placing_waits_for_what_it_needs(rows: Rows, order: tuple[int, ...]) -> None:
    changes: list[Change] = [
        FrequencyKnown(700),
        aicore(ticks=(7,), net=2),
        aicpu([(1_005, 1_010)], (1_004, 1_012)),
        timed(),
        whole(),
        whole(AICPU),
    ]
    later = [changes[number] for number in order]
    # A time that comes before its records is told again with them, as decoding does.
    for change in [*later, changes[3]]:
        rows.apply(change)
    assert placed(rows) == [("aicpu", 1, 1_004, 1_012), ("aicore", 2, 1_000, 1_001)]


def test_segments_are_not_placed_while_a_log_that_was_announced_has_not_come(rows: Rows) -> None:
    rows.apply(LogAnnounced(AICORE), LogAnnounced(AICPU))
    rows.apply(FrequencyKnown(700), aicore(ticks=(7,)), timed(), whole())
    assert placed(rows) == [("aicore", 0, None, None)]
    assert rows.query("SELECT figures, why FROM inferences") == [("pending", "aicpu records have not all come yet")]
    rows.apply(aicpu([(1_005, 1_010)], (1_004, 1_012)), whole(AICPU))
    assert placed(rows) == [("aicore", 0, 1_000, 1_001), ("aicpu", 1, 1_004, 1_012)]
    assert rows.query("SELECT figures, why FROM inferences") == [("final", None)]


def test_a_time_that_is_taken_back_takes_the_places_with_it(rows: Rows) -> None:
    rows.apply(FrequencyKnown(700), aicore(ticks=(7,)), timed(), whole())
    assert placed(rows) == [("aicore", 0, 1_000, 1_001)]
    rows.apply(timed(done=None))
    assert placed(rows) == [("aicore", 0, None, None)]


def test_another_frequency_places_everything_anew(rows: Rows) -> None:
    rows.apply(FrequencyKnown(700), aicore(ticks=(7,)), timed(), whole())
    rows.apply(FrequencyKnown(350))
    assert placed(rows) == [("aicore", 0, 1_000, 1_002)]


def test_what_a_new_generation_leaves_of_an_inference_has_no_times(rows: Rows) -> None:
    rows.apply(LogAdvanced(AICORE, 1, 9), LogAdvanced(AICPU, 1, 9), aicore(), aicpu([(5, 6)], (4, 9)), timed())
    rows.apply(LogReset(AICPU))
    assert rows.query("SELECT complete, start_us FROM inferences") == [(1, 1_000)]
    rows.apply(aicpu([(5, 6)], (4, 9)), LogReset(AICORE))
    assert rows.query("SELECT complete, start_us FROM inferences") == [(0, None)]
