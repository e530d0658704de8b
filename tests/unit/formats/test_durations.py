"""Ticks to microseconds, as one can check by hand."""

from __future__ import annotations

import numpy as np
import pytest

from profagent.formats.records import ticks_to_us


@pytest.mark.parametrize(
    ("ticks", "frequency_mhz", "us"), [(7, 700, 1.0), (1300, 700, 130_000 / 700), (0, 700, 0.0), (1, 100, 1.0)]
)
def test_a_time_is_ticks_times_100_over_mhz(ticks: int, frequency_mhz: int, us: float) -> None:
    assert ticks_to_us(ticks, frequency_mhz) == us


def test_an_array_gives_the_same_as_each_value() -> None:
    ticks = np.array([0, 7, 2**32 - 1], dtype="<u4")
    converted = ticks_to_us(ticks, 700)
    assert converted.dtype == np.float64
    assert converted.tolist() == [ticks_to_us(value, 700) for value in ticks.tolist()]


def test_no_value_wraps_at_32_bits() -> None:
    assert ticks_to_us(np.array([42_949_673], dtype="<u4"), 1).tolist() == [4_294_967_300.0]
