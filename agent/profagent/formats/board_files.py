"""A board's small texts: `info.json.<device>`, acl.json, and the NPU's node of /proc/umap (format page 2, 5, 7)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.errors import FormatError, UnsupportedBoardError
from profagent.formats.names import LogKind, parse_log_name
from profagent.formats.sampling import INTERVAL_MAX, interval_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


# The runtime takes a comma before a closing bracket; a string is passed over whole.
_STRING_OR_LAST_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)


def load_acl_json(data: bytes, file: str) -> object:
    """What the file holds; the commas that the runtime takes are taken. Raises FormatError."""
    try:
        text = _STRING_OR_LAST_COMMA.sub(lambda match: match.group(1) or "", data.decode("utf-8"))
        loaded: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(file, 0, "the JSON of an acl.json", str(error)) from error
    return loaded


def parse_acl_json(data: bytes, file: str) -> int:
    """The interval that the file tells; 0, the runtime's default, where it tells none. Raises FormatError."""
    loaded = load_acl_json(data, file)
    profiler = loaded.get("profiler") if isinstance(loaded, dict) else None
    if not isinstance(profiler, dict):
        raise FormatError(file, 0, "an object 'profiler'", "none")
    told = profiler.get("interval", "")
    interval = interval_of(told) if isinstance(told, str) else None
    if interval is None:
        raise FormatError(file, 0, f"an interval from '0' to '{INTERVAL_MAX}'", repr(told)[:40])
    return interval


_SECTION = re.compile(r"-{3,}.*")
_TITLE = re.compile(r"[A-Za-z_]\w*(?:\(.*\))?")


def parse_umap(text: str) -> dict[str, tuple[str, ...]]:
    """The values of each column, of all sections that have it, in the order of the text.

    A line of titles is followed by lines of as many values. Units in a title, as in `hw_utilization(%)`, are left out.
    """
    columns: dict[str, tuple[str, ...]] = {}
    titles: list[str] = []
    has_row = False
    for line in text.splitlines():
        words = line.split()
        if not words or _SECTION.match(line.strip()):
            titles = []
        elif len(words) == len(titles) and not (has_row and _are_titles(words)):
            has_row = True
            for title, value in zip(titles, words, strict=True):
                columns[title] = (*columns.get(title, ()), value)
        else:
            titles, has_row = _titles(words), False
    return columns


def _are_titles(words: list[str]) -> bool:
    return all(_TITLE.fullmatch(word) for word in words)


def _titles(words: list[str]) -> list[str]:
    return [word.partition("(")[0] for word in words] if _are_titles(words) else []


FREQUENCY_KEY = "aic_frequency"
FREQUENCY_MHZ_MAX = 2**32 - 1
HI3519_MAGIC = "6A6A"

_HI3519_DATA = re.compile(r"data/aic(?:ore|pu)\.[0-9]+\.[0-9]+\.[0-9]+(?:\.done)?", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,10}", re.ASCII)


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What the runtime says of its device."""

    frequency_mhz: int


def parse_info_json(data: bytes, file: str) -> DeviceInfo:
    """Read the NPU clock; objects beside it are accepted.

    Raises UnsupportedBoardError for a Hi3519DV500, FormatError where there is no usable frequency.
    """
    objects = list(_objects(_loaded(data, file)))
    if any(str(found.get("magic_num", "")).upper() == HI3519_MAGIC for found in objects):
        raise UnsupportedBoardError(
            f"{file} is of a Hi3519DV500, whose records look like those of the SS928 and are not the same",
            hint="profagent reads JOB directories of SS928 and SS927 boards",
        )
    values = [found[FREQUENCY_KEY] for found in objects if FREQUENCY_KEY in found]
    offset = max(data.find(FREQUENCY_KEY.encode()), 0)
    if not values:
        raise FormatError(file, offset, f"an object with {FREQUENCY_KEY!r}", "none")
    frequency_mhz = _decimal(values[0])
    if not 1 <= frequency_mhz <= FREQUENCY_MHZ_MAX:
        raise FormatError(file, offset, f"{FREQUENCY_KEY!r} in whole MHz, at least 1", repr(values[0])[:40])
    return DeviceInfo(frequency_mhz)


def looks_like_hi3519(names: Iterable[str]) -> bool:
    """Whether the paths in a JOB are those of a Hi3519DV500: data files without a model's name, and no others."""
    has_nameless = False
    for path in names:
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
    """Find all objects in a JSON value, the outer ones first."""
    pending: list[object] = [value]
    for current in pending:
        if isinstance(current, dict):
            yield current
            pending.extend(current.values())
        elif isinstance(current, list):
            pending.extend(current)


def _decimal(value: object) -> int:
    """Give the number that the runtime prints as a string; 0 where it is none."""
    if isinstance(value, str):
        return int(value) if _DECIMAL.fullmatch(value) else 0
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
