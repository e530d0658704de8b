"""What the small encoders write, the parsers read back."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profagent.formats.board_files import Done, parse_done
from profagent.formats.cells import cell_of, text_of
from profagent.formats.join import LayerJoin
from profagent.formats.model_info import Layer, Net, parse_layer_info, parse_net_info
from profagent.formats.names import LogKind, LogName, parse_log_name
from profagent.formats.records import AICORE_DTYPE, AICPU_DTYPE, API_DTYPE, view_records
from tests.encoders import (
    aicore_record,
    aicpu_record,
    api_record,
    bytes_item,
    done_text,
    layer_item,
    net_item,
    net_items,
)

FILE = "data/x"
u16 = st.integers(0, 2**16 - 1)
u32 = st.integers(0, 2**32 - 1)
u63 = st.integers(0, 2**63 - 1)
u64 = st.integers(0, 2**64 - 1)
texts = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=20)
# A name whose last part is a number would be taken for a stream where there is none.
models = st.text(st.characters(exclude_characters="/\0", codec="utf-8"), max_size=20).filter(
    lambda name: not name.rpartition(".")[2].isdigit()
)
layers = st.builds(Layer, u16, texts, texts, st.integers(0, 3), st.integers(0, 2), u16, st.booleans())
nets = st.builds(Net, u16, st.just(1), st.none(), u16, u16, u16).map(
    lambda net: replace(net, layer_count=net.prof_layer_count)
)


@given(st.sampled_from(["aicore", "aicpu"]), u32, models, st.none() | u16, u32, st.tuples(u32, u32, u64), st.booleans())
def test_names_of_inferences(
    kind: str,
    device: int,
    model: str,
    stream: int | None,
    model_id: int,
    pictures: tuple[int, int, int],
    is_done: bool,
) -> None:
    fields = (device, model, *(() if stream is None else (stream,)), model_id, *pictures)
    path = f"data/{kind}.{'.'.join(map(str, fields))}{'.done' * is_done}"
    assert parse_log_name(path) == LogName(
        LogKind(kind), is_done, device, model, model_id, stream, *pictures, is_data=not is_done
    )


@given(u32, st.text(st.characters(exclude_characters="/\0", codec="utf-8"), max_size=20), u32)
def test_names_of_models(device: int, model: str, model_id: int) -> None:
    assert parse_log_name(f"data/acl_api.{device}.{model}.{model_id}") == LogName(
        LogKind.ACL_API, device=device, model=model, model_id=model_id, is_data=True
    )


@given(u32, u63, u63, u32, u32, st.lists(u32, max_size=8), st.booleans())
def test_dones_of_both_generations(
    file_len: int,
    start_us: int,
    end_us: int,
    hits: int,
    misses: int,
    batches: list[int],
    signed: bool,
) -> None:
    def printed(value: int) -> int:
        return value - 2**32 if signed and value >= 2**31 else value

    text = done_text(
        file_len=printed(file_len),
        start_time=start_us,
        end_time=end_us,
        cache_hit=printed(hits),
        cache_mis=printed(misses),
    )
    if batches:
        text += b"online_batch_num:" + ",".join(map(str, batches)).encode()
    expected = Done(file_len, start_us, end_us, hits, misses, online_batch_num=tuple(batches))
    assert parse_done(text, LogKind.AICORE, FILE) == expected


@given(st.lists(layers, max_size=8), st.sampled_from([0x8000, 0xA000, 0xC000]), st.sampled_from([b"", b"\0"]))
def test_layer_tables(table: list[Layer], encoding: int, end: bytes) -> None:
    data = b"".join(
        layer_item(
            layer.layer_id,
            layer.name.encode() + end,
            layer.type.encode() + end,
            prof_layer_id=layer.prof_layer_id,
            segment=layer.segment,
            output_index=layer.output_index,
            is_batch=layer.is_batch,
            encoding=encoding,
        )
        for layer in table
    )
    found = parse_layer_info(data, FILE)
    assert list(found.layers) == table
    assert [layer for run in found.runs for layer in run.layers] == table
    assert [run.index for run in found.runs] == list(range(len(found.runs)))


@given(st.lists(nets, min_size=1, max_size=4), st.sampled_from(["headless", "whole", "torn"]))
def test_nets(table: list[Net], begin: str) -> None:
    counts = [
        {
            "prof_layers": net.prof_layer_count or 0,
            "batch_layers": net.batch_layer_count or 0,
            "max_loop": net.max_loop or 0,
        }
        for net in table
    ]
    whole = [net_item(net.net_id, **count) for net, count in zip(table, counts, strict=True)]
    first = {
        "headless": net_items(table[0].net_id, **counts[0]),
        "whole": whole[0],
        "torn": bytes_item(0x001, b"\xff" * 8)[3:] + whole[0],
    }[begin]
    data = first + b"".join(whole[1:])
    assert list(parse_net_info(data, FILE)) == table


@given(st.lists(st.tuples(u32, u32, u32), max_size=4), st.binary(max_size=31))
def test_aicore_records(records: list[tuple[int, int, int]], rest: bytes) -> None:
    found = view_records(b"".join(aicore_record(*record) for record in records) + rest, AICORE_DTYPE)
    assert found[["sequence", "ticks", "net"]].tolist() == records


@given(st.lists(st.tuples(u32, u64, u64, st.tuples(u64, u64), u32), max_size=4), st.binary(max_size=31))
def test_aicpu_records(records: list[tuple[int, int, int, tuple[int, int], int]], rest: bytes) -> None:
    found = view_records(b"".join(aicpu_record(*record) for record in records) + rest, AICPU_DTYPE)
    assert found.tolist() == [(k, begin, end, *segment, net) for k, begin, end, segment, net in records]


@given(st.lists(st.tuples(u32, u64, u64, u32, u32), max_size=4), st.binary(max_size=31))
def test_api_records(records: list[tuple[int, int, int, int, int]], rest: bytes) -> None:
    found = view_records(b"".join(api_record(*record) for record in records) + rest, API_DTYPE)
    assert found.tolist() == [(0x5A5A, *record) for record in records]


def expanded(is_batch: list[bool], batches: list[int]) -> list[int]:
    """The runs of a segment's records written out, as the format page words it."""
    order: list[int] = []
    for pictures in batches:
        group: list[int] = []
        for index, alone in enumerate(is_batch):
            if alone:
                order += group * pictures + [index]
                group = []
            else:
                group.append(index)
        order += group * pictures
    return order


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.integers(1, 4), st.integers(1, 9))
def test_batches_are_numbered_as_they_are_when_written_out(is_batch: list[bool], batch_num: int, pictures: int) -> None:
    items = (layer_item(k, b"l\0", prof_layer_id=k, is_batch=batch) for k, batch in enumerate(is_batch))
    net = Net(0, 1, None, len(is_batch), sum(is_batch), 1)
    join = LayerJoin(parse_layer_info(b"".join(items), FILE), [net])
    batches = [batch_num] * (pictures // batch_num) + [pictures % batch_num] * (pictures % batch_num > 0)
    order = expanded(is_batch, batches)
    numbers = np.arange(len(order) + 1)
    assert join.layer_index(0, numbers, batch_num, pictures).tolist() == [*order, -1]
    assert join.layer_index(0, numbers, 1, 1, online_batch_num=batches).tolist() == [*order, -1]


SIGNS = st.sampled_from([*"=+-@'\\x0123456789abcdefu \t\r\n\x1b\x7f\x9b", "\u202e", "\u2069", "\\x5c", "\\u202e", "检"])


@given(st.text() | st.lists(SIGNS, max_size=8).map("".join))
def test_a_text_comes_back_from_its_cell(text: str) -> None:
    cell = cell_of(text)
    assert text_of(cell) == text
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", cell)
    if len(cell) > 1 and cell[0] in "=+-@":
        float(cell)
