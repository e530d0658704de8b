"""`.net.info`: nets in a slice that may begin anywhere."""

from __future__ import annotations

import pytest

from profagent.errors import FormatError
from profagent.formats.model_info import Net, parse_net_info
from tests.encoders import bytes_item, integer_item, net_item, net_items

FILE = "data/m.1.net.info"
FIRST = Net(0, 1, 8, 8, 1, 1)
SECOND = Net(1, 1, 4, 4, 0, 3)
FIRST_ITEMS = net_items(0, prof_layers=8, batch_layers=1)
FIRST_ITEM = net_item(0, prof_layers=8, batch_layers=1)
SECOND_ITEM = net_item(1, prof_layers=4, max_loop=3)


def test_a_headless_first_container_is_read() -> None:
    assert parse_net_info(FIRST_ITEMS, FILE) == (FIRST,)
    assert parse_net_info(FIRST_ITEMS + SECOND_ITEM, FILE) == (FIRST, SECOND)


def test_whole_containers_are_read() -> None:
    assert parse_net_info(FIRST_ITEM + SECOND_ITEM, FILE) == (FIRST, SECOND)


def test_header_items_before_the_containers_are_skipped() -> None:
    header = integer_item(0x00B, 2) + bytes_item(0x001, b"model")
    assert parse_net_info(header + FIRST_ITEM + SECOND_ITEM, FILE) == (FIRST, SECOND)


def test_items_behind_the_nets_are_skipped() -> None:
    assert parse_net_info(FIRST_ITEM + integer_item(0x00B, 2), FILE) == (FIRST,)


@pytest.mark.parametrize("cut", range(1, 20))
def test_a_slice_that_begins_inside_an_item_has_the_containers_behind_it(cut: int) -> None:
    header = bytes_item(0x001, b"\xff" * 20)
    assert parse_net_info(header[cut:] + FIRST_ITEM + SECOND_ITEM, FILE) == (FIRST, SECOND)


@pytest.mark.parametrize("encoding", [0x8000, 0xA000, 0xC000])
def test_a_container_behind_a_torn_item_may_have_any_length_form(encoding: int) -> None:
    assert parse_net_info(b"\xff\xff\xff" + bytes_item(0x040, FIRST_ITEMS, encoding), FILE) == (FIRST,)


def test_what_a_net_does_not_tell_is_none() -> None:
    assert parse_net_info(integer_item(0x041, 6), FILE) == (Net(6, None, None, None, None, None),)


@pytest.mark.parametrize("data", [b"", b"NETDATA", integer_item(0x042, 1), b"\xff" * 64])
def test_a_file_without_a_net_is_told(data: bytes) -> None:
    with pytest.raises(FormatError, match="net_info container") as caught:
        parse_net_info(data, FILE)
    assert caught.value.file == FILE


def test_a_container_torn_behind_its_head_is_told() -> None:
    with pytest.raises(FormatError):
        parse_net_info(b"\xff\xff" + FIRST_ITEM[:-1], FILE)


def test_a_count_that_is_no_integer_is_told() -> None:
    with pytest.raises(FormatError):
        parse_net_info(integer_item(0x041, 0) + bytes_item(0x20C, b"8"), FILE)


def test_a_net_without_its_id_is_told_at_its_container() -> None:
    with pytest.raises(FormatError, match="net id") as caught:
        parse_net_info(FIRST_ITEM + bytes_item(0x040, integer_item(0x20C, 3)), FILE)
    assert caught.value.offset == len(FIRST_ITEM)
