"""Small texts of a board: `info.json.<device>`, acl.json, and `.done`, the end of a set of records (format 2, 5)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from profagent.errors import FormatError, UnsupportedBoardError
from profagent.formats.names import LogKind, parse_log_name
from profagent.formats.sampling import INTERVAL_MAX, interval_of
from profagent.limits import LARGEST_INTEGER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


U32_SPAN = 2**32

_TIME = (0, LARGEST_INTEGER)
_ID = (0, U32_SPAN - 1)
# One SDK generation prints 32-bit numbers signed.
_SIGNED = (-U32_SPAN // 2, U32_SPAN - 1)
# Lines of each kind of `.done`, with the lowest and the highest value.
_LINES = {
    LogKind.AICORE: {
        "file_len": _SIGNED,
        "start_time": _TIME,
        "end_time": _TIME,
        "cache_hit": _SIGNED,
        "cache_mis": _SIGNED,
    },
    LogKind.AICPU: {"file_len": _SIGNED, "start_time": _TIME, "end_time": _TIME},
    # One SDK generation prints this length in 64 bits.
    LogKind.ACL_API: {
        "file_len": (-U32_SPAN // 2, LARGEST_INTEGER),
        "start_time": _TIME,
        "end_time": _TIME,
        "pid": _ID,
        "tid": _ID,
    },
}
_LINE = r"{}:(-?[0-9]{{1,20}})\n".format
_TEXTS = {kind: re.compile("".join(map(_LINE, lines)).encode()) for kind, lines in _LINES.items()}
# The runtime ends this line without a newline.
_BATCHES = re.compile(rb"online_batch_num:([0-9]{1,10}(?:,[0-9]{1,10}){0,7})\n?")
# A line as the board's daemon accepts it.
_ANY_LINE = re.compile(rb"([a-z_]+):\s*(-?[0-9]+)\s*")


class Done(NamedTuple):
    """Content of a `.done` about its set of records; None where its kind has no such line."""

    file_len: int
    start_us: int
    end_us: int
    cache_hit: int | None = None
    cache_miss: int | None = None
    pid: int | None = None
    tid: int | None = None
    online_batch_num: tuple[int, ...] = ()


def is_whole_done(data: bytes, kind: LogKind) -> bool:
    """Return True if the board's daemon takes a `.done` as complete: each expected key has an integer."""
    lines = (_ANY_LINE.fullmatch(line) for line in data.splitlines())
    return {key.encode() for key in _LINES[kind]} <= {line[1] for line in lines if line}


def parse_done(data: bytes, kind: LogKind, file: str) -> Done:
    """Return the content of an aicore, aicpu or acl_api `.done`.

    One SDK generation prints 32-bit values signed, the other unsigned: `file_len` and the cache counters are taken
    modulo 2**32 when they are negative (the-format.md 2.2). `start_us` is 0 for an acl_api set whose model was loaded
    before profiling was started. Raises FormatError for an incomplete or damaged text.
    """
    text = _TEXTS[kind].match(data)
    if text is None:
        raise _odd_line(data, kind, file)
    numbers = []
    for digits, (low, high) in zip(text.groups(), _LINES[kind].values(), strict=True):
        number = int(digits)
        if not low <= number <= high:
            raise _odd_line(data, kind, file)
        # Negative only where an SDK prints an unsigned 32-bit number signed.
        numbers.append(number % U32_SPAN if number < 0 else number)
    batches = _BATCHES.fullmatch(data, text.end()) if kind is LogKind.AICORE else None
    online = tuple(map(int, batches[1].split(b","))) if batches else ()
    if (batches is None and text.end() < len(data)) or max(online, default=0) >= U32_SPAN:
        raise FormatError(file, text.end(), "the end of the text", _found(data, text.end()))
    length, start, end, *others = numbers
    match kind:
        case LogKind.AICORE:
            return Done(length, start, end, cache_hit=others[0], cache_miss=others[1], online_batch_num=online)
        case LogKind.ACL_API:
            return Done(length, start, end, pid=others[0], tid=others[1])
    return Done(length, start, end)


def _odd_line(data: bytes, kind: LogKind, file: str) -> FormatError:
    at = 0
    for key, (low, high) in _LINES[kind].items():
        line = re.compile(_LINE(key).encode()).match(data, at)
        if line is None or not low <= int(line[1]) <= high:
            return FormatError(file, at, f"a line '{key}:' with a number from {low} to {high}", _found(data, at))
        at = line.end()
    raise AssertionError("one of them is odd")


def _found(data: bytes, at: int) -> str:
    return repr(data[at : at + 24])[1:] if at < len(data) else "the end of the text"


# The runtime accepts a comma before a closing bracket; a string is matched as a unit, so that its commas stay.
_STRING_OR_LAST_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)


def load_acl_json(data: bytes, file: str) -> object:
    """Return the parsed acl.json, with the trailing commas that the runtime accepts. Raises FormatError."""
    try:
        # Replaced by as many characters, so that columns in an error message are those of the file.
        text = _STRING_OR_LAST_COMMA.sub(lambda match: match.group(1) or " ", data.decode("utf-8"))
        loaded: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(file, 0, "the JSON of an acl.json", str(error)) from error
    return loaded


def parse_acl_json(data: bytes, file: str) -> int:
    """Return the interval in an acl.json; 0, the runtime's default, where there is none. Raises FormatError."""
    loaded = load_acl_json(data, file)
    profiler = loaded.get("profiler") if isinstance(loaded, dict) else None
    if not isinstance(profiler, dict):
        raise FormatError(file, 0, "an object 'profiler'", "none")
    text = profiler.get("interval", "")
    interval = interval_of(text) if isinstance(text, str) else None
    if interval is None:
        raise FormatError(file, 0, f"an interval from '0' to '{INTERVAL_MAX}'", repr(text)[:40])
    return interval


FREQUENCY_KEY = "aic_frequency"
FREQUENCY_MHZ_MAX = 2**32 - 1
HI3519_MAGIC = "6A6A"

_HI3519_DATA = re.compile(r"data/aic(?:ore|pu)\.[0-9]+\.[0-9]+\.[0-9]+(?:\.done)?", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,10}", re.ASCII)


def parse_info_json(data: bytes, file: str) -> int:
    """Return the NPU's clock in MHz; objects beside it are accepted.

    Raises UnsupportedBoardError for a Hi3519DV500, FormatError where there is no usable frequency.
    """
    objects = list(_objects(_loaded(data, file)))
    if any(str(found.get("magic_num", "")).upper() == HI3519_MAGIC for found in objects):
        raise UnsupportedBoardError(
            f"{file} is of a Hi3519DV500, whose records look like those of an SS928 but differ",
            hint="profagent reads JOB directories of SS928 and SS927 boards",
        )
    values = [found[FREQUENCY_KEY] for found in objects if FREQUENCY_KEY in found]
    offset = max(data.find(FREQUENCY_KEY.encode()), 0)
    if not values:
        raise FormatError(file, offset, f"an object with {FREQUENCY_KEY!r}", "none")
    frequency_mhz = _decimal(values[0])
    if not 1 <= frequency_mhz <= FREQUENCY_MHZ_MAX:
        raise FormatError(file, offset, f"{FREQUENCY_KEY!r} in whole MHz, at least 1", repr(values[0])[:40])
    return frequency_mhz


def looks_like_hi3519(names: Iterable[str]) -> bool:
    """Return True if a JOB's paths are those of a Hi3519DV500: data files without a model's name only."""
    has_nameless = False
    for path in names:
        # A single log with a model's name proves an SS928, whatever else is there.
        has_nameless = has_nameless or _HI3519_DATA.fullmatch(path) is not None
        name = parse_log_name(path)
        if name is not None and name.kind in (LogKind.AICORE, LogKind.AICPU):
            return False
    return has_nameless


def _loaded(data: bytes, file: str) -> object:
    try:
        loaded: object = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FormatError(file, 0, "JSON", str(error)[:80]) from error
    return loaded


def _objects(value: object) -> Iterator[dict[str, object]]:
    pending: list[object] = [value]
    for current in pending:
        if isinstance(current, dict):
            yield current
            pending.extend(current.values())
        elif isinstance(current, list):
            pending.extend(current)


def _decimal(value: object) -> int:
    """Return the number that the runtime prints as a string; 0 where it is none."""
    if isinstance(value, str):
        return int(value) if _DECIMAL.fullmatch(value) else 0
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
