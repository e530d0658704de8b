"""Where the ring of calls may have overflowed."""

from __future__ import annotations

import numpy as np
import pytest

from profagent.store.rings import most_calls_between


@pytest.mark.parametrize(
    ("ends", "flushes", "most"),
    [
        ([], [], 0),
        ([], [10], 0),
        ([1, 2, 3], [], 3),
        ([1, 2, 3, 11, 12], [10], 3),
        ([1, 11, 12, 13], [10, 20], 3),
        # A call belongs to the first flush that is not before its end.
        ([10, 11], [10, 20], 1),
        ([1, 2, 30, 31, 32], [10, 20], 3),
    ],
)
def test_calls_are_counted_between_neighbouring_flushes(ends: list[int], flushes: list[int], most: int) -> None:
    assert most_calls_between(np.array(ends, np.int64), np.array(flushes, np.int64)) == most
