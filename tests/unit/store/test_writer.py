"""Changes become rows in one transaction, or none of them does."""

from __future__ import annotations

from typing import Any

import pytest

from profagent.errors import DiskFullError, StoreError
from profagent.formats.model_info import Layer, LayerTable, Run
from profagent.ingest.changes import (
    ContentLedger,
    Entry,
    JobChanges,
    LayersKnown,
    LogAdvanced,
    SimulatedKnown,
)
from tests.unit.store.rows import AICORE, JOB, Rows, aicore, calls


def table(*names: str) -> LayerTable:
    layers = tuple(Layer(10 + i, name, "Conv", 1 + i, 0, 0, is_batch=False) for i, name in enumerate(names))
    runs = (Run(i, (each,), each.layer_id, each.name, each.type, 0, is_batch=False) for i, each in enumerate(layers))
    return LayerTable(layers, tuple(runs))


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
