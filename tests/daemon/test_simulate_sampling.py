"""The interval rule against what the real driver was seen to sample."""

from __future__ import annotations

import pytest

from profagentd.simulate.sampling import Sampling


@pytest.mark.parametrize(
    ("interval", "sampled"),
    [
        (0, [0]),
        (1, list(range(16))),
        (2, [0, 2, 4, 6, 8, 10, 12, 14]),
        (3, [0, 3, 6, 9, 12, 15]),
        (5, [0, 5, 10, 15]),
        (9_999, [0]),
    ],
)
def test_sampled_inferences_of_sixteen(interval: int, sampled: list[int]) -> None:
    sampling = Sampling(interval)
    assert [number for number in range(16) if sampling.takes_next()] == sampled
