"""Rows of inferences: one for each file and load, timed by its `.done`, its segments placed in time."""

from __future__ import annotations

from profagent.formats.board_files import Done
from profagent.ingest.changes import (
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
