"""Reads acl.json files as the runtime does, and the interval that one tells (format page 5)."""

from __future__ import annotations

import json
import re

from profagent.errors import FormatError
from profagent.formats.sampling import INTERVAL_MAX, interval_of

__all__ = ["load_acl_json", "parse_acl_json"]

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
