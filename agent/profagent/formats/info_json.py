"""Reads `info.json.<device>`, and recognises the JOBs of the sibling SoC that must not be read (format page 2.2, 9)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.errors import FormatError, UnsupportedBoardError
from profagent.formats.names import LogKind, parse_log_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["DeviceInfo", "looks_like_hi3519", "parse_info_json"]

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
    except json.JSONDecodeError as error:
        offset = len(error.doc[: error.pos].encode("utf-8"))
        raise FormatError(file, offset, "JSON", error.msg) from error
    except UnicodeDecodeError as error:
        raise FormatError(file, error.start, "UTF-8 text", f"byte {data[error.start]:#04x}") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(file, 0, "JSON of a few values", type(error).__name__) from error
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
