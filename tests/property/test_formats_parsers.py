"""On any bytes whatever, a parser gives a value or one of its own errors, and names a place inside the file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import astuple

from profagent.errors import FormatError, UnsupportedBoardError
from profagent.formats.board_files import looks_like_hi3519, parse_done, parse_info_json
from profagent.formats.countermap import parse_counter_map
from profagent.formats.join import LayerJoin
from profagent.formats.model_info import Net, parse_layer_info, parse_net_info
from profagent.formats.names import LogKind, display_text, parse_log_name
from profagent.formats.records import (
    AICORE_DTYPE,
    AICPU_DTYPE,
    API_DTYPE,
    RECORD_BYTES,
    LogProgress,
    Unit,
    read_unit,
    view_records,
)
from tests.encoders import aicore_record, api_record, bytes_item, integer_item, layer_item, net_item

FILE = "data/x"
u32 = st.integers(0, 2**32 - 1)
item_ids = st.sampled_from([0x040, 0x041, 0x111, 0x112, 0x114, 0x121, 0x14B, 0x152, 0x157, 0x15B, 0x20C, 0x300])
integers = st.builds(lambda item_id, value: integer_item(item_id, value, 4), item_ids, u32)
texts = st.builds(bytes_item, item_ids, st.binary(max_size=20), st.sampled_from([0x8000, 0xA000, 0xC000]))


def containers(nested: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Items that hold items."""
    return st.builds(lambda item_id, parts: bytes_item(item_id, b"".join(parts), 0xC000), item_ids, st.lists(nested))


item_trees = st.recursive(integers | texts, containers, max_leaves=20)
item_files = st.lists(item_trees | st.binary(max_size=6), max_size=10).map(b"".join)
done_keys = st.sampled_from(
    [b"file_len:", b"start_time:", b"end_time:", b"cache_hit:", b"cache_mis:", b"pid:", b"tid:"]
)
done_rest = st.sampled_from([b"\n", b"0", b"-1", b"18446744073709551616", b",", b" ", b"online_batch_num:"])
done_files = st.lists(done_keys | done_rest).map(b"".join)
json_keys = st.sampled_from(["DeviceInfo", "aic_frequency", "magic_num", "x"])
json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=10) | st.just("6A6A"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(json_keys, inner, max_size=4),
    max_leaves=10,
)
likely_name = re.compile(r"data/(aicore|aacpu|acl_api|cont)\.[0-9]+\.[^\0]*(\.[0-9]+){1,6}(\.done)?")
any_names = st.binary(max_size=60).map(os.fsdecode) | st.text(max_size=60) | st.from_regex(likely_name, fullmatch=True)


def failure(parse: Callable[[], object]) -> FormatError | UnsupportedBoardError | None:
    """One of the errors that a parser may raise, None where it succeeds."""
    try:
        parse()
    except (FormatError, UnsupportedBoardError) as error:
        return error
    return None


def outcome(parse: Callable[[], object], size: int) -> None:
    """Let a parser succeed or fail as it may; a failure says what to do, and where."""
    error = failure(parse)
    if error is not None:
        assert error.hint
        str(error).encode("utf-8")
    if isinstance(error, FormatError):
        assert 0 <= error.offset <= size
        assert error.file == FILE
        assert error.expected
        assert error.found


@given(st.binary(max_size=200) | done_files, st.sampled_from([LogKind.AICORE, LogKind.AICPU, LogKind.ACL_API]))
def test_any_done(data: bytes, kind: LogKind) -> None:
    outcome(lambda: parse_done(data, kind, FILE), len(data))


@given(st.binary(max_size=200) | item_files)
@example(layer_item(1, b"a\0", prof_layer_id=0)[:-1])
def test_any_layer_info(data: bytes) -> None:
    outcome(lambda: parse_layer_info(data, FILE), len(data))


@given(st.binary(max_size=200) | item_files)
@example(b"\x40" * 50 + net_item(0, prof_layers=1)[:-1])
def test_any_net_info(data: bytes) -> None:
    outcome(lambda: parse_net_info(data, FILE), len(data))


@given(st.binary(max_size=200) | json_values.map(lambda value: json.dumps(value).encode()))
@example(b'{"aic_frequency": "\\ud800"}')
@example(b'{"magic_num": "\\ud800"}')
def test_any_info_json(data: bytes) -> None:
    outcome(lambda: parse_info_json(data, FILE), len(data))


@given(st.text(max_size=200) | st.binary(max_size=200).map(os.fsdecode))
@example("\udcff = 1")
def test_any_counter_map(text: str) -> None:
    outcome(lambda: parse_counter_map(text, FILE), len(text.encode("utf-8", "surrogatepass")))


@given(st.binary(max_size=1000) | st.lists(st.builds(api_record, u32, u32, u32)).map(b"".join))
def test_any_records(data: bytes) -> None:
    assert len(view_records(data, AICORE_DTYPE)) == len(data) // RECORD_BYTES[LogKind.AICORE]
    assert len(view_records(data, AICPU_DTYPE)) == len(data) // RECORD_BYTES[LogKind.AICPU]
    assert len(view_records(data, API_DTYPE)) == len(data) // RECORD_BYTES[LogKind.ACL_API]


@given(any_names)
def test_any_name(path: str) -> None:
    name = parse_log_name(path)
    if name is not None:
        assert path.startswith("data/") or name.kind is LogKind.INFO_JSON
        assert "/" not in (name.model or "")
    looks_like_hi3519([path])
    shown = display_text(path)
    assert shown.isprintable()
    shown.encode("utf-8")
    assert display_text(shown) == shown


@given(
    st.lists(st.tuples(u32 | st.integers(0, 20), st.integers(0, 3)), min_size=1),
    st.lists(st.integers(1, 8), max_size=8),
    st.none() | st.integers(0, 9),
)
def test_any_records_fall_apart_the_same_way_however_they_are_cut(
    records: list[tuple[int, int]], parts: list[int], last_start: int | None
) -> None:
    pieces = [aicore_record(sequence, 5, net) for sequence, net in records]
    last_loads = {} if last_start is None else {0: last_start}
    whole = read_unit(LogKind.AICORE, [b"".join(pieces)], LogProgress.new(1), None, last_loads)
    progress, at, found = LogProgress.new(1), 0, []
    for size in [*parts, len(records)]:
        if piece := b"".join(pieces[at : at + size]):
            unit = read_unit(LogKind.AICORE, [piece], progress, None, last_loads)
            progress = unit.after
            found += rows(unit)
        at += size
    assert found == rows(whole)
    assert [each.tolist() for each in astuple(progress)] == [each.tolist() for each in astuple(whole.after)]
    assert set(np.diff(whole.segment).tolist()) <= {0, 1}


def rows(unit: Unit) -> list[tuple[int, ...]]:
    """Segment, load and ticks before of each record, and how many are missing before it."""
    missing = np.zeros(len(unit), np.int64)
    missing[unit.gap_at] = unit.gap_missing
    ordinal, load = unit.seg_ordinal[unit.segment], unit.seg_load[unit.segment]
    columns = (ordinal, load, unit.columns["ticks_before"], missing)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=6),
    st.lists(st.builds(Net, st.integers(0, 3), st.none(), st.none(), *[st.none() | st.integers(0, 4)] * 3), max_size=3),
    st.integers(0, 3),
    st.lists(u32, max_size=5),
    st.tuples(u32 | st.integers(0, 4), u32 | st.integers(0, 4)),
    st.lists(u32 | st.integers(0, 4), max_size=8),
)
def test_any_record_has_a_layer_of_the_table_or_none(
    layers: list[tuple[int, bool]],
    nets: list[Net],
    net: int,
    sequence: list[int],
    pictures: tuple[int, int],
    online: list[int],
) -> None:
    data = b"".join(
        layer_item(index, b"l\0", prof_layer_id=index, segment=segment, is_batch=batch)
        for index, (segment, batch) in enumerate(layers)
    )
    table = parse_layer_info(data, FILE)
    join = LayerJoin(table, nets)
    numbers = np.array(sequence, dtype="<u4")
    for found in (join.layer_index(net, numbers, *pictures, online), join.aicpu_layer_index(net, numbers)):
        assert found.shape == numbers.shape
        assert ((found >= -1) & (found < len(table.runs))).all()
    join.disagreements()


@pytest.mark.parametrize("head", [b"\x40\xa0\xff\xff\x41\x20", b"\x40\x80\x00\x41\x20", b"\x01\x20\x00"])
def test_a_file_of_one_megabyte_of_lookalikes_is_read_to_its_end(head: bytes) -> None:
    data = head * (2**20 // len(head))
    outcome(lambda: parse_net_info(data, FILE), len(data))
    outcome(lambda: parse_layer_info(data, FILE), len(data))
