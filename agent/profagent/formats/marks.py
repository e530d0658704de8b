"""Marks, spans, ranges and steps of programs: 256 bytes each, as `profagent_app.marks` writes them."""

from __future__ import annotations

import enum
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

RECORD_BYTES = 256
_MAGIC, _VERSION = 0x4B52414D, 1
_TEXT_BYTES = 208
_LARGEST = 2**63
_FIELDS = np.dtype(
    [
        ("magic", "<u4"),
        ("version", "u1"),
        ("kind", "u1"),
        ("text_bytes", "<u2"),
        ("pid", "<u4"),
        ("tid", "<u4"),
        ("begin_ns", "<u8"),
        ("end_ns", "<u8"),
        ("number", "<u8"),
        ("lane", "<u4"),
        ("attribute_bytes", "<u2"),
        ("writer", "<u2"),
        ("text", f"V{_TEXT_BYTES}"),
    ]
)


class MarkKind(enum.Enum):
    """What a record marks; the order is that of the numbers in records."""

    MARK = "mark"
    SPAN = "span"
    RANGE = "range"
    STEP = "step"


_KINDS = list(MarkKind)


class Mark(NamedTuple):
    """A moment or a time of a program. Times are nanoseconds since 1970 by the board's clock."""

    kind: MarkKind
    text: str
    attributes: dict[str, Any]
    pid: int
    tid: int
    begin_ns: int
    end_ns: int
    number: int  # counts the marks of a writer in its process, those that were dropped as well
    lane: int  # an asyncio task, or a range's id; 0 for the thread's own
    writer: int  # tells those apart that number marks in one process


def decode(data: bytes) -> tuple[list[Mark], int]:
    """The marks of whole records, and how many records are none."""
    found, good = _records(data)
    return [_mark(row) for row in found[good]], int(len(found) - good.sum())


def numbers(data: bytes, pid: int, writer: int) -> list[int]:
    """The numbers of a writer's marks in whole records, in the order in which they came."""
    found, good = _records(data)
    return [int(number) for number in found[good & (found["pid"] == pid) & (found["writer"] == writer)]["number"]]


def _records(data: bytes) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Whole records, and which of them are marks."""
    found = np.frombuffer(data, _FIELDS, count=len(data) // RECORD_BYTES)
    good = (
        (found["magic"] == _MAGIC)
        & (found["version"] == _VERSION)
        & (found["kind"] < len(_KINDS))
        & (found["text_bytes"].astype(int) + found["attribute_bytes"] <= _TEXT_BYTES)
        & (found["begin_ns"] < _LARGEST)
        & (found["end_ns"] < _LARGEST)
        & (found["number"] < _LARGEST)
    )
    return found, good


def _mark(row: np.void) -> Mark:
    size, more, raw = int(row["text_bytes"]), int(row["attribute_bytes"]), bytes(row["text"])
    return Mark(
        _KINDS[row["kind"]],
        raw[:size].decode("utf-8", "replace"),
        _attributes(raw[size : size + more]),
        *(int(row[name]) for name in ("pid", "tid", "begin_ns", "end_ns", "number", "lane", "writer")),
    )


def _attributes(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw, parse_constant=_nothing) if raw else {}
        if b"\\u" in raw:  # an escape may be half of a character, which no file of ours can hold
            found = json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _nothing(_constant: str) -> None:
    """`NaN` and `Infinity`, which Python writes, are no JSON."""
