"""`schedule` of MindSpore's profiler: which step does what."""

from __future__ import annotations

import enum
import logging
from typing import Callable

_log = logging.getLogger("profagent_app")


class ProfilerAction(enum.IntEnum):
    """What is done in a step."""

    NONE = 0
    WARM_UP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


ScheduleFn = Callable[[int], ProfilerAction]


class Schedule:
    """Skip `skip_first` steps; then cycles of `wait`, `warmup` and `active` steps, `repeat` times (0: for ever)."""

    def __init__(self, *, wait: int, active: int, warmup: int = 0, repeat: int = 0, skip_first: int = 0) -> None:
        self.wait = _at_least(0, "wait", wait)
        self.active = _at_least(1, "active", active)
        self.warmup = _at_least(0, "warmup", warmup)
        self.repeat = _at_least(0, "repeat", repeat)
        self.skip_first = _at_least(0, "skip_first", skip_first)
        if self.warmup == 0:
            _log.warning("Profiler won't be using warmup, this can skew profiler results")

    def __call__(self, step: int) -> ProfilerAction:
        """The action of a step, counted from 0; ValueError for a negative one."""
        if step < 0:
            raise ValueError("Invalid parameter step, which must be not less than 0.")
        if step < self.skip_first:
            return ProfilerAction.NONE
        cycle, place = divmod(step - self.skip_first, self.wait + self.warmup + self.active)
        if (self.repeat and cycle >= self.repeat) or place < self.wait:
            return ProfilerAction.NONE
        if place < self.wait + self.warmup:
            return ProfilerAction.WARM_UP
        is_last = place == self.wait + self.warmup + self.active - 1
        return ProfilerAction.RECORD_AND_SAVE if is_last else ProfilerAction.RECORD

    def to_dict(self) -> dict[str, int]:
        """Its parameters, as profiler_info has them."""
        return {
            "wait": self.wait, "active": self.active, "warmup": self.warmup,
            "repeat": self.repeat, "skip_first": self.skip_first,
        }  # fmt: skip


schedule = Schedule


def every_step(_step: int) -> ProfilerAction:
    """What is done without a schedule."""
    return ProfilerAction.RECORD


def _at_least(least: int, name: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    _log.warning(
        "Parameter %s should be of type int, at least %d, but got %r (%s); it is %d now.",
        name, least, value, type(value).__name__, least,
    )  # fmt: skip
    return least
