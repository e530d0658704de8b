"""Which inferences a host keeps, on purpose: by a schedule of steps, or each Nth. Pure.

A step is an inference of the program since its model was loaded, or, where the board's interval is known, the place in
that grid of samples. It follows from a file's name alone, so a restart, another order of arrival and another host
choose the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.errors import UsageError

if TYPE_CHECKING:
    from profagent.formats.names import InferenceKey

__all__ = ["EachNth", "Keeping", "Schedule", "parse_schedule", "step_of"]

EXAMPLE = "write it like skip_first=10,wait=5,warmup=2,active=3,repeat=4"
MOST_DIGITS = 9
_LOWEST = {"skip_first": 0, "wait": 0, "warmup": 0, "active": 1, "repeat": 0}


@dataclass(frozen=True, slots=True)
class Schedule:
    """Cycles of steps: `wait`, then `warmup`, then `active`; only active ones are kept. `repeat` 0 goes on for ever.

    Meaning and names are those of MindSpore's profiler: the first `skip_first` steps belong to no cycle.
    """

    wait: int
    active: int
    warmup: int = 0
    repeat: int = 0
    skip_first: int = 0

    def keeps(self, step: int) -> bool:
        """Whether the step, counted from 0, is active."""
        length = self.wait + self.warmup + self.active
        cycle, place = divmod(step - self.skip_first, length)
        return cycle >= 0 and not 0 < self.repeat <= cycle and place >= self.wait + self.warmup

    def __str__(self) -> str:
        fields = ("skip_first", "wait", "warmup", "active", "repeat")
        return "schedule " + ",".join(f"{name}={getattr(self, name)}" for name in fields)


@dataclass(frozen=True, slots=True)
class EachNth:
    """The first step and each `number`th after it."""

    number: int

    def keeps(self, step: int) -> bool:
        """Whether the step, counted from 0, is one of them."""
        return step % self.number == 0

    def __str__(self) -> str:
        return f"every {self.number}"


Keeping = Schedule | EachNth


def step_of(inference: InferenceKey, interval: int | None) -> int:
    """The step of an inference; `interval` is the board's, None where it is not known."""
    number = inference.current_pic_count // max(inference.input_pic_num, 1)
    return number // max(interval or 1, 1)


def parse_schedule(text: str) -> Schedule:
    """Read `name=number` pairs; UsageError for anything that has no clear meaning."""
    given: dict[str, int] = {}
    for pair in text.split(","):
        name, separator, digits = (part.strip() for part in pair.partition("="))
        if not separator or name not in _LOWEST:
            raise UsageError(
                f"schedule: {pair.strip()!r} is not one of {', '.join(_LOWEST)} with a number", hint=EXAMPLE
            )
        if name in given:
            raise UsageError(f"schedule: {name} is given twice", hint=EXAMPLE)
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= MOST_DIGITS):
            raise UsageError(f"schedule: {name}={digits} is no whole number from 0 to 999999999", hint=EXAMPLE)
        given[name] = int(digits)
        if given[name] < _LOWEST[name]:
            raise UsageError(f"schedule: {name} must be at least {_LOWEST[name]}", hint=EXAMPLE)
    missing = [name for name in ("wait", "active") if name not in given]
    if missing:
        raise UsageError(f"schedule: {' and '.join(missing)} must be given", hint=EXAMPLE)
    return Schedule(**given)
