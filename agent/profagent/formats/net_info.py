"""A model's network segments, from `.net.info` (format page 2.4)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from profagent.errors import FormatError
from profagent.formats.tlv import Item, Items, iter_items, read_items

__all__ = ["Net", "parse_net_info"]

NET_INFO = 0x040
NET_ID = 0x041
NET_TYPE = 0x042
LAYER_COUNT = 0x207
PROF_LAYER_COUNT = 0x20C
BATCH_LAYER_COUNT = 0x20D
MAX_LOOP = 0x20E

# A net_info container's tag in any length form, its length, and the tag of the net id that it begins with.
_CONTAINER = re.compile(rb"\x40(?:\x80.|\xa0..|\xc0....)\x41[\x20\x40\x60]", re.DOTALL)


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

    The items of a headless first container are tried first, else the first whole container is looked for. Raises
    FormatError where there is neither, or what follows is not made of items.
    """
    try:
        nets = _nets_from(data, 0, file)
    except FormatError:
        nets = ()
    if not nets:
        found = _CONTAINER.search(data)
        if found is None:
            raise FormatError(file, 0, "items of a net, or a net_info container", f"{data[:8].hex(' ') or 'nothing'}")
        nets = _nets_from(data, found.start(), file)
    return nets


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
