"""Items of `.info` files in all their forms."""

from __future__ import annotations

import pytest

from profagent.errors import FormatError
from profagent.formats.model_info import (
    Item,
    LayerTable,
    Net,
    iter_items,
    parse_layer_info,
    parse_net_info,
)
from tests.encoders import bytes_item, integer_item, layer_item, net_item, net_items


def table_of(*items: bytes) -> LayerTable:
    """The table of a file made of these items."""
    return parse_layer_info(b"".join(items), FILE)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"conv1\0", "conv1"),
        (b"conv1", "conv1"),
        (b"conv1\0\0\0", "conv1"),
        (b"\0", ""),
        (b"", ""),
        ("卷积\0".encode(), "卷积"),
        (b"a\xff\0", r"a\xff"),
    ],
)
def test_a_name_ends_at_its_nul_and_is_always_text(content: bytes, name: str) -> None:
    assert table_of(layer_item(0, content, prof_layer_id=0)).layers[0].name == name


def test_layers_with_one_prof_layer_id_are_one_run() -> None:
    table = table_of(
        layer_item(10, b"conv\0", prof_layer_id=0),
        layer_item(11, b"relu\0", b"ReLU\0", prof_layer_id=0),
        layer_item(12, b"pool\0", b"Pooling\0", prof_layer_id=1),
    )
    assert [(run.index, run.layer_id, run.name, run.type) for run in table.runs] == [
        (0, 10, "conv+relu", "Convolution+ReLU"),
        (1, 12, "pool", "Pooling"),
    ]
    assert [len(run.layers) for run in table.runs] == [2, 1]


def test_the_outputs_of_one_split_stand_once() -> None:
    table = table_of(
        layer_item(3, b"split\0", b"Split\0", prof_layer_id=4, output_index=0),
        layer_item(3, b"split\0", b"Split\0", prof_layer_id=4, output_index=1),
        layer_item(4, b"conv\0", prof_layer_id=4),
    )
    assert [(run.name, run.type) for run in table.runs] == [("split+conv", "Split+Convolution")]
    assert [layer.output_index for layer in table.runs[0].layers] == [0, 1, 0]


@pytest.mark.parametrize(
    ("nested", "expected"),
    [
        (integer_item(0x157, 0), "item 0x112 in a layer"),
        (integer_item(0x112, 0), "item 0x157 in a layer"),
        (bytes_item(0x112, b"7") + integer_item(0x157, 0), "an integer in item 0x112"),
        (integer_item(0x112, 0) + integer_item(0x157, 0) + integer_item(0x114, 1), "bytes in item 0x114"),
        (integer_item(0x112, 0)[:3], "2 bytes of an item"),
    ],
)
def test_a_layer_that_cannot_be_is_told(nested: bytes, expected: str) -> None:
    with pytest.raises(FormatError) as caught:
        table_of(integer_item(0x300, 0), bytes_item(0x111, nested))
    assert caught.value.expected == expected
    assert caught.value.offset >= 4


NET_FILE = "data/m.1.net.info"
FIRST = Net(0, 1, 8, 8, 1, 1)
SECOND = Net(1, 1, 4, 4, 0, 3)
FIRST_ITEMS = net_items(0, prof_layers=8, batch_layers=1)
FIRST_ITEM = net_item(0, prof_layers=8, batch_layers=1)
SECOND_ITEM = net_item(1, prof_layers=4, max_loop=3)


def test_a_headless_first_container_is_read() -> None:
    assert parse_net_info(FIRST_ITEMS, NET_FILE) == (FIRST,)
    assert parse_net_info(FIRST_ITEMS + SECOND_ITEM, NET_FILE) == (FIRST, SECOND)


@pytest.mark.parametrize("cut", range(1, 20))
def test_a_slice_that_begins_inside_an_item_has_the_containers_behind_it(cut: int) -> None:
    header = bytes_item(0x001, b"\xff" * 20)
    assert parse_net_info(header[cut:] + FIRST_ITEM + SECOND_ITEM, NET_FILE) == (FIRST, SECOND)


@pytest.mark.parametrize("data", [b"", b"NETDATA", integer_item(0x042, 1), b"\xff" * 64])
def test_a_file_without_a_net_is_told(data: bytes) -> None:
    with pytest.raises(FormatError, match="net_info container") as caught:
        parse_net_info(data, NET_FILE)
    assert caught.value.file == NET_FILE


def test_a_net_without_its_id_is_told_at_its_container() -> None:
    with pytest.raises(FormatError, match="item 0x041 in a net") as caught:
        parse_net_info(FIRST_ITEM + bytes_item(0x040, integer_item(0x20C, 3)), NET_FILE)
    assert caught.value.offset == len(FIRST_ITEM)


FILE = "data/m.1.layer.info"


def items_of(data: bytes) -> list[Item]:
    """All items of a whole file."""
    return list(iter_items(data, 0, len(data), FILE))


@pytest.mark.parametrize(
    "whole",
    [integer_item(1, 7, 4), bytes_item(2, b"abc"), bytes_item(2, b"abc", 0xA000), bytes_item(2, b"abc", 0xC000)],
)
def test_an_item_cut_anywhere_is_told(whole: bytes) -> None:
    for length in range(1, len(whole)):
        with pytest.raises(FormatError, match="bytes"):
            items_of(whole[:length])
