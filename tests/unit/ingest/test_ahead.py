"""First bytes that were read ahead are taken once, and only where they are the very ones."""

from __future__ import annotations

from profagent.ingest.states import BYTES_TOGETHER, Ahead
from profagent.store.counter_maps import simulated_map
from tests.encoders import aicore_record

ONE = b"".join(aicore_record(sequence, 10, 0) for sequence in range(3))
OTHER = aicore_record(7, 20, 1)


def test_each_log_takes_its_own_records() -> None:
    ahead = Ahead()
    ahead.read([("one", ONE), ("other", OTHER)], None)
    other, one = ahead.take("other", OTHER, None), ahead.take("one", ONE, None)
    assert one is not None
    assert other is not None
    assert one[1].sequence.tolist() == [0, 1, 2]
    assert (other[1].sequence.tolist(), other[1].net.tolist(), other[1].ticks.tolist()) == ([7], [1], [20])


def test_a_log_takes_nothing_twice() -> None:
    ahead = Ahead()
    ahead.read([("one", ONE)], None)
    assert ahead.take("one", ONE, None) is not None
    assert ahead.take("one", ONE, None) is None


def test_other_bytes_are_not_what_was_read() -> None:
    ahead = Ahead()
    ahead.read([("one", ONE)], None)
    assert ahead.take("one", ONE[:256] + OTHER, None) is None


def test_another_counter_map_reads_other_values() -> None:
    ahead = Ahead()
    ahead.read([("one", ONE)], None)
    assert ahead.take("one", ONE, simulated_map()) is None


def test_what_was_not_taken_is_dropped_by_the_next() -> None:
    ahead = Ahead()
    ahead.read([("one", ONE)], None)
    ahead.read([("other", OTHER)], None)
    assert ahead.take("one", ONE, None) is None


def test_bytes_without_a_whole_record_are_left_out() -> None:
    ahead = Ahead()
    ahead.read([("empty", b""), ("torn", ONE[:255]), ("one", ONE)], None)
    assert ahead.take("torn", ONE[:255], None) is None
    assert ahead.take("one", ONE, None) is not None


def test_more_than_one_pass_reads_all() -> None:
    ahead, large = Ahead(), OTHER * (BYTES_TOGETHER // len(OTHER))
    ahead.read([("first", large), ("second", large), ("third", OTHER)], None)
    for path, data in (("first", large), ("second", large), ("third", OTHER)):
        found = ahead.take(path, data, None)
        assert found is not None
        assert len(found[1].sequence) == len(data) // 256
