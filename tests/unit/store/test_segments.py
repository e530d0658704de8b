"""Rows of segments: their numbers, and going on with one after everything was forgotten."""

from __future__ import annotations

from profagent.store.writer import Writer
from tests.unit.store.rows import AICORE, Rows, aicore, aicpu

OTHER = "data/aicore.0.m.3.0.1.1.9"


def forget(rows: Rows) -> None:
    """A writer of the same session that remembers nothing."""
    rows.writer = Writer(rows.connection, 1, 1)


def test_many_segments_are_one_statement(rows: Rows) -> None:
    statements: list[str] = []
    rows.connection.set_trace_callback(statements.append)
    rows.apply(aicore(ticks=(1,) * 500, ordinals=range(500)))
    inserts = [each for each in statements if each.startswith("INSERT INTO segment")]
    others = [each for each in statements if "segment" in each and not each.startswith("INSERT")]
    rows.connection.set_trace_callback(None)
    assert rows.query("SELECT count(*), sum(ticks) FROM segment") == [(500, 500)]
    assert len(inserts) == 500, "one prepared statement, traced for each row"
    assert len([each for each in others if not each.startswith("UPDATE")]) < 5


def test_a_segment_goes_on_after_everything_was_forgotten(rows: Rows) -> None:
    rows.apply(aicore(ticks=(10, 20), ordinals=(0, 1)), aicore(OTHER))
    forget(rows)
    rows.apply(aicore(ticks=(30,), first=2, ordinals=(1,)))
    assert rows.query("SELECT path, ordinal, g.ticks FROM segment g JOIN log USING (log) ORDER BY segment") == [
        (AICORE, 0, 10),
        (AICORE, 1, 50),
        (OTHER, 0, 30),
    ]


def test_a_new_segment_begins_after_everything_was_forgotten(rows: Rows) -> None:
    rows.apply(aicore(ticks=(10,)))
    forget(rows)
    rows.apply(aicore(ticks=(30,), first=1, ordinals=(1,)))
    assert rows.query("SELECT ordinal, ticks FROM segment") == [(0, 10), (1, 30)]


def test_numbers_go_on_over_jobs_and_batches(rows: Rows) -> None:
    rows.apply(aicore(ordinals=(0, 1)))
    rows.apply(aicore(ordinals=(0, 1)), job="JOB" + "B" * 29)
    rows.apply(aicore(OTHER))
    assert rows.query("SELECT segment FROM segment ORDER BY segment") == [(1,), (2,), (3,), (4,), (5,)]


def test_a_segment_has_its_net_and_its_unit(rows: Rows) -> None:
    rows.apply(aicore(net=2), aicpu([(5, 6)], (4, 9), net=1))
    assert rows.query("SELECT kind, net, start_us, end_us, ticks FROM segment ORDER BY net") == [
        ("aicpu", 1, 4, 9, 0),
        ("aicore", 2, None, None, 30),
    ]
