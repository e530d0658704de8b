"""MindSpore's `schedule`: the action of each step, and the work between the actions of two steps."""

from __future__ import annotations

import enum
import logging
from typing import Any, Callable, NamedTuple

_log = logging.getLogger("profagent_app")


class ProfilerAction(enum.IntEnum):
    """Action of a step."""

    NONE = 0
    WARM_UP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class StepSchedule:
    """Plan of actions: skip `skip_first` steps, then run cycles of `wait`, `warmup` and `active` steps.

    There are `repeat` cycles; 0 stands for any number.
    """

    def __init__(self, *, wait: int, active: int, warmup: int = 0, repeat: int = 0, skip_first: int = 0) -> None:
        self.wait = _at_least(0, "wait", wait)
        self.active = _at_least(1, "active", active)
        self.warmup = _at_least(0, "warmup", warmup)
        self.repeat = _at_least(0, "repeat", repeat)
        self.skip_first = _at_least(0, "skip_first", skip_first)
        if self.warmup == 0:
            _log.warning("Profiler won't be using warmup, this can skew profiler results")

    def __call__(self, step: int) -> ProfilerAction:
        """Return the action of a step, counted from 0. Raises ValueError for a negative one."""
        if step < 0:
            raise ValueError("Invalid parameter step, which must be not less than 0.")
        if step < self.skip_first:
            return ProfilerAction.NONE
        # Past the first steps the plan repeats; `place` is the step's place in its cycle.
        cycle, place = divmod(step - self.skip_first, self.wait + self.warmup + self.active)
        if (self.repeat and cycle >= self.repeat) or place < self.wait:
            return ProfilerAction.NONE
        if place < self.wait + self.warmup:
            return ProfilerAction.WARM_UP
        is_last = place == self.wait + self.warmup + self.active - 1
        return ProfilerAction.RECORD_AND_SAVE if is_last else ProfilerAction.RECORD

    def to_dict(self) -> dict[str, int]:
        """Return the parameters, as profiler_info has them."""
        return {
            "wait": self.wait, "active": self.active, "warmup": self.warmup,
            "repeat": self.repeat, "skip_first": self.skip_first,
        }  # fmt: skip


schedule = StepSchedule


def checked_schedule(plan: Callable[[int], Any]) -> Callable[[int], ProfilerAction]:
    """Return the program's plan, guarded: a step for which it fails, or gives no action, has NONE and a warning."""

    def action(step: int) -> ProfilerAction:
        try:
            return ProfilerAction(plan(step))
        except Exception as error:  # noqa: BLE001 - a profiler must not end the program
            _log.warning("schedule gives no ProfilerAction for step %d (%s): nothing is done in it", step, error)
            return ProfilerAction.NONE

    return action


def every_step(_step: int) -> ProfilerAction:
    """Return RECORD, the action of each step without a schedule."""
    return ProfilerAction.RECORD


def _at_least(least: int, name: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    _log.warning(
        "Parameter %s should be of type int, at least %d, but got %r (%s); it is %d now.",
        name, least, value, type(value).__name__, least,
    )  # fmt: skip
    return least


_NONE, _WARM_UP, _RECORD, _SAVE = ProfilerAction


class Transition(NamedTuple):
    """Work between the actions of two steps: names of methods of Collection, and a warning."""

    steps: tuple[str, ...]
    warning: str = ""


_END = ("stop", "finalize")
_SAVED = ("stop", "finalize", "trace_ready", "clear")
# MindSpore's own table, with its warnings; `None` stands for the end of the profiler. Pairs that are not here need no
# work.
TRANSITIONS: dict[tuple[ProfilerAction, ProfilerAction | None], Transition] = {
    (_NONE, _WARM_UP): Transition(("init",)),
    (_NONE, _RECORD): Transition(("init", "start")),
    (_NONE, _SAVE): Transition(("init", "start")),
    (_WARM_UP, _NONE): Transition(("start", *_END, "clear"), "Incorrect schedule: WARMUP followed by NONE"),
    (_WARM_UP, _RECORD): Transition(("start",)),
    (_WARM_UP, _SAVE): Transition(("start",)),
    (_WARM_UP, None): Transition(
        ("finalize", "clear", "delete_dir"),
        "Incorrect schedule: Stop profiler while current state is WARMUP which will result in empty parsed data.",
    ),
    (_RECORD, _NONE): Transition((*_END, "clear"), "Incorrect schedule: RECORD followed by NONE"),
    (_RECORD, _WARM_UP): Transition((*_END, "clear"), "Incorrect schedule: RECORD followed by WARMUP"),
    (_RECORD, None): Transition(
        _SAVED,
        "Incorrect schedule: Stop profiler while current state is RECORD which may result in incomplete parsed data.",
    ),
    (_SAVE, _NONE): Transition(_SAVED),
    (_SAVE, _WARM_UP): Transition((*_SAVED, "init")),
    (_SAVE, _RECORD): Transition((*_SAVED, "init", "start")),
    (_SAVE, _SAVE): Transition((*_SAVED, "init", "start")),
    (_SAVE, None): Transition(
        _SAVED,
        "Stop profiler while current state is RECORD_AND_SAVE, perhaps the scheduling cycle has not yet completed.",
    ),
}
