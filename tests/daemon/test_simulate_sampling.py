"""The interval rule against what the real driver was seen to sample."""

from __future__ import annotations

import pytest

from profagentd.simulate.npu import Sampling


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


@pytest.mark.parametrize("interval", [1, 2, 3, 5])
@pytest.mark.parametrize("busy", [3, 5])
def test_a_sample_waits_for_the_writer_and_the_count_restarts_there(interval: int, busy: int) -> None:
    sampling = Sampling(interval, busy, each=1)
    taken = [number for number in range(16) if sampling.takes_next()]
    assert taken == list(range(0, 16, max(interval, busy)))


def test_a_busy_writer_does_not_wake_an_interval_of_0() -> None:
    sampling = Sampling(0, 3, each=1)
    assert [number for number in range(16) if sampling.takes_next()] == [0]


def test_the_simulated_writer_is_busy_after_each_tenth_sample() -> None:
    sampling = Sampling(2, 5)
    taken = [number for number in range(50) if sampling.takes_next()]
    assert taken == [*range(0, 20, 2), *range(23, 42, 2), 46, 48]
