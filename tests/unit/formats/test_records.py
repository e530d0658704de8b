"""Binary records: every field at the byte that the format page says."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from profagent.formats import records
from profagent.formats.records import ticks_to_us
from tests.encoders import aicore_record, api_record


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


aicore = partial(records.view_records, dtype=records.AICORE_DTYPE)
aicpu = partial(records.view_records, dtype=records.AICPU_DTYPE)
calls = partial(records.view_records, dtype=records.API_DTYPE)


@pytest.mark.parametrize("extra", [0, 1, 31])
def test_bytes_of_a_partial_last_record_are_left_out(extra: int) -> None:
    assert len(aicore(aicore_record(0, 1, 0) * 3 + b"x" * extra)) == 3
    assert len(aicpu(b"\0" * 128 * 3 + b"x" * extra)) == 3
    assert len(calls(api_record(1, 2, 3) * 3 + b"x" * extra)) == 3


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_records_are_a_view_of_any_buffer(kind: type[bytes | bytearray | memoryview]) -> None:
    data = kind(bytearray(aicore_record(1, 2, 3)))
    decoded = aicore(data)
    assert np.shares_memory(decoded, np.frombuffer(data, dtype="u1"))


def test_a_reader_can_go_on_past_records_with_a_wrong_magic_number() -> None:
    data = api_record(0, 1, 2, magic=0) + api_record(2, 3, 4) + api_record(1, 5, 6, magic=0x5A5B)
    decoded = records.view_records(data, records.API_DTYPE)
    faults = records.api_magic_faults(decoded)
    assert faults.tolist() == [0, 2]
    assert np.delete(decoded, faults)["api"].tolist() == [2]
