"""`.info` files whose names are aliases: every field keeps its length, so that the bytes stay decodable."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from profagent.errors import FormatError
from profagent.formats.layers import (
    BATCH_LAYER,
    LAYER_ID,
    LAYER_ITEM,
    LAYER_NAME,
    LAYER_TYPE,
    OUTPUT_INDEX,
    PROF_LAYER_ID,
    SEGMENT_ID,
)
from profagent.formats.net_info import (
    BATCH_LAYER_COUNT,
    LAYER_COUNT,
    MAX_LOOP,
    NET_ID,
    NET_INFO,
    NET_TYPE,
    PROF_LAYER_COUNT,
    item_starts,
)
from profagent.formats.tlv import TAG_BYTES, iter_items

if TYPE_CHECKING:
    from profagent.evidence.aliases import Aliases
    from profagent.formats.tlv import Item

__all__ = ["InfoAliases"]

_CONTAINERS = (LAYER_ITEM, NET_INFO)
# What is read of them; another number may be anything, in a torn file a part of a name.
_NUMBERS = frozenset(
    (
        *(LAYER_ID, BATCH_LAYER, SEGMENT_ID, PROF_LAYER_ID, OUTPUT_INDEX),
        *(NET_ID, NET_TYPE, LAYER_COUNT, PROF_LAYER_COUNT, BATCH_LAYER_COUNT, MAX_LOOP),
    )
)
_TYPE = re.compile(rb"[A-Za-z0-9_]{1,64}\0*")
# Of a container's 32-bit length, that is cut.
_LENGTH_BYTES = 2
_ENCODINGS = ("utf-8", "gb18030", "latin-1")


class InfoAliases:
    """Replaces the names of layers in `.info` files, and counts the other fields that it `zeroed`."""

    def __init__(self, aliases: Aliases) -> None:
        self._aliases = aliases
        self.zeroed = 0

    def replaced(self, data: bytes, file: str) -> bytes:
        """Give the file with aliases for names; known numbers and types stay, all else is zeros."""
        starts = item_starts(data)
        start, items = max(((start, _items(data, start, len(data), file)) for start in starts), key=_extent)
        changed = bytearray(len(data))
        # Before the items is the rest of a length, or of a text.
        if start <= _LENGTH_BYTES:
            changed[:start] = data[:start]
        for item in items:
            self._copy(changed, data, item)
            if item.id in _CONTAINERS and isinstance(item.value, bytes):
                for nested in _items(data, item.nested_start, item.end, file):
                    self._copy(changed, data, nested)
        return bytes(changed)

    def _copy(self, changed: bytearray, data: bytes, item: Item) -> None:
        if isinstance(item.value, int):
            kept = item.end if item.id in _NUMBERS else item.offset + TAG_BYTES
        else:
            kept = item.nested_start
        changed[item.offset : kept] = data[item.offset : kept]
        if isinstance(item.value, bytes) and item.id == LAYER_NAME:
            changed[item.nested_start : item.end] = self._alias(item.value)
        elif isinstance(item.value, bytes) and item.id == LAYER_TYPE and _TYPE.fullmatch(item.value):
            changed[item.nested_start : item.end] = item.value
        elif kept < item.end and item.id not in _CONTAINERS:
            self.zeroed += 1

    def _alias(self, value: bytes) -> bytes:
        """A name with as many bytes, up to its NUL."""
        name = value.split(b"\0", 1)[0]
        parts = [(_text(part), len(part)) for part in name.split(b"+")]
        aliases = (self._aliases.of(text, size)[:size].ljust(size, "x") for text, size in parts)
        return "+".join(aliases).encode("ascii").ljust(len(value), b"\0")


def _items(data: bytes, start: int, end: int, file: str) -> list[Item]:
    """As many as can be read."""
    items: list[Item] = []
    with suppress(FormatError):
        for item in iter_items(data, start, end, file):
            items.append(item)  # noqa: PERF402 - those before an error count
    return items


def _extent(found: tuple[int, list[Item]]) -> tuple[int, int]:
    """How many containers there are, and how much of the file is items."""
    start, items = found
    return sum(item.id in _CONTAINERS for item in items), (items[-1].end if items else start) - start


def _text(name: bytes) -> str:
    for encoding in _ENCODINGS:
        try:
            return name.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise AssertionError("latin-1 decodes any bytes")
