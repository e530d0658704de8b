"""Reads `.done` texts, which end a set of records (format page 2.2)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from profagent.errors import FormatError
from profagent.formats.names import LogKind

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Done", "is_whole_done", "parse_done"]

ONLINE_BATCHES_MAX = 8
U32_SPAN = 2**32
# What SQLite can hold; no clock and no length comes near it.
I63_MAX = 2**63 - 1

_KEYS = {
    LogKind.AICORE: ("file_len", "start_time", "end_time", "cache_hit", "cache_mis"),
    LogKind.AICPU: ("file_len", "start_time", "end_time"),
    LogKind.ACL_API: ("file_len", "start_time", "end_time", "pid", "tid"),
}
_RANGES = {
    "start_time": (0, I63_MAX),
    "end_time": (0, I63_MAX),
    "pid": (0, U32_SPAN - 1),
    "tid": (0, U32_SPAN - 1),
    "cache_hit": (-U32_SPAN // 2, U32_SPAN - 1),
    "cache_mis": (-U32_SPAN // 2, U32_SPAN - 1),
    "online_batch_num": (0, U32_SPAN - 1),
}
_LINE = re.compile(rb"([a-z_]+):\s*(-?[0-9]+)\s*")
_NUMBER = re.compile(rb"-?[0-9]{1,20}")


def _lines(keys: Sequence[str]) -> re.Pattern[bytes]:
    """Key, number and newline of each line, each only after the one before: the last found tells what is missing."""
    pattern = b""
    for key in reversed(keys):
        pattern = rb"(?:(%s:)(?:(%s)(?:(\n)%s)?)?)?" % (key.encode(), _NUMBER.pattern, pattern)
    return re.compile(pattern)


_LINES = {kind: _lines(keys) for kind, keys in _KEYS.items()}


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
    lines = (_LINE.fullmatch(line) for line in data.splitlines())
    return {key.encode() for key in _KEYS[kind]} <= {line[1] for line in lines if line}


def parse_done(data: bytes, kind: LogKind, file: str) -> Done:
    """Read the text of an aicore, aicpu or acl_api `.done`.

    One SDK generation prints 32-bit values signed, the other unsigned: `file_len` and the cache counters are taken
    modulo 2**32 when they are negative (format page 2.2). `start_us` is 0 for an acl_api set whose model was loaded
    before profiling was started. Raises FormatError for whatever is not the whole text.
    """
    reader = _Reader(data, kind, file)
    values = reader.number_lines()
    online_batch_num = reader.batches_line() if kind is LogKind.AICORE and not reader.at_end else ()
    reader.finish()
    return Done(
        file_len=values["file_len"],
        start_us=values["start_time"],
        end_us=values["end_time"],
        cache_hit=values.get("cache_hit"),
        cache_miss=values.get("cache_mis"),
        pid=values.get("pid"),
        tid=values.get("tid"),
        online_batch_num=online_batch_num,
    )


class _Reader:
    """Takes the lines of a `.done` one after the other, in the order in which the runtime prints them."""

    def __init__(self, data: bytes, kind: LogKind, file: str) -> None:
        self._data = data
        self._kind = kind
        self._file = file
        self._at = 0

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)

    def number_lines(self) -> dict[str, int]:
        keys = _KEYS[self._kind]
        match = _LINES[self._kind].match(self._data)
        assert match is not None, "nothing in it must be there"
        found, self._at = match.lastindex or 0, match.end()
        numbers = enumerate(keys[: (found + 1) // 3])
        values = {key: self._value(key, match, 3 * number + 2) for number, key in numbers}
        if found < 3 * len(keys):
            key = keys[found // 3]
            raise self._fault((repr(f"{key}:"), f"the decimal number of {key!r}", repr("\n"))[found % 3])
        return values

    def batches_line(self) -> tuple[int, ...]:
        self._take(b"online_batch_num:")
        values = [self._number("online_batch_num")]
        while self._data[self._at : self._at + 1] == b"," and len(values) < ONLINE_BATCHES_MAX:
            self._at += 1
            values.append(self._number("online_batch_num"))
        # The runtime ends this line without a newline.
        if self._data[self._at :] == b"\n":
            self._at += 1
        return tuple(values)

    def finish(self) -> None:
        if not self.at_end:
            raise self._fault("the end of the text")

    def _take(self, text: bytes) -> None:
        if not self._data.startswith(text, self._at):
            raise self._fault(repr(text.decode()))
        self._at += len(text)

    def _number(self, key: str) -> int:
        match = _NUMBER.match(self._data, self._at)
        if not match:
            raise self._fault(f"the decimal number of {key!r}")
        value = self._value(key, match, 0)
        self._at = match.end()
        return value

    def _value(self, key: str, match: re.Match[bytes], group: int) -> int:
        low, high = self._range(key)
        value = int(match[group])
        if not low <= value <= high:
            self._at = match.start(group)
            raise self._fault(f"a value of {key!r} from {low} to {high}")
        return value if value >= 0 else value + U32_SPAN

    def _range(self, key: str) -> tuple[int, int]:
        if key == "file_len":
            # The length of an acl_api set is printed in 64 bits by one SDK generation.
            return -U32_SPAN // 2, I63_MAX if self._kind is LogKind.ACL_API else U32_SPAN - 1
        return _RANGES[key]

    def _fault(self, expected: str) -> FormatError:
        rest = self._data[self._at : self._at + 24]
        found = repr(rest)[1:] if rest else "the end of the text"
        return FormatError(self._file, self._at, expected, found)
