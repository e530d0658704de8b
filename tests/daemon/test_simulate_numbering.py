"""The numbers of a segment's records, in each way that they may have."""

from __future__ import annotations

import pytest

from profagentd.simulate.draw import numbered_order
from profagentd.simulate.network import Facts

IS_BATCH = [False, False, True, False, False]


@pytest.mark.parametrize(
    ("way", "numbers"),
    [
        ("on", [*range(14)]),
        ("each-batch", [*range(9), *range(5)]),
        ("each-picture", [0, 1, 0, 1, 2, 3, 4, 3, 4, 0, 1, 2, 3, 4]),
        ("once", [*range(10)]),
    ],
)
def test_batches(way: str, numbers: list[int]) -> None:
    """The worked example of format page 3.1: two batch runs, of two pictures and of one."""
    order = numbered_order(IS_BATCH, (2, 1), 1, Facts([f"batch-number={way}"]))
    assert [number for _, _, number in order] == numbers
    assert sum(pictures for index, pictures, _ in order if index == 0) == 3


@pytest.mark.parametrize(("way", "numbers"), [("on", [0, 1, 2, 3, 4, 5]), ("each-pass", [0, 1, 0, 1, 0, 1])])
def test_loops(way: str, numbers: list[int]) -> None:
    order = numbered_order([False, False], (1,), 3, Facts([f"loop-number={way}"]))
    assert order == [(place % 2, 1, number) for place, number in enumerate(numbers)]
