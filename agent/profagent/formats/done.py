"""Reads `.done` texts, which end a set of records (format page 2.2)."""

from __future__ import annotations

import re
from typing import NamedTuple

from profagent.errors import FormatError
from profagent.formats.names import LogKind

U32_SPAN = 2**32
# What SQLite can hold; no clock and no length comes near it.
I63_MAX = 2**63 - 1

_KEYS = {
    LogKind.AICORE: ("file_len", "start_time", "end_time", "cache_hit", "cache_mis"),
    LogKind.AICPU: ("file_len", "start_time", "end_time"),
    LogKind.ACL_API: ("file_len", "start_time", "end_time", "pid", "tid"),
}
# The lowest and the highest value; others are 32-bit numbers, which one SDK generation prints signed.
_RANGES = {
    "start_time": (0, I63_MAX),
    "end_time": (0, I63_MAX),
    "pid": (0, U32_SPAN - 1),
    "tid": (0, U32_SPAN - 1),
}
_SIGNED = (-U32_SPAN // 2, U32_SPAN - 1)
_LINE = re.compile(rb"([a-z_]+):(-?[0-9]{1,20})\n")
# The runtime ends this line without a newline.
_BATCHES = re.compile(rb"online_batch_num:([0-9]{1,10}(?:,[0-9]{1,10}){0,7})\n?")
# What the board's daemon takes as a line.
_ANY_LINE = re.compile(rb"([a-z_]+):\s*(-?[0-9]+)\s*")


class Done(NamedTuple):
    """What a `.done` says of its set of records; None where its kind has no such line."""

    file_len: int
    start_us: int
    end_us: int
    cache_hit: int | None = None
    cache_miss: int | None = None
    pid: int | None = None
    tid: int | None = None
    online_batch_num: tuple[int, ...] = ()


def is_whole_done(data: bytes, kind: LogKind) -> bool:
    """Whether the board's daemon takes a `.done` as whole: all expected keys are there, each with an integer."""
    lines = (_ANY_LINE.fullmatch(line) for line in data.splitlines())
    return {key.encode() for key in _KEYS[kind]} <= {line[1] for line in lines if line}


def parse_done(data: bytes, kind: LogKind, file: str) -> Done:
    """Read the text of an aicore, aicpu or acl_api `.done`.

    One SDK generation prints 32-bit values signed, the other unsigned: `file_len` and the cache counters are taken
    modulo 2**32 when they are negative (format page 2.2). `start_us` is 0 for an acl_api set whose model was loaded
    before profiling was started. Raises FormatError for whatever is not the whole text.
    """
    values: dict[str, int] = {}
    at = 0
    for key in _KEYS[kind]:
        line = _LINE.match(data, at)
        low, high = _RANGES.get(key, _SIGNED)
        if key == "file_len" and kind is LogKind.ACL_API:
            # Its length is printed in 64 bits by one SDK generation.
            high = I63_MAX
        if line is None or line[1] != key.encode() or not low <= int(line[2]) <= high:
            raise FormatError(file, at, f"a line '{key}:' with a number from {low} to {high}", _found(data, at))
        values[key] = int(line[2]) % U32_SPAN if low < 0 and line[2].startswith(b"-") else int(line[2])
        at = line.end()
    batches = _BATCHES.fullmatch(data, at) if kind is LogKind.AICORE else None
    online = tuple(map(int, batches[1].split(b","))) if batches else ()
    if (batches is None and at < len(data)) or max(online, default=0) >= U32_SPAN:
        raise FormatError(file, at, "the end of the text", _found(data, at))
    return Done(
        file_len=values["file_len"],
        start_us=values["start_time"],
        end_us=values["end_time"],
        cache_hit=values.get("cache_hit"),
        cache_miss=values.get("cache_mis"),
        pid=values.get("pid"),
        tid=values.get("tid"),
        online_batch_num=online,
    )


def _found(data: bytes, at: int) -> str:
    return repr(data[at : at + 24])[1:] if at < len(data) else "the end of the text"
