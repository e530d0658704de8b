"""Records find their layers by sequence number, and have none where that is not certain."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from profagent.formats.join import UNKNOWN_LAYER, LayerJoin
from profagent.formats.model_info import LayerTable, Net, parse_layer_info
from profagent.formats.names import LogKind
from profagent.formats.records import AICORE_DTYPE, LogProgress, SegmentColumns, Unit, place, read_unit, view_records
from tests.encoders import aicore_record, layer_item


def table_of(*segments: int, batch_layers: Sequence[int] = (), prof_ids: Sequence[int] | None = None) -> LayerTable:
    """A table with a layer for each segment id given."""
    items = (
        layer_item(
            index,
            b"l%d\0" % index,
            prof_layer_id=prof_ids[index] if prof_ids else index,
            segment=segment,
            is_batch=index in batch_layers,
        )
        for index, segment in enumerate(segments)
    )
    return parse_layer_info(b"".join(items), "m.1.layer.info")


def net_of(net_id: int, count: int | None, batch_layers: int = 0, max_loop: int = 1) -> Net:
    """A net with so many profiling layers."""
    return Net(net_id, 1, count, count, batch_layers, max_loop)


def joined(
    join: LayerJoin, records: int, batch_num: int = 1, pictures: int = 1, online: Sequence[int] = (), net: int = 0
) -> list[int]:
    """The layers of sequence numbers 0, 1, 2, …."""
    return join.layer_index(net, np.arange(records, dtype="<u4"), batch_num, pictures, online).tolist()


def test_a_dropped_record_shifts_no_name() -> None:
    join = LayerJoin(table_of(0, 0, 0, 0, 0), [net_of(0, 5)])
    assert join.layer_index(0, np.array([0, 3, 4], dtype="<u4"), 1, 1).tolist() == [0, 3, 4]


def test_layers_with_segment_ids_are_found_in_their_segment() -> None:
    join = LayerJoin(table_of(0, 0, 1, 2, 2), [net_of(0, 2), net_of(1, 1), net_of(2, 2)])
    assert joined(join, 3, net=0) == [0, 1, UNKNOWN_LAYER]
    assert joined(join, 3, net=1) == [2, UNKNOWN_LAYER, UNKNOWN_LAYER]
    assert joined(join, 3, net=2) == [3, 4, UNKNOWN_LAYER]
    assert joined(join, 2, net=3) == [UNKNOWN_LAYER] * 2


@pytest.mark.parametrize("nets", [[], [net_of(0, None), net_of(1, 2)], [net_of(0, 2)]])
def test_a_net_whose_begin_is_not_known_has_no_layers(nets: list[Net]) -> None:
    assert joined(LayerJoin(table_of(0, 0, 0, 0), nets), 2, net=1) == [UNKNOWN_LAYER] * 2


@pytest.mark.parametrize("table", [None, LayerTable((), ())])
def test_without_layers_no_record_has_one(table: LayerTable | None) -> None:
    join = LayerJoin(table, [net_of(0, 3)])
    assert joined(join, 2, 2, 5) == [UNKNOWN_LAYER] * 2


@pytest.mark.parametrize(("batch_num", "pictures"), [(1, 1), (1, 3), (4, 3)])
def test_loops_have_layers_in_their_first_pass_only(batch_num: int, pictures: int) -> None:
    join = LayerJoin(table_of(0, 0), [net_of(0, 2, max_loop=8)])
    assert joined(join, 5, batch_num, pictures) == [0, 1, UNKNOWN_LAYER, UNKNOWN_LAYER, UNKNOWN_LAYER]


def test_huge_announced_numbers_take_no_memory() -> None:
    huge = 2**32 - 1
    join = LayerJoin(table_of(0, 0, 0, batch_layers=[2]), [net_of(0, 3, batch_layers=1)])
    assert joined(join, 3, huge, huge) == [0, 1, 0]
    assert joined(join, 4, 1, huge) == [0, 1, 2, 0]
    assert joined(join, 3, 1, 1, online=[huge] * 8) == [0, 1, 0]
    assert join.layer_index(0, np.array([huge], dtype="<u4"), 1, huge).tolist() == [huge % 3]


def test_aicpu_records_have_the_layers_of_their_segment_in_each_loop() -> None:
    join = LayerJoin(table_of(0, 1, 1, 0), [net_of(0, 2), net_of(1, 2, max_loop=2)])
    assert join.aicpu_layer_index(1, np.arange(5, dtype="<u4")).tolist() == [1, 2, 1, 2, UNKNOWN_LAYER]


@pytest.mark.parametrize(
    "table", [None, table_of(0, 0), table_of(0, 1, 1, prof_ids=[0, 1, 1]), table_of(0, 2)], ids=str
)
def test_aicpu_records_have_no_layers_that_are_not_told_one_by_one(table: LayerTable | None) -> None:
    join = LayerJoin(table, [net_of(0, 1), net_of(1, 2)])
    assert join.aicpu_layer_index(1, np.arange(2, dtype="<u4")).tolist() == [UNKNOWN_LAYER] * 2


@pytest.mark.parametrize(
    ("table", "nets", "said"),
    [
        (table_of(0, 0, 0), [net_of(0, 2)], ["the table has 3 runs of layers, 2 are announced"]),
        (table_of(0, 0, 1), [net_of(0, 2), net_of(1, 2)], ["net 1 has 1 runs of layers, 2 are announced"]),
        (table_of(0, 1), [net_of(2, 2)], ["net 2 has 0 runs of layers, 2 are announced"]),
        (table_of(0, 0), [net_of(0, 2, batch_layers=1)], ["net 0 has 0 batch layers, 1 are announced"]),
        (None, [net_of(0, 2)], ["the table has 0 runs of layers, 2 are announced"]),
    ],
)
def test_counts_that_differ_are_said(table: LayerTable | None, nets: list[Net], said: list[str]) -> None:
    assert LayerJoin(table, nets).disagreements() == said


# Records of one file fall into segments and inferences


NONE = float("nan")


def placed(launch_us: float, *segments: tuple[int, int, float, float], is_whole: bool = True) -> list[float | None]:
    """Starts of segments given as (net, ordinal, duration of aicore, end of aicpu), NaN for what a unit has not."""
    net, ordinal, durations, ends = (np.array(column) for column in zip(*segments, strict=True))
    count = len(segments)
    is_aicore, is_whole_ = ~np.isnan(durations), np.full(count, is_whole)
    launches = np.full(count, launch_us)
    return place(
        SegmentColumns(np.zeros(count, np.int64), is_aicore, net, ordinal, durations, ends, launches, is_whole_)
    )


def test_an_aicpu_segment_between_keeps_its_times() -> None:
    assert placed(1000, (0, 0, 50.5, NONE), (2, 1, 10.0, NONE), (1, 0, NONE, 1200)) == [1000, 1200, None]


def test_without_a_start_only_what_follows_a_known_end_is_placed() -> None:
    aicore = ((0, 0, 50.0, NONE), (2, 1, 10.0, NONE), (3, 2, 10.0, NONE))
    assert placed(NONE, *aicore) == [None, None, None]
    assert placed(NONE, *aicore, (1, 0, NONE, 1200)) == [None, 1200, 1210, None]


def test_nothing_is_placed_where_a_segment_may_have_not_come() -> None:
    assert placed(1000, (0, 0, 50.0, NONE), is_whole=False) == [None]


RELOADED = [(0, 0), (0, 1), (0, 0), (0, 1), (0, 2)]


def unit(records: Sequence[tuple[int, int]], last_loads: dict[int, int] | None = None) -> Unit:
    """A log of records given as (net, sequence)."""
    data = b"".join(aicore_record(sequence, 1, net) for net, sequence in records)
    return read_unit(LogKind.AICORE, [data], LogProgress.new(1), None, last_loads or {})


def split(records: Sequence[tuple[int, int]], *, last_start: int | None = None) -> list[list[int]]:
    """Segments and loads of records given as (net, sequence)."""
    found = unit(records, {} if last_start is None else {0: last_start})
    return [found.seg_ordinal[found.segment].tolist(), found.seg_load[found.segment].tolist()]


def gaps(records: Sequence[tuple[int, int]]) -> list[tuple[int, int, bool]]:
    """Record index, missing numbers and oddness of each gap."""
    found = unit(records)
    return list(zip(found.gap_at.tolist(), found.gap_missing.tolist(), found.is_gap_odd.tolist(), strict=True))


def test_a_net_that_begins_again_is_a_model_loaded_again() -> None:
    assert split(RELOADED) == [[0, 0, 1, 1, 1], [0, 0, 1, 1, 1]]


def test_a_net_that_goes_back_is_a_model_loaded_again() -> None:
    assert split([(0, 0), (2, 0), (0, 0), (2, 0), (2, 1)]) == [[0, 1, 2, 3, 3], [0, 0, 1, 1, 1]]


def test_an_announced_start_begins_a_load_that_leaves_no_trace() -> None:
    assert split([(0, 0), (0, 0), (0, 0)]) == [[0, 0, 0], [0, 0, 0]]
    assert split([(0, 0), (0, 0), (0, 0)], last_start=2) == [[0, 0, 1], [0, 0, 1]]


def test_behind_the_announced_start_a_net_that_begins_again_is_a_loop() -> None:
    assert split(RELOADED, last_start=0) == [[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]
    assert split([(0, 0), (1, 0), (0, 0), (1, 0), (0, 0)], last_start=2) == [[0, 1, 2, 3, 4], [0, 0, 1, 1, 1]]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([(0, 0), (0, 1), (0, 2)], []),
        ([(0, 0), (0, 2), (0, 2), (0, 5)], [(1, 1, False), (3, 2, False)]),
        ([(0, 3)], [(0, 3, False)]),
        ([(0, 0), (1, 10), (1, 12)], [(1, 10, False), (2, 1, False)]),
        ([(0, 0), (0, 10)], [(1, 9, False)]),
        ([(0, 0), (0, 11)], [(1, 10, True)]),
        ([(0, 11)], [(0, 11, True)]),
        ([(0, 5), (0, 0), (0, 1)], [(0, 5, False)]),
    ],
)
def test_missing_numbers_are_counted_in_each_segment(
    records: list[tuple[int, int]], expected: list[tuple[int, int, bool]]
) -> None:
    assert gaps(records) == expected


# What the runtime library's filter leaves of a sequence

EDGE = next((Path(__file__).resolve().parents[2] / "data" / "jobs" / "runtime-edge").glob("JOB*"))


def test_the_runtimes_sequence_filter_leaves_the_gaps_that_the_splitter_finds() -> None:
    data = (EDGE / "data" / "aicore.0.demo_a.3.0.1.1.4").read_bytes()
    records = view_records(data, AICORE_DTYPE)
    first = [0, 5, 14, 24, 24, 25, 26, 27, 28, 38, 48]
    assert records["net"].tolist() == [0] * 11 + [1, 1]
    assert records["sequence"].tolist() == [*first, 10, 12]
    split = read_unit(LogKind.AICORE, [data], LogProgress.new(1))
    assert split.segment.tolist() == [0] * 11 + [1, 1]
    assert split.seg_load.tolist() == [0, 0]
    missing = [after - before - 1 for before, after in pairwise(first) if after - before > 1]
    assert split.gap_missing.tolist() == [*missing, 10, 1]
    assert not split.is_gap_odd.any()
