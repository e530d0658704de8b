"""Which inferences a recording keeps, from a command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.commands.durations import duration_s
from profagent.errors import UsageError
from profagent.formats.schedule import ByTime, EachNth, parse_schedule

if TYPE_CHECKING:
    from profagent.formats.schedule import Keeping

US_PER_S = 1_000_000


def keeping_of(schedule: str | None, every: int | None, window: str | None) -> Keeping | None:
    """What was asked for; None keeps everything. UsageError for more than one, or one without a clear meaning."""
    given = [option for option in (schedule, every, window) if option is not None]
    if len(given) > 1:
        raise UsageError("--schedule, --every and --window exclude each other", hint="give one of them")
    if schedule is not None:
        return parse_schedule(schedule)
    if every is not None:
        return EachNth(every)
    return None if window is None else parse_window(window)


def parse_window(text: str) -> ByTime:
    """Read `10s/60s`: so much kept of each so much. Raises UsageError."""
    kept, separator, period = text.partition("/")
    if not separator:
        raise UsageError(f"{text!r} is no window", hint="write it like 10s/60s: 10 seconds kept of each 60")
    window = ByTime(round(duration_s(kept) * US_PER_S), round(duration_s(period) * US_PER_S))
    if not 0 < window.kept_us < window.period_us:
        raise UsageError(
            f"window {text}: what is kept must be more than nothing and less than the whole",
            hint="write it like 10s/60s: 10 seconds kept of each 60",
        )
    return window
