"""The tagged items of which `.info` files are made (format page 2.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Item", "Items", "iter_items", "read_items"]

TAG_BYTES = 2
ID_MASK = 0x1FFF
ENCODING_MASK = 0xE000

# Bytes of the value, or of its length, by the tag's encoding.
_INTEGERS = {0x2000: 1, 0x4000: 2, 0x6000: 4}
_LENGTHS = {0x8000: 1, 0xA000: 2, 0xC000: 4}


@dataclass(frozen=True, slots=True)
class Item:
    """One item: bytes `offset` to `end` of its file."""

    offset: int
    end: int
    tag: int
    value: int | bytes

    @property
    def id(self) -> int:
        """The tag without its encoding: what the item is."""
        return self.tag & ID_MASK

    @property
    def nested_start(self) -> int:
        """Where the items inside a bytes value begin in the file."""
        return self.end - len(self.value) if isinstance(self.value, bytes) else self.end


@dataclass(frozen=True, slots=True)
class Items:
    """The items of one container by id; of a repeated id the last."""

    file: str
    by_id: dict[int, Item]

    def integer(self, item_id: int) -> int | None:
        """Give an item's integer, None where there is no such item; raises FormatError for another form."""
        item = self.by_id.get(item_id)
        if item is None:
            return None
        if isinstance(item.value, int):
            return item.value
        raise FormatError(self.file, item.offset, f"an integer in item {item_id:#05x}", f"{len(item.value)} bytes")

    def content(self, item_id: int) -> bytes | None:
        """Give an item's bytes, None where there is no such item; raises FormatError for another form."""
        item = self.by_id.get(item_id)
        if item is None:
            return None
        if isinstance(item.value, bytes):
            return item.value
        raise FormatError(self.file, item.offset, f"bytes in item {item_id:#05x}", f"the integer {item.value}")


def iter_items(data: bytes, start: int, end: int, file: str) -> Iterator[Item]:
    """Read the items of `data[start:end]`, back to back.

    Raises FormatError for an encoding that does not exist and for an item that runs past `end`.
    """
    offset = start
    while offset < end:
        item = _read_item(data, offset, end, file)
        yield item
        offset = item.end


def read_items(data: bytes, start: int, end: int, file: str) -> Items:
    """Read the items of `data[start:end]` whole; raises FormatError as `iter_items` does."""
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
    if length > end - at:
        raise FormatError(file, offset, f"{length} bytes in item {tag:#06x}", f"{end - at}")
    return Item(offset, at + length, tag, data[at : at + length])


def _integer(data: bytes, at: int, size: int, end: int, file: str) -> int:
    if size > end - at:
        raise FormatError(file, at, f"{size} bytes of an item", f"{end - at}")
    return int.from_bytes(data[at : at + size], "little")
