"""The little of protobuf's wire format that a trace is written with.

A number that differs from event to event takes as many bytes in all of them: a varint may have leading zeros. So what
is around it is made once, and numpy writes the numbers of a block at a time.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

VARINT, FIXED64, BYTES = 0, 1, 2
# 63 bits: a clock that is set leaps from 1970.
WIDE_BYTES = 9
_SHIFTS = np.arange(WIDE_BYTES, dtype=np.uint64) * np.uint64(7)


@lru_cache(4096)
def varint(number: int) -> bytes:
    """A whole number that is not negative."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


@lru_cache(256)
def tag(field: int, wire: int) -> bytes:
    """What stands before a field's value."""
    return varint(field << 3 | wire)


@lru_cache(4096)
def number(field: int, value: int) -> bytes:
    """A field of a whole number; one below zero as an int64 is."""
    return tag(field, VARINT) + varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def fixed64(field: int, value: int) -> bytes:
    """A field of eight bytes."""
    return tag(field, FIXED64) + struct.pack("<Q", value)


def double(field: int, value: float) -> bytes:
    """A field of a double."""
    return tag(field, FIXED64) + struct.pack("<d", value)


def block(field: int, content: bytes) -> bytes:
    """A field of bytes, or of a message."""
    return tag(field, BYTES) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """A field of a text; what UTF-8 cannot say is replaced."""
    return block(field, value.encode("utf-8", "replace"))


def wide_varints(numbers: NDArray[np.int64]) -> list[bytes]:
    """Each as a varint of WIDE_BYTES; what is below zero is zero."""
    groups = (np.maximum(numbers, 0).astype(np.uint64)[:, None] >> _SHIFTS).astype(np.uint8) | np.uint8(0x80)
    groups[:, -1] &= 0x7F
    return rows_of(groups)


def doubles(field: int, values: NDArray[np.float64]) -> list[bytes]:
    """For each row, a field of a double for each of its values."""
    opening = np.frombuffer(tag(field, FIXED64), np.uint8)
    rows, columns = values.shape
    found = np.empty((rows, columns, len(opening) + 8), np.uint8)
    found[:, :, : len(opening)] = opening
    found[:, :, len(opening) :] = np.ascontiguousarray(values, "<f8").view(np.uint8).reshape(rows, columns, 8)
    return rows_of(found.reshape(rows, -1))


def rows_of(table: NDArray[np.uint8]) -> list[bytes]:
    """The rows of a table of bytes."""
    return np.ascontiguousarray(table).view(f"V{table.shape[1]}").ravel().tolist()
