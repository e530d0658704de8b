"""Aicore files that are read together have the records that each has alone, whatever their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import astuple

from profagent.ingest.decode import JobDecoder
from profagent.store.counter_maps import simulated_map
from tests.encoders import aicore_record

u32 = st.integers(0, 2**32 - 1)
records = st.builds(aicore_record, st.integers(0, 30) | u32, u32, st.integers(0, 2) | u32)
# Of any size: empty, torn, of one record, and of more than are read in one pass.
files = st.builds(
    lambda data, torn, times: data * times + torn,
    st.lists(records, max_size=12).map(b"".join),
    st.binary(max_size=300),
    st.sampled_from([1, 1, 1, 300]),
)
maps = st.sampled_from([None, simulated_map()])


class NoFiles:
    """A JOB of which nothing was decoded before."""

    def read(self, path: str, size: int | None = None, *, start: int = 0) -> bytes | None:
        del path, size, start
        return None

    def names(self) -> list[str]:
        return []


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
@given(st.lists(files, max_size=5), maps)
@example([b"", b"x", aicore_record(0, 1, 0), aicore_record(0, 1, 0) + b"y"], None)
def test_logs_read_ahead_mean_what_they_mean_alone(logs: list[bytes], counter_map: Any) -> None:
    beginnings = [(f"data/aicore.0.m.3.0.1.1.{number}", data) for number, data in enumerate(logs)]
    ahead, alone = JobDecoder(NoFiles(), counter_map), JobDecoder(NoFiles(), counter_map)
    ahead.read_ahead(beginnings)
    for path, data in beginnings:
        for decoder in (ahead, alone):
            list(decoder.begin(path, 1, 0))
        assert plain(list(ahead.append(path, 1, 0, data))) == plain(list(alone.append(path, 1, 0, data)))
        more = aicore_record(1, 5, 0)
        assert plain(list(ahead.append(path, 1, len(data), more))) == plain(
            list(alone.append(path, 1, len(data), more))
        )
