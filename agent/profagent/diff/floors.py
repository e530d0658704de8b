"""Reading the floor of a comparison: how large a change must be to count."""

from __future__ import annotations

import re

from profagent.diff.comparing import Floor
from profagent.errors import UsageError

__all__ = ["floor_of"]

_FLOOR = re.compile(r"(?P<percent>\d+(?:\.\d+)?)%(?:,(?P<us>\d+(?:\.\d+)?)us)?")


def floor_of(text: str) -> Floor:
    """A floor from `1%,0.1us`, or `1%` alone; UsageError for what is none."""
    found = _FLOOR.fullmatch(text.replace(" ", ""))
    if found is None:
        raise UsageError(f"{text!r} is no floor", hint="write it as 1%,0.1us: percent of the base, then microseconds")
    return Floor(float(found["percent"]), float(found["us"] or 0.0))
