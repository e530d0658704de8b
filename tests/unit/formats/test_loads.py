"""Which load a sample belongs to, by when the inferences of each file began."""

from __future__ import annotations

import pytest

from profagent.formats.sampling import counts_of_loads


@pytest.mark.parametrize(
    ("times", "loads"),
    [
        ({0: [1, 5], 10: [2, 6], 20: [3]}, [[0, 10, 20], [0, 10]]),
        ({0: [1, 5], 10: [2], 12: [7], 24: [8]}, [[0, 10], [0, 12, 24]]),
        # Of a file with two inferences an import knows the time of the last.
        ({0: [None, 5], 10: [None, 6], 20: [3]}, [[0, 10, 20], [0, 10]]),
        ({0: [1, 5, 9], 10: [2, 9]}, [[0, 10], [0], [0, 10]]),
        ({0: [None, None, 9], 10: [11]}, [[0], [0], [0, 10]]),
    ],
)
def test_what_began_after_a_load_and_before_the_next_is_its_own(
    times: dict[int, list[int | None]], loads: list[list[int]]
) -> None:
    assert counts_of_loads(times) == loads


@pytest.mark.parametrize(
    "times",
    [
        {0: [1, 5], 10: [None]},  # no time
        {0: [None, None, 9], 10: [4]},  # before the last load; of the first or the second
        {0: [1, 5], 10: [2, 6], 20: [3, 7, 9]},  # more inferences than loads that are known
        {0: [1, 5], 10: [4], 20: [3]},  # the clock was set
        {0: [1, 5, 9], 10: [2, 3]},  # two of one load
        {10: [1]},
    ],
)
def test_what_cannot_be_told_is_not_guessed(times: dict[int, list[int | None]]) -> None:
    assert counts_of_loads(times) is None
