"""Aicore files that are read together have the records that each has alone, whatever their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import astuple

from profagent.formats.counter_maps import simulated_map
from profagent.formats.names import LogKind
from profagent.formats.records import LogProgress, read_unit
from tests.encoders import aicore_record

u32 = st.integers(0, 2**32 - 1)
records = st.builds(aicore_record, st.integers(0, 30) | u32, u32, st.integers(0, 2) | u32)
# Of any size: torn, of one record, and of more than are read in one pass.
files = st.builds(
    lambda data, torn, times: data * times + torn,
    st.lists(records, min_size=1, max_size=12).map(b"".join),
    st.binary(max_size=300),
    st.sampled_from([1, 1, 1, 300]),
)
maps = st.sampled_from([None, simulated_map()])


def plain(value: Any) -> Any:
    """A value that can be compared: arrays as their kind and list, by repr where NaN is among them."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, list(map(repr, value.tolist())))
    if isinstance(value, Struct):
        return (type(value), plain(astuple(value)))
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


@settings(max_examples=20)
@given(st.lists(files, min_size=1, max_size=5), maps)
@example([aicore_record(0, 1, 0), aicore_record(0, 1, 0) + b"y"], None)
def test_logs_read_together_are_what_they_are_alone(logs: list[bytes], counter_map: Any) -> None:
    unit = read_unit(LogKind.AICORE, logs, LogProgress.new(len(logs)), counter_map)
    for number, data in enumerate(logs):
        alone = read_unit(LogKind.AICORE, [data], LogProgress.new(1), counter_map)
        assert plain(unit.one(number)) == plain(alone)
        more = [aicore_record(1, 5, 0)]
        on, on_alone = (read_unit(LogKind.AICORE, more, each.after, counter_map) for each in (unit.one(number), alone))
        assert plain(on) == plain(on_alone)
