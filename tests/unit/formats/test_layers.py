"""Layer tables, and the runs that records stand for."""

from __future__ import annotations

import pytest

from profagent.errors import FormatError
from profagent.formats import model_info as module
from profagent.formats.model_info import Layer, LayerTable, parse_layer_info
from tests.encoders import bytes_item, integer_item, layer_item

FILE = "data/m.1.layer.info"


def table_of(*items: bytes) -> LayerTable:
    """The table of a file made of these items."""
    return parse_layer_info(b"".join(items), FILE)


def test_all_fields_of_a_layer_are_read() -> None:
    item = layer_item(5, b"conv1\0", b"Pooling\0", prof_layer_id=3, segment=2, output_index=1, is_batch=True)
    assert table_of(item).layers == (Layer(5, "conv1", "Pooling", 3, 2, 1, is_batch=True),)


@pytest.mark.parametrize("encoding", [0x8000, 0xA000, 0xC000])
def test_a_layer_container_may_have_any_length_form(encoding: int) -> None:
    assert table_of(layer_item(5, b"conv1\0", prof_layer_id=0, encoding=encoding)).layers[0].layer_id == 5


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


def test_the_same_prof_layer_id_later_is_another_run() -> None:
    table = table_of(*(layer_item(i, b"l%d\0" % i, prof_layer_id=prof) for i, prof in enumerate([1, 0, 0, 1, 2])))
    assert [run.name for run in table.runs] == ["l0", "l1+l2", "l3", "l4"]


def test_a_segment_ends_a_run() -> None:
    table = table_of(
        layer_item(0, b"a\0", prof_layer_id=0, segment=0), layer_item(1, b"b\0", prof_layer_id=0, segment=1)
    )
    assert [(run.name, run.segment) for run in table.runs] == [("a", 0), ("b", 1)]


def test_the_outputs_of_one_split_stand_once() -> None:
    table = table_of(
        layer_item(3, b"split\0", b"Split\0", prof_layer_id=4, output_index=0),
        layer_item(3, b"split\0", b"Split\0", prof_layer_id=4, output_index=1),
        layer_item(4, b"conv\0", prof_layer_id=4),
    )
    assert [(run.name, run.type) for run in table.runs] == [("split+conv", "Split+Convolution")]
    assert [layer.output_index for layer in table.runs[0].layers] == [0, 1, 0]


def test_fused_layers_of_one_type_are_all_named() -> None:
    table = table_of(layer_item(0, b"a\0", prof_layer_id=0), layer_item(1, b"b\0", prof_layer_id=0))
    assert (table.runs[0].name, table.runs[0].type) == ("a+b", "Convolution+Convolution")


def test_a_run_with_a_batch_layer_is_one() -> None:
    table = table_of(layer_item(0, b"a\0", prof_layer_id=0), layer_item(1, b"b\0", prof_layer_id=0, is_batch=True))
    assert table.runs[0].is_batch


def test_items_that_are_no_layers_are_skipped() -> None:
    table = table_of(integer_item(0x300, 9), layer_item(0, b"a\0", prof_layer_id=0), bytes_item(0x301, b"debug"))
    assert [layer.name for layer in table.layers] == ["a"]


def test_a_file_without_layers_has_an_empty_table() -> None:
    assert table_of() == LayerTable((), ())
    assert table_of(integer_item(0x300, 0)) == LayerTable((), ())


def test_a_layer_without_name_type_and_segment_is_read() -> None:
    nested = integer_item(0x112, 7) + integer_item(0x157, 0)
    assert table_of(bytes_item(0x111, nested)).layers == (Layer(7, "", "", 0, 0, 0, is_batch=False),)


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


def test_a_layer_item_must_hold_items() -> None:
    with pytest.raises(FormatError, match="a layer item with a length, found tag 0x4111"):
        table_of(integer_item(0x111, 1))


def test_a_file_that_is_not_made_of_items_is_told() -> None:
    with pytest.raises(FormatError) as caught:
        table_of(b"LAYERDATA")
    assert (caught.value.file, caught.value.offset) == (FILE, 8)


def test_a_table_has_no_more_layers_than_any_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LAYERS", 2)
    layer = layer_item(1, b"a", prof_layer_id=0)
    assert len(table_of(layer, layer, integer_item(0x100, 1)).layers) == 2
    with pytest.raises(FormatError, match="2 layers at most"):
        table_of(layer, layer, layer)
