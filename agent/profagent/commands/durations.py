"""Durations as people write them."""

from __future__ import annotations

import re

from profagent.errors import UsageError

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")


def duration_s(text: str) -> float:
    """Seconds, more than none, of `90`, `90s`, `10m`, `1h30m`; UsageError for anything else."""
    match = _DURATION.fullmatch(text.strip())
    hours, minutes, seconds = (float(part or 0) for part in (match.groups() if match is not None else "000"))
    duration = hours * 3600 + minutes * 60 + seconds
    if not duration:
        raise UsageError(f"{text!r} is no duration", hint="write more than nothing, like 90s, 10m or 1h30m")
    return duration
