"""`.info` files of a model: tagged items, its network segments, its layers (the-format.md 2.4)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING

from profagent.errors import FormatError
from profagent.limits import MOST_LAYERS

if TYPE_CHECKING:
    from collections.abc import Iterator


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


@dataclass(frozen=True, slots=True)
class Net:
    """Network segment; None where the file has no such item. `layer_count` is likely, not sure."""

    net_id: int
    net_type: int | None
    layer_count: int | None
    prof_layer_count: int | None
    batch_layer_count: int | None
    max_loop: int | None


def parse_net_info(data: bytes, file: str) -> tuple[Net, ...]:
    """Return the nets in the order of the file, which is a slice that may begin inside the first container.

    It is read from its start, as the items of a first container without its head, and from the first complete container
    on: the reading with more nets is right. Raises FormatError where neither has any.
    """
    # The file does not say where its slice begins, so each possible start is tried.
    starts = item_starts(data)
    nets = max((_readable(data, start, file) for start in starts), key=len)
    if nets:
        return nets
    if _CONTAINER.search(data):
        return _nets_from(data, starts[-1], file)
    raise FormatError(file, 0, "items of a net, or a net_info container", f"{data[:8].hex(' ') or 'nothing'}")


def item_starts(data: bytes) -> tuple[int, ...]:
    """Return where the items of the slice may begin: at its start, behind a cut length, or with the first container."""
    found = _CONTAINER.search(data)
    is_behind_length = not _ITEMS.match(data) and data[1:2] == b"\0" and _ITEMS.match(data, _LENGTH_REST_BYTES)
    first = _LENGTH_REST_BYTES if is_behind_length else 0
    return (first, found.start()) if found and found.start() > first else (first,)


def _readable(data: bytes, start: int, file: str) -> tuple[Net, ...]:
    try:
        return _nets_from(data, start, file)
    except FormatError:
        return ()


def _nets_from(data: bytes, start: int, file: str) -> tuple[Net, ...]:
    # Items before the first container: those of a container whose head was cut off.
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
    return Net(
        net_id=items.needed(NET_ID, offset, "net"),
        net_type=items.integer(NET_TYPE),
        layer_count=items.integer(LAYER_COUNT),
        prof_layer_count=items.integer(PROF_LAYER_COUNT),
        batch_layer_count=items.integer(BATCH_LAYER_COUNT),
        max_loop=items.integer(MAX_LOOP),
    )


LAYER_ITEM = 0x111
LAYER_ID = 0x112
LAYER_NAME = 0x114
BATCH_LAYER = 0x121
SEGMENT_ID = 0x14B
LAYER_TYPE = 0x152
PROF_LAYER_ID = 0x157
OUTPUT_INDEX = 0x15B


@dataclass(frozen=True, slots=True)
class Layer:
    """Layer item. `layer_id` is not unique: the outputs of one Split differ in `output_index` alone."""

    layer_id: int
    name: str
    type: str
    prof_layer_id: int
    segment: int
    output_index: int
    is_batch: bool


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive layers of one segment that share a prof_layer_id, so one profiling record; named after all."""

    index: int
    layers: tuple[Layer, ...]
    layer_id: int
    name: str
    type: str
    segment: int
    is_batch: bool


@dataclass(frozen=True, slots=True)
class LayerTable:
    """Layers in the order of the file, and their runs; `runs[i].index` is i."""

    layers: tuple[Layer, ...]
    runs: tuple[Run, ...]


def parse_layer_info(data: bytes, file: str) -> LayerTable:
    """Return the layers in a `.layer.info`. Raises FormatError for anything but well-formed items.

    More than MOST_LAYERS are a FormatError too. Items that are no layers are skipped. Names end at their NUL, if any;
    bytes that are not UTF-8 are escaped.
    """
    items = (item for item in iter_items(data, 0, len(data), file) if item.id == LAYER_ITEM)
    layers = tuple(_read_layer(data, item, file) for item in islice(items, MOST_LAYERS))
    # The bound is checked while reading, so that a damaged file cannot fill the memory.
    one_more = next(items, None)
    if one_more is not None:
        raise FormatError(file, one_more.offset, f"{MOST_LAYERS} layers at most", "one more")
    groups = groupby(layers, key=lambda layer: (layer.segment, layer.prof_layer_id))
    return LayerTable(layers, tuple(_run(index, tuple(group)) for index, (_, group) in enumerate(groups)))


def _run(index: int, layers: tuple[Layer, ...]) -> Run:
    # The outputs of one Split are shown as one layer.
    distinct = {(layer.layer_id, layer.name): layer for layer in layers}.values()
    return Run(
        index=index,
        layers=layers,
        layer_id=layers[0].layer_id,
        name="+".join(layer.name for layer in distinct),
        type="+".join(layer.type for layer in distinct),
        segment=layers[0].segment,
        is_batch=any(layer.is_batch for layer in layers),
    )


def _read_layer(data: bytes, container: Item, file: str) -> Layer:
    if not isinstance(container.value, bytes):
        raise FormatError(file, container.offset, "a layer item with a length", f"tag {container.tag:#06x}")
    items = read_items(data, container.nested_start, container.end, file)
    return Layer(
        layer_id=items.needed(LAYER_ID, container.offset, "layer"),
        name=items.text(LAYER_NAME),
        type=items.text(LAYER_TYPE),
        prof_layer_id=items.needed(PROF_LAYER_ID, container.offset, "layer"),
        segment=items.integer(SEGMENT_ID) or 0,
        output_index=items.integer(OUTPUT_INDEX) or 0,
        is_batch=items.integer(BATCH_LAYER) == 1,
    )


TAG_BYTES = 2
ID_MASK = 0x1FFF
ENCODING_MASK = 0xE000

# Bytes of the value, or of its length, by the tag's encoding.
_INTEGERS = {0x2000: 1, 0x4000: 2, 0x6000: 4}
_LENGTHS = {0x8000: 1, 0xA000: 2, 0xC000: 4}


@dataclass(frozen=True, slots=True)
class Item:
    """Item: bytes `offset` to `end` of its file."""

    offset: int
    end: int
    tag: int
    value: int | bytes

    @property
    def id(self) -> int:
        """Tag without its encoding."""
        return self.tag & ID_MASK

    @property
    def nested_start(self) -> int:
        """Offset in the file at which the items inside a bytes value begin."""
        return self.end - len(self.value) if isinstance(self.value, bytes) else self.end


@dataclass(frozen=True, slots=True)
class Items:
    """Items of one container by id; of a repeated id the last."""

    file: str
    by_id: dict[int, Item]

    def integer(self, item_id: int) -> int | None:
        """Return an item's integer, None where there is no such item. Raises FormatError for another form."""
        item = self.by_id.get(item_id)
        if item is None:
            return None
        if isinstance(item.value, int):
            return item.value
        raise FormatError(self.file, item.offset, f"an integer in item {item_id:#05x}", f"{len(item.value)} bytes")

    def needed(self, item_id: int, offset: int, where: str) -> int:
        """Return an item's integer, as `integer`. Raises FormatError also where there is none."""
        value = self.integer(item_id)
        if value is None:
            raise FormatError(self.file, offset, f"item {item_id:#05x} in a {where}", "none")
        return value

    def text(self, item_id: int) -> str:
        """Return a text up to its NUL, empty where there is none. Raises FormatError for another form."""
        item = self.by_id.get(item_id)
        if item is None:
            return ""
        if isinstance(item.value, bytes):
            return item.value.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")
        raise FormatError(self.file, item.offset, f"bytes in item {item_id:#05x}", f"the integer {item.value}")


def iter_items(data: bytes, start: int, end: int, file: str) -> Iterator[Item]:
    """Yield the items of `data[start:end]`, which follow each other without gaps.

    Raises FormatError for an encoding that does not exist and for an item that runs past `end`.
    """
    offset = start
    while offset < end:
        item = _read_item(data, offset, end, file)
        yield item
        offset = item.end


def read_items(data: bytes, start: int, end: int, file: str) -> Items:
    """Return all items of `data[start:end]` by id. Raises FormatError as `iter_items` does."""
    return Items(file, {item.id: item for item in iter_items(data, start, end, file)})


def _read_item(data: bytes, offset: int, end: int, file: str) -> Item:
    tag = _integer(data, offset, TAG_BYTES, end, file)
    encoding, at = tag & ENCODING_MASK, offset + TAG_BYTES
    if encoding in _INTEGERS:
        size = _INTEGERS[encoding]
        return Item(offset, at + size, tag, _integer(data, at, size, end, file))
    if encoding not in _LENGTHS:
        raise FormatError(file, offset, "a tag with one of the six encodings", f"{tag:#06x}")
    size = _LENGTHS[encoding]
    length = _integer(data, at, size, end, file)
    at += size
    # Checked before the slice: Python would return fewer bytes without an error.
    if length > end - at:
        raise FormatError(file, offset, f"{length} bytes in item {tag:#06x}", f"{end - at}")
    return Item(offset, at + length, tag, data[at : at + length])


def _integer(data: bytes, at: int, size: int, end: int, file: str) -> int:
    if size > end - at:
        raise FormatError(file, at, f"{size} bytes of an item", f"{end - at}")
    return int.from_bytes(data[at : at + size], "little")
