"""Aicore files that are read together have the records that each has alone, whatever their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import astuple

from profagent.formats.records import AicoreFile, AicoreRecords, Splitter, read_together
from profagent.ingest.decode import JobDecoder
from profagent.store.counter_maps import simulated_map
from tests.encoders import aicore_record

u32 = st.integers(0, 2**32 - 1)
records = st.builds(aicore_record, st.integers(0, 30) | u32, u32, st.integers(0, 2) | u32)
whole = st.lists(records, min_size=1, max_size=12).map(b"".join)
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


@given(st.lists(st.tuples(whole, st.none() | st.integers(0, 12)), min_size=1, max_size=6), st.lists(whole), maps)
def test_files_read_together_are_as_each_alone(
    begun: list[tuple[bytes, int | None]], later: list[bytes], counter_map: Any
) -> None:
    together = [AicoreFile(Splitter(last)) for _, last in begun]
    alone = [AicoreFile(Splitter(last)) for _, last in begun]
    for pieces in ([data for data, _ in begun], later[: len(begun)]):
        if pieces:
            found = read_together(together[: len(pieces)], pieces, counter_map)
            expected = [
                read_together([file], [piece], counter_map)[0] for file, piece in zip(alone, pieces, strict=False)
            ]
            assert plain(found) == plain(expected)
    assert plain([vars(file.splitter) for file in together]) == plain([vars(file.splitter) for file in alone])
    assert [file.ticks for file in together] == [file.ticks for file in alone]


@given(whole, st.integers(1, 12))
def test_ticks_of_a_segment_add_up_over_its_pieces(data: bytes, cut: int) -> None:
    file, at = AicoreFile(), cut * 256
    pieces = [read_together([file], [piece], None)[0] for piece in (data[:at], data[at:]) if piece]
    sums: dict[int, int] = {}
    for piece in pieces:
        for segment, ticks, before in _ticks(piece):
            assert before == sums.get(segment, 0)
            sums[segment] = before + ticks


def _ticks(read: AicoreRecords) -> list[tuple[int, int, int]]:
    columns = (read.split.segment, read.ticks, read.ticks_before)
    return list(zip(*(column.tolist() for column in columns), strict=True))


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
