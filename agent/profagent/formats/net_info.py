"""A model's network segments, from `.net.info` (format page 2.4)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from profagent.errors import FormatError
from profagent.formats.tlv import Item, Items, iter_items, read_items

__all__ = ["Net", "NetStart", "item_starts", "parse_net_info", "where_nets_begin"]

NET_INFO = 0x040
NET_ID = 0x041
NET_TYPE = 0x042
LAYER_COUNT = 0x207
PROF_LAYER_COUNT = 0x20C
BATCH_LAYER_COUNT = 0x20D
MAX_LOOP = 0x20E

# A net_info container's tag in any length form, its length, and the tag of the net id that it begins with.
_CONTAINER = re.compile(rb"\x40(?:\x80.|\xa0..|\xc0....)\x41[\x20\x40\x60]", re.DOTALL)
_ITEMS = re.compile(rb"\x41[\x20\x40\x60]")
# The slice begins four bytes into a container whose tag and 32-bit length take six; no net has 16 MB.
_LENGTH_REST_BYTES = 2

NetStart = Literal["items", "length", "container", "elsewhere"]


@dataclass(frozen=True, slots=True)
class Net:
    """One network segment; None where the file does not tell. `layer_count` is likely, not sure."""

    net_id: int
    net_type: int | None
    layer_count: int | None
    prof_layer_count: int | None
    batch_layer_count: int | None
    max_loop: int | None


def parse_net_info(data: bytes, file: str) -> tuple[Net, ...]:
    """Read the nets in the order of the file, which is a slice that may begin inside the first container.

    It is read from its start, as the items of a headless first container, and from the first whole container on: what
    gives more nets is right. Raises FormatError where neither gives any.
    """
    starts = item_starts(data)
    nets = max((_readable(data, start, file) for start in starts), key=len)
    if nets:
        return nets
    if _CONTAINER.search(data):
        return _nets_from(data, starts[-1], file)
    raise FormatError(file, 0, "items of a net, or a net_info container", f"{data[:8].hex(' ') or 'nothing'}")


def item_starts(data: bytes) -> tuple[int, ...]:
    """Where the items of the slice may begin: with it, or with the first whole container."""
    found = _CONTAINER.search(data)
    first = _LENGTH_REST_BYTES if where_nets_begin(data) == "length" else 0
    return (first, found.start()) if found and found.start() > first else (first,)


def where_nets_begin(data: bytes) -> NetStart | None:
    """Tell what the slice begins with: a first container's `items`, the rest of its 32-bit `length`, it as a whole.

    Else it is `elsewhere`; None where there is none.
    """
    if _ITEMS.match(data):
        return "items"
    if _CONTAINER.match(data):
        return "container"
    if _ITEMS.match(data, _LENGTH_REST_BYTES) and data[1] == 0:
        return "length"
    return "elsewhere" if _CONTAINER.search(data) else None


def _readable(data: bytes, start: int, file: str) -> tuple[Net, ...]:
    try:
        return _nets_from(data, start, file)
    except FormatError:
        return ()


def _nets_from(data: bytes, start: int, file: str) -> tuple[Net, ...]:
    headless: dict[int, Item] = {}
    nets: list[Net] = []
    for item in iter_items(data, start, len(data), file):
        if item.id == NET_INFO and isinstance(item.value, bytes):
            nets.append(_net(read_items(data, item.nested_start, item.end, file), item.offset))
        elif not nets:
            headless[item.id] = item
    if NET_ID in headless:
        nets.insert(0, _net(Items(file, headless), start))
    return tuple(nets)


def _net(items: Items, offset: int) -> Net:
    net_id = items.integer(NET_ID)
    if net_id is None:
        raise FormatError(items.file, offset, f"item {NET_ID:#05x} (net id) in a net", "none")
    return Net(
        net_id=net_id,
        net_type=items.integer(NET_TYPE),
        layer_count=items.integer(LAYER_COUNT),
        prof_layer_count=items.integer(PROF_LAYER_COUNT),
        batch_layer_count=items.integer(BATCH_LAYER_COUNT),
        max_loop=items.integer(MAX_LOOP),
    )
