"""File names of JOB directories, of both generations and of neither."""

from __future__ import annotations

import os

import pytest

from profagent.errors import FormatError
from profagent.formats.model_info import Item, LayerTable, Net, iter_items, parse_layer_info, parse_net_info
from profagent.formats.names import LogKind, LogName, display_text, parse_log_name
from tests.encoders import bytes_item, integer_item, layer_item, net_item, net_items

U64_MAX = 2**64 - 1


def parsed(path: str) -> LogName:
    """The name of a path that is not foreign."""
    name = parse_log_name(path)
    assert name is not None
    return name


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("data/aicore.0.m.3.1.4.6.0", LogKind.AICORE),
        ("data/AAcore.0.m.3.1.4.6.0", LogKind.AICORE),
        ("data/aicpu.0.m.3.1.4.6.0", LogKind.AICPU),
        ("data/aacpu.0.m.3.1.4.6.0", LogKind.AICPU),
        ("data/AICPU.0.m.3.1.4.6.0", LogKind.AICPU),
        ("data/acl_api.0.m.1", LogKind.ACL_API),
        ("data/AclModule.0.m.1", LogKind.ACL_API),
        ("data/ACL_API.0.m.1", LogKind.ACL_API),
        ("data/cont.0.m.1.4.6.0", LogKind.CONT),
        ("data/m.1.net.info", LogKind.NET_INFO),
        ("data/m.1.layer.info", LogKind.LAYER_INFO),
        ("info.json.0", LogKind.INFO_JSON),
    ],
)
def test_both_generations_of_prefixes_are_read_in_any_case(path: str, kind: LogKind) -> None:
    name = parsed(path)
    assert name.kind is kind
    assert name.model_id == (None if kind is LogKind.INFO_JSON else 1)
    assert name.model == (None if kind is LogKind.INFO_JSON else "m")


@pytest.mark.parametrize(
    ("path", "model", "model_id"),
    [
        ("data/acl_api.0..1", "", 1),
        ("data/acl_api.0.plain.name.0", "plain.name", 0),
        ("data/acl_api.0.v1.2.3", "v1.2", 3),
        ("data/aicore.0..3.1.4.6.0", "", 1),
        ("data/.1.net.info", "", 1),
        ("data/a.b.1.layer.info", "a.b", 1),
        ('data/aicore.0.人脸_a:b*c?<d>"|&.3.1.1.1.0', '人脸_a:b*c?<d>"|&', 1),
        ("data/aicore.0.line\nbreak.3.1.1.1.0", "line\nbreak", 1),
        ("data/acl_api.0." + "q" * 200 + ".1", "q" * 200, 1),
    ],
)
def test_empty_dotted_and_odd_model_names_are_legal(path: str, model: str, model_id: int) -> None:
    name = parsed(path)
    assert (name.model, name.model_id) == (model, model_id)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "data",
        "data/",
        "data/readme.txt",
        "info.json",
        "info.json.x",
        "data/info.json.0",
        "aicore.0.m.3.1.4.6.0",
        "data/sub/aicore.0.m.3.1.4.6.0",
        "data/../m.1.net.info",
        "data/a/b.1.net.info",
        "/data/aicore.0.m.3.1.4.6.0",
        "other/aicore.0.m.3.1.4.6.0",
        "data/aicore.0.m.3.1.4.6.0.tmp",
        "data/aicore.0.m.3.1.4.6.0.done.done",
        "data/aicore.0.m.3.1.4.6.-1",
        "data/aicore.0.m.3.1.4.6.٣",
        "data/aicore.0.m.3.1.4.6.0\n",
        "data/aicore.0.m\0.3.1.4.6.0",
        "data/aicore.00.m.3.1.4.6.0",
        "data/aicore.0.m.3.1.4.6.007",
        "data/aicore.0.1.4.6",
        "data/acl_api.0.1",
        "data/m.1.net.info.done",
        "data/cont.0.m.1.4.6.0.done",
        "data/aıcore.0.m.3.1.4.6.0",
        "DATA/aicore.0.m.3.1.4.6.0",
        "data/m.1.NET.info",
    ],
)
def test_any_other_file_is_foreign(path: str) -> None:
    assert parse_log_name(path) is None


@pytest.mark.parametrize(
    ("path", "fits"),
    [
        (f"data/aicore.0.m.65535.1.1.1.{U64_MAX}", True),
        (f"data/aicore.0.m.65535.1.1.1.{U64_MAX + 1}", False),
        ("data/aicore.0.m.65536.1.1.1.0", False),
        (f"data/aicore.0.m.3.{2**32 - 1}.1.1.0", True),
        (f"data/aicore.0.m.3.{2**32}.1.1.0", False),
        (f"data/aicore.{2**32}.m.3.1.1.1.0", False),
        (f"data/aicore.0.m.3.1.{2**32}.1.0", False),
        (f"data/acl_api.0.m.{2**32}", False),
        ("data/acl_api.0.m." + "9" * 5000, False),
        ("info.json." + "1" * 30, False),
    ],
)
def test_a_number_beyond_the_runtimes_own_field_is_foreign(path: str, fits: bool) -> None:
    assert (parse_log_name(path) is not None) == fits


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("yolo v5", "yolo v5"),
        ("人脸", "人脸"),
        (os.fsdecode(b"a\xffb"), r"a\xffb"),
        (os.fsdecode(b"\x80"), r"\x80"),
        ("\ud800", r"\ud800"),
        ("red\x1b[31m", r"red\x1b[31m"),
        ("two\nlines", r"two\nlines"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
    ],
)
def test_display_text_can_be_printed_and_steers_no_terminal(name: str, shown: str) -> None:
    assert display_text(name) == shown
    shown.encode("utf-8")


# Items of `.info` files in all their forms


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
