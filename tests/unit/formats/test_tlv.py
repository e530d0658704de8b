"""Items of `.info` files in all their forms."""

from __future__ import annotations

import pytest

from profagent.errors import FormatError
from profagent.formats.model_info import Item, iter_items, read_items
from tests.encoders import bytes_item, integer_item

FILE = "data/m.1.layer.info"


def items_of(data: bytes) -> list[Item]:
    """All items of a whole file."""
    return list(iter_items(data, 0, len(data), FILE))


@pytest.mark.parametrize(("size", "value"), [(1, 0xFE), (2, 0xFEDC), (4, 0xFEDCBA98)])
def test_an_integer_is_read_in_each_size(size: int, value: int) -> None:
    (item,) = items_of(integer_item(0x112, value, size))
    assert (item.id, item.value, item.offset, item.end) == (0x112, value, 0, 2 + size)


@pytest.mark.parametrize(("encoding", "header"), [(0x8000, 3), (0xA000, 4), (0xC000, 6)])
@pytest.mark.parametrize("content", [b"", b"name\0"])
def test_bytes_are_read_in_each_length_form(encoding: int, header: int, content: bytes) -> None:
    (item,) = items_of(bytes_item(0x114, content, encoding))
    assert (item.id, item.tag, item.value) == (0x114, encoding | 0x114, content)
    assert (item.nested_start, item.end) == (header, header + len(content))


def test_items_stand_back_to_back() -> None:
    data = integer_item(1, 7, 1) + bytes_item(2, b"abc") + integer_item(0x1FFF, 9, 4)
    assert [(item.offset, item.end, item.id) for item in items_of(data)] == [(0, 3, 1), (3, 9, 2), (9, 15, 0x1FFF)]


def test_nested_items_have_their_bytes_in_the_file() -> None:
    data = integer_item(1, 7) + bytes_item(0x111, integer_item(2, 8), 0xC000)
    container = items_of(data)[1]
    (nested,) = iter_items(data, container.nested_start, container.end, FILE)
    assert (nested.offset, nested.id, nested.value) == (10, 2, 8)


@pytest.mark.parametrize("encoding", [0x0000, 0xE000])
def test_an_encoding_that_does_not_exist_is_told(encoding: int) -> None:
    data = integer_item(1, 7) + (encoding | 0x112).to_bytes(2, "little") + b"\0\0"
    with pytest.raises(FormatError, match="six encodings") as caught:
        items_of(data)
    assert (caught.value.file, caught.value.offset) == (FILE, 4)


@pytest.mark.parametrize(
    "whole",
    [integer_item(1, 7, 4), bytes_item(2, b"abc"), bytes_item(2, b"abc", 0xA000), bytes_item(2, b"abc", 0xC000)],
)
def test_an_item_cut_anywhere_is_told(whole: bytes) -> None:
    for length in range(1, len(whole)):
        with pytest.raises(FormatError, match="bytes"):
            items_of(whole[:length])


def test_an_item_cannot_run_past_its_container() -> None:
    data = bytes_item(2, b"abc") + b"more"
    with pytest.raises(FormatError, match="3 bytes in item 0x8002, found 2"):
        list(iter_items(data, 0, 5, FILE))


def test_items_are_found_by_id_and_checked_for_their_form() -> None:
    data = integer_item(1, 7, 1) + bytes_item(2, b"abc")
    items = read_items(data, 0, len(data), FILE)
    assert (items.integer(1), items.content(2), items.integer(3), items.content(3)) == (7, b"abc", None, None)
    with pytest.raises(FormatError, match="an integer in item 0x002, found 3 bytes") as caught:
        items.integer(2)
    assert caught.value.offset == 3
    with pytest.raises(FormatError, match="bytes in item 0x001, found the integer 7"):
        items.content(1)
