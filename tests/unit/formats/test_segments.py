"""Records of one file fall into segments and inferences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from profagent.formats.records import AicoreSegment, AicpuSegment, Splitter, place


def test_an_aicpu_segment_between_keeps_its_times() -> None:
    aicore = [AicoreSegment(0, 0, 50.5), AicoreSegment(2, 1, 10.0)]
    assert place(1000, aicore, [AicpuSegment(1, 0, 1100, 1200)]) == [1000, 1200]


def test_without_a_start_only_what_follows_a_known_end_is_placed() -> None:
    aicore = [AicoreSegment(0, 0, 50.0), AicoreSegment(2, 1, 10.0), AicoreSegment(3, 2, 10.0)]
    assert place(None, aicore, []) == [None, None, None]
    assert place(None, aicore, [AicpuSegment(1, 0, 1100, 1200)]) == [None, 1200, 1210]


RELOADED = [(0, 0), (0, 1), (0, 0), (0, 1), (0, 2)]


def split(records: Sequence[tuple[int, int]], *, last_start: int | None = None) -> list[list[int]]:
    """Segments and loads of records given as (net, sequence)."""
    nets, sequences = np.array(records, dtype="<u4").T
    found = Splitter(last_load_record=last_start).feed(sequences, nets)
    return [found.segment.tolist(), found.load.tolist()]


def gaps(records: Sequence[tuple[int, int]]) -> list[tuple[int, int, bool]]:
    """Record index, missing numbers and oddness of each gap."""
    nets, sequences = np.array(records, dtype="<u4").T
    found = Splitter().feed(sequences, nets)
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
