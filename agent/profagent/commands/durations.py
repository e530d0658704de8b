"""Durations as people write them."""

from __future__ import annotations

import re

from profagent.errors import UsageError

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")


def duration_s(text: str) -> float:
    """Seconds of `90`, `90s`, `10m`, `1h30m`; UsageError for anything else or nothing."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise UsageError(f"{text!r} is no duration", hint="write it like 90s, 10m or 1h30m")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds
