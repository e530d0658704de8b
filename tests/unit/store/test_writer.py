"""Changes become rows in one transaction, or none of them does."""

from __future__ import annotations

from typing import Any

import pytest

from profagent.errors import DiskFullError, StoreError
from profagent.formats.board_files import Done
from profagent.formats.model_info import Layer, LayerTable, Run
from profagent.ingest.changes import (
    ContentLedger,
    FrequencyKnown,
    InferenceTimed,
    JobChanges,
    LayersKnown,
    LogAdvanced,
    LogJudged,
    LogReset,
    NamesAnnounced,
    Redecoded,
    SimulatedKnown,
)
from profagent.ledger import Entry
from profagent.store.database import RECORDS_PER_PART
from tests.unit.store.rows import AICORE, AICPU, CALLS, JOB, Rows, aicore, aicpu, calls, name_of


def table(*names: str) -> LayerTable:
    layers = tuple(Layer(10 + i, name, "Conv", 1 + i, 0, 0, is_batch=False) for i, name in enumerate(names))
    runs = (Run(i, (each,), each.layer_id, each.name, each.type, 0, is_batch=False) for i, each in enumerate(layers))
    return LayerTable(layers, tuple(runs))


def test_a_simulated_job_marks_its_session_and_names_its_map_once(rows: Rows) -> None:
    rows.apply(SimulatedKnown(None, None))
    query = "SELECT simulated, counter_map, counter_map_digest FROM session"
    assert rows.query(query) == [(1, None, None)]
    rows.apply(SimulatedKnown("simulated", "12"))
    rows.apply(SimulatedKnown("other", "34"))
    assert rows.query(query) == [(1, "simulated", "12")]


def test_a_layer_table_replaces_the_one_before(rows: Rows) -> None:
    rows.apply(LayersKnown("m", 0, table("a", "b")), LayersKnown("n", 0, table("x")), aicore(layers=(0, 1)))
    assert rows.query("SELECT layer_name, layer_id FROM op_records") == [("a", 10), ("b", 11)]
    rows.apply(LayersKnown("m", 0, table("c")))
    assert rows.query("SELECT layer_name, layer_id FROM op_records") == [("c", 10), (None, None)]
    assert rows.query("SELECT name FROM layer ORDER BY name") == [("c",), ("x",)]


def test_a_later_session_of_a_simulated_job_is_simulated_with_its_map(rows: Rows) -> None:
    rows.apply(SimulatedKnown("simulated", "12"), LogAdvanced("simulated", 1, 0, complete=True, digest=b"d"))
    rows.session()
    rows.apply()
    rows.apply(job="JOB" + "B" * 32)
    rows.session()
    rows.apply(job="JOB" + "B" * 32)
    query = "SELECT session, simulated, counter_map, counter_map_digest FROM session"
    assert rows.query(query) == [(1, 1, "simulated", "12"), (2, 1, "simulated", "12"), (3, 0, None, None)]


BROKEN = LogAdvanced("data/x", 1, 0, digest=object())  # type: ignore[arg-type]


def test_an_error_leaves_nothing_of_its_batch_and_the_next_finds_its_own_numbers(rows: Rows) -> None:
    rows.apply(LogAdvanced(AICORE, 1, 256), aicore(ticks=(1,)))
    before = list(rows.connection.iterdump())
    entry = ContentLedger(AICORE, (Entry("note", "x", "y"),))
    more = (entry, aicore(ticks=(2, 3), first=1, ordinals=(0, 1), loads=(0, 1)), calls([0]))
    for _ in range(2):
        with pytest.raises(StoreError):
            rows.write(JobChanges("JOB" + "B" * 29, "/board", more), JobChanges(JOB, "/board", (*more, BROKEN)))
    assert list(rows.connection.iterdump()) == before
    rows.apply(*more)
    assert rows.query(
        "SELECT ordinal, load, r.ticks FROM aicore r JOIN segment USING (segment) JOIN inference"
        " USING (inference) ORDER BY record"
    ) == [(0, 0, 1), (0, 0, 2), (1, 1, 3)]
    assert rows.query("SELECT count(*) FROM ledger") == rows.query("SELECT count(*) FROM api") == [(1,)]


def test_a_full_disk_rolls_back(rows: Rows) -> None:
    ((pages,),) = rows.query("PRAGMA page_count")
    rows.run(rows.store.query(f"PRAGMA max_page_count = {pages + 2}"))
    with pytest.raises(DiskFullError):
        rows.apply(*(aicore(f"data/aicore.0.m.3.0.1.1.{n}", ticks=(1,) * 50) for n in range(100)))
    rows.run(rows.store.query("PRAGMA max_page_count = 100000"))
    assert rows.query("SELECT count(*) FROM aicore") == [(0,)]
    rows.apply(aicore())
    assert rows.query("SELECT count(*) FROM aicore") == [(2,)]


def test_a_batch_of_many_logs_is_few_statements(rows: Rows) -> None:
    statements: list[str] = []
    changes = [
        each
        for n in range(200)
        for path in [f"data/aicore.0.m.3.0.1.1.{n}"]
        for each in (LogAdvanced(path, 1, 512), aicore(path))
    ]
    connection = rows.store._connection
    assert connection is not None
    executed = connection._execute

    async def counting(function: Any, *arguments: Any) -> Any:
        statements.append(str(arguments))
        return await executed(function, *arguments)

    connection._execute = counting  # type: ignore[method-assign]
    rows.apply(*changes)
    assert rows.query("SELECT count(*) FROM aicore") == [(400,)]
    assert len(statements) < 40


# Rows of records, from the changes that carry them

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


# Rows of inferences: one for each file and load, timed by its `.done`, its segments placed in time

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
    rows.apply(NamesAnnounced([AICORE, AICPU]))
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


def test_names_of_an_inference_that_has_rows_are_judged_and_others_are_rows_alone(rows: Rows) -> None:
    later = AICORE[:-1] + "9"
    rows.apply(FrequencyKnown(1000), LogAdvanced(AICORE, 1, 512, complete=True), aicore(), LogJudged(AICORE, 1, ""))
    assert rows.query("SELECT figures FROM inference") == [("final",)]
    rows.apply(NamesAnnounced([AICPU, later, "data/x"]))
    assert rows.query("SELECT figures FROM inference") == [("pending",)]
    assert rows.query("SELECT path, generation FROM log ORDER BY path") == [(AICORE, 1), (later, 0), (AICPU, 0)]
    rows.apply(NamesAnnounced([later]), LogAdvanced(later, 1, 256))
    assert rows.query("SELECT count(*), max(generation) FROM log WHERE path = ?", later) == [(1, 1)]
    assert rows.query("SELECT current_pic_count, session FROM sample") == [(0, 1), (9, 1)]
