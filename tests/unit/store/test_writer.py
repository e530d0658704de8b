"""Changes become rows in one transaction, or none of them does."""

from __future__ import annotations

import gc
import sqlite3
import weakref

import pytest

from profagent.formats.layers import Layer, LayerTable, Run
from profagent.ingest.changes import (
    ContentLedger,
    Entry,
    FrequencyKnown,
    JobChanges,
    LayersKnown,
    LogAdvanced,
    LogRemoved,
    LogReset,
    SimulatedKnown,
)
from profagent.store.writer import REMEMBERED_JOBS
from tests.unit.store.rows import AICORE, JOB, Rows, aicore, calls


def table(*names: str) -> LayerTable:
    layers = tuple(Layer(10 + i, name, "Conv", 1 + i, 0, 0, is_batch=False) for i, name in enumerate(names))
    runs = (Run(i, (each,), each.layer_id, each.name, each.type, 0, is_batch=False) for i, each in enumerate(layers))
    return LayerTable(layers, tuple(runs))


def test_a_log_is_as_far_as_it_came(rows: Rows) -> None:
    query = "SELECT path, generation, offset, complete, digest FROM log"
    rows.apply(LogAdvanced(AICORE, 1, 256), LogAdvanced(AICORE, 1, 300))
    assert rows.query(query) == [(AICORE, 1, 300, 0, None)]
    rows.apply(LogAdvanced(AICORE, 1, 300, complete=True, digest=b"d"))
    assert rows.query(query) == [(AICORE, 1, 300, 1, b"d")]
    rows.apply(LogRemoved(AICORE))
    assert rows.query(query) == [(AICORE, 1, 300, 2, b"d")]
    rows.apply(LogReset(AICORE), LogAdvanced(AICORE, 2, 0))
    assert rows.query(query) == [(AICORE, 2, 0, 0, None)]


def test_a_job_has_its_state_its_directory_and_its_frequency(rows: Rows) -> None:
    rows.apply()
    query = "SELECT name, directory, state, frequency_mhz FROM job"
    assert rows.query(query) == [(JOB, "/board", "open", None)]
    rows.apply(FrequencyKnown(700), state="finished")
    rows.apply()
    assert rows.query(query) == [(JOB, "/board", "finished", 700)]


def test_a_job_belongs_to_every_session_that_took_part(rows: Rows) -> None:
    rows.apply()
    rows.apply()
    rows.session()
    rows.apply()
    assert rows.query("SELECT session, job FROM session_job") == [(1, 1), (2, 1)]


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


def test_an_error_leaves_nothing_of_its_batch(rows: Rows) -> None:
    rows.apply(LogAdvanced(AICORE, 1, 512), aicore())
    before = list(rows.connection.iterdump())
    broken = LogAdvanced(AICORE, 1, "no number", digest=object())  # type: ignore[arg-type]
    good = JobChanges("JOB" + "B" * 29, "/board", (LogAdvanced(AICORE, 1, 512), aicore(), calls([0])))
    bad = JobChanges(JOB, "/board", (aicore(first=2), ContentLedger(AICORE, (Entry("note", "x", "y"),)), broken))
    with pytest.raises(sqlite3.Error):
        rows.writer.apply([good, bad])
    assert list(rows.connection.iterdump()) == before


def test_a_batch_after_an_error_finds_its_own_numbers(rows: Rows) -> None:
    rows.apply(LogAdvanced(AICORE, 1, 256), aicore(ticks=(1,)))
    broken = LogAdvanced("data/x", 1, 0, digest=object())  # type: ignore[arg-type]
    entry = ContentLedger(AICORE, (Entry("note", "x", "y"),))
    for _ in range(2):
        with pytest.raises(sqlite3.Error):
            rows.apply(entry, aicore(ticks=(2, 3), first=1, ordinals=(0, 1), stretches=(0, 1)), calls([0]), broken)
    rows.apply(entry, aicore(ticks=(2, 3), first=1, ordinals=(0, 1), stretches=(0, 1)), calls([0]))
    assert rows.query("SELECT ordinal, stretch, r.ticks FROM aicore r JOIN segment USING (segment) JOIN inference"
                      " USING (inference) ORDER BY record") == [(0, 0, 1), (0, 0, 2), (1, 1, 3)]  # fmt: skip
    assert rows.query("SELECT count(*) FROM ledger") == rows.query("SELECT count(*) FROM api") == [(1,)]


def test_a_rollback_by_sqlite_itself_keeps_its_reason(rows: Rows) -> None:
    (pages,) = rows.query("PRAGMA page_count")[0]
    rows.connection.execute("PRAGMA journal_mode = DELETE")
    rows.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        rows.apply(*(aicore(f"data/aicore.0.m.3.0.1.1.{n}", ticks=(1,) * 50) for n in range(100)))
    rows.connection.execute("PRAGMA max_page_count = 100000")
    assert rows.query("SELECT count(*) FROM aicore") == [(0,)]
    rows.apply(aicore())
    assert rows.query("SELECT count(*) FROM aicore") == [(2,)]


def test_only_so_many_jobs_are_remembered(rows: Rows) -> None:
    names = [f"JOB{'A' * 28}{chr(ord('A') + number)}" for number in range(REMEMBERED_JOBS + 3)]
    for name in names:
        rows.apply(LogAdvanced(AICORE, 1, 256), aicore(ticks=(1,)), job=name)
    assert len(rows.writer._jobs) == REMEMBERED_JOBS
    rows.apply(LogAdvanced(AICORE, 1, 512), aicore(ticks=(2,), first=1), job=names[0])
    assert rows.query("SELECT ticks FROM op_records WHERE job = ?", names[0]) == [(1,), (2,)]
    assert rows.query("SELECT count(*) FROM segment") == [(len(names),)]


def test_nothing_is_remembered_of_a_job_that_has_ended(rows: Rows) -> None:
    rows.apply(LogAdvanced(AICORE, 1, 256), aicore(ticks=(1,)), state="open")
    known = weakref.ref(rows.writer._jobs[JOB])
    gc.disable()
    try:
        rows.writer.apply([JobChanges(JOB, "/board", (), "finished", caught_up=True)])
        assert known() is None
    finally:
        gc.enable()
    rows.apply(LogAdvanced(AICORE, 1, 512), aicore(ticks=(2,), first=1))
    assert rows.query("SELECT ticks FROM op_records WHERE job = ?", JOB) == [(1,), (2,)]


def test_several_jobs_are_written_in_one_transaction(rows: Rows) -> None:
    statements: list[str] = []
    rows.connection.set_trace_callback(statements.append)
    rows.writer.apply([JobChanges(JOB, "/a", (aicore(),)), JobChanges("JOB" + "B" * 29, "/b", (aicore(),))])
    rows.connection.set_trace_callback(None)
    assert [each for each in statements if each.startswith(("BEGIN", "COMMIT"))] == ["BEGIN IMMEDIATE", "COMMIT"]
    assert rows.query("SELECT count(*) FROM op_records") == [(4,)]


def test_a_later_session_of_a_simulated_job_is_simulated_with_its_map(rows: Rows) -> None:
    rows.apply(SimulatedKnown("simulated", "12"), LogAdvanced("simulated", 1, 0, complete=True, digest=b"d"))
    rows.session()
    rows.apply()
    rows.apply(job="JOB" + "B" * 32)
    rows.session()
    rows.apply(job="JOB" + "B" * 32)
    query = "SELECT session, simulated, counter_map, counter_map_digest FROM session"
    assert rows.query(query) == [(1, 1, "simulated", "12"), (2, 1, "simulated", "12"), (3, 0, None, None)]
