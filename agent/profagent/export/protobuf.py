"""The part of protobuf's wire format that a trace needs.

A number that differs from event to event has the same length in all of them: protobuf accepts varints with leading
zeros. So the bytes around it are made once, and numpy writes all events of a block together.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from profagent.limits import REMEMBERED_NUMBERS, REMEMBERED_TAGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    """Bytes of one field: a row for each event."""
    Form = Sequence[bytes | int]
    """Bytes that events share; a number stands for the event's own bytes from the column with that number."""

VARINT, FIXED64, BYTES = 0, 1, 2
# Nine bytes hold 63 bits: a board's clock leaps from 1970 when it is set, so that times may be huge.
WIDE_BYTES = 9
_SHIFTS = np.arange(WIDE_BYTES, dtype=np.uint64) * np.uint64(7)


@lru_cache(REMEMBERED_NUMBERS)
def varint(number: int) -> bytes:
    """Return a whole number that is not negative as a varint."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


@lru_cache(REMEMBERED_TAGS)
def tag(field: int, wire: int) -> bytes:
    """Return the tag of a field, which precedes its value."""
    return varint(field << 3 | wire)


@lru_cache(REMEMBERED_NUMBERS)
def number(field: int, value: int) -> bytes:
    """Return a field with a whole number; a negative number is encoded as an int64."""
    return tag(field, VARINT) + varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def fixed64(field: int, value: int) -> bytes:
    """Return a field with eight bytes."""
    return tag(field, FIXED64) + struct.pack("<Q", value)


def double(field: int, value: float) -> bytes:
    """Return a field with a double."""
    return tag(field, FIXED64) + struct.pack("<d", value)


def block(field: int, content: bytes) -> bytes:
    """Return a field with bytes or a message."""
    return tag(field, BYTES) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """Return a field with a text; characters that UTF-8 cannot encode are replaced."""
    return block(field, value.encode("utf-8", "replace"))


def wide_varints(numbers: NDArray[np.int64]) -> Bytes:
    """Return each number as a varint of WIDE_BYTES; negative numbers become zero."""
    groups = (np.maximum(numbers, 0).astype(np.uint64)[:, None] >> _SHIFTS).astype(np.uint8) | np.uint8(0x80)
    groups[:, -1] &= 0x7F
    return groups


def doubles(field: int, values: NDArray[np.float64]) -> Bytes:
    """Return a row of fields for each row of values: one field with a double for each value."""
    opening = np.frombuffer(tag(field, FIXED64), np.uint8)
    rows, columns = values.shape
    found = np.empty((rows, columns, len(opening) + 8), np.uint8)
    found[:, :, : len(opening)] = opening
    found[:, :, len(opening) :] = np.ascontiguousarray(values, "<f8").view(np.uint8).reshape(rows, columns, 8)
    return found.reshape(rows, -1)


def filled(forms: Sequence[Form], form: NDArray[np.int64], columns: Sequence[Bytes]) -> bytes:
    """Return all rows, each as the form with the index `form`, filled from its columns."""
    # Forms with pieces of equal lengths make rows of equal length, which one table can hold.
    shapes: dict[tuple[int, ...], list[int]] = {}
    for number, pieces in enumerate(forms):
        shape = tuple(piece if isinstance(piece, int) else ~len(piece) for piece in pieces)
        shapes.setdefault(shape, []).append(number)
    found = np.empty(len(form), object)
    for shape, numbers in shapes.items():
        rows = np.isin(form, numbers).nonzero()[0]
        widths = [columns[piece].shape[1] if piece >= 0 else ~piece for piece in shape]
        texts = [_with_holes(forms[number], columns) for number in numbers]
        table = np.frombuffer(b"".join(texts), np.uint8).reshape(len(texts), -1)[np.searchsorted(numbers, form[rows])]
        for piece, begin, width in zip(shape, accumulate([0, *widths]), widths, strict=False):
            if piece >= 0:
                table[:, begin : begin + width] = columns[piece][rows]
        found[rows] = table.view(f"V{table.shape[1]}").ravel().tolist()
    return b"".join(found.tolist())


def _with_holes(form: Form, columns: Sequence[Bytes]) -> bytes:
    return b"".join(bytes(columns[piece].shape[1]) if isinstance(piece, int) else piece for piece in form)
