"""Rules of the flight recorder: which value makes an incident, and when a rule may fire again. Pure.

A rule is one comparison, as `latency > 1.5 * p99`, `stage[preprocess] > 8ms`, `metric[npu.temperature] > 95`, or the
name of something that happens: `mark[alarm]`, `loss`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from profagent.errors import UsageError
from profagent.limits import FEWEST_FOR_A_QUANTILE
from profagent.units import US_BY_UNIT

if TYPE_CHECKING:
    from profagent.formats.durations import Distribution

EXAMPLES = (
    "write it like 'frame > 1.5 * p99', 'stage[preprocess] > 8ms', 'latency > 1.5 * p99', 'layer[conv1] > 3ms',"
    " 'metric[npu.temperature] > 95', 'mark[alarm]' or 'loss'"
)
_RULE = re.compile(
    r"\s*(?P<subject>latency|layer|frame|stage|metric)\s*(?:\[(?P<name>[^\]]+)\])?\s*(?P<sign>[<>])\s*"
    r"(?:(?P<factor>\d+(?:\.\d+)?)\s*\*\s*)?(?:p(?P<quantile>\d{1,2}(?:\.\d+)?)|(?P<value>\d+(?:\.\d+)?)\s*(?P<unit>ns|us|µs|ms|s)?)\s*",
    re.ASCII,
)
_EVENT = re.compile(r"\s*(?P<subject>mark|loss)\s*(?:\[(?P<name>[^\]]+)\])?\s*")
# A rule that has fired is ready again once its value has left the bound by this share.
HYSTERESIS = 0.02


class RuleSubject(StrEnum):
    """What a rule looks at."""

    LATENCY = "latency"
    LAYER = "layer"
    FRAME = "frame"
    STAGE = "stage"
    METRIC = "metric"
    MARK = "mark"
    LOSS = "loss"


TIMED = (RuleSubject.LATENCY, RuleSubject.LAYER, RuleSubject.FRAME, RuleSubject.STAGE)


def has_quantiles(number: int) -> bool:
    """Return True if a past of so many values has quantiles that a rule may use."""
    return number >= FEWEST_FOR_A_QUANTILE


@dataclass(frozen=True, slots=True)
class IncidentRule:
    """Rule with its `text`. `name` is that of a model, a layer, a metric or a mark; empty for any.

    The bound is `factor` times `value` (in µs, or in the metric's unit), or times a quantile of the subject's own past
    where `quantile` is set.
    """

    text: str
    subject: RuleSubject
    name: str = ""
    is_below: bool = False
    factor: float = 1.0
    value: float | None = None
    quantile: float | None = None

    @classmethod
    def parse(cls, text: str) -> IncidentRule:
        """Return the rule that a text says. Raises UsageError for anything without a clear meaning."""
        shown = " ".join(text.split())
        if event := _EVENT.fullmatch(text):
            subject = RuleSubject(event["subject"])
            if subject is RuleSubject.LOSS and event["name"]:
                raise UsageError(f"{shown!r}: a loss has no name", hint="write: loss")
            return cls(shown, subject, (event["name"] or "").strip())
        match = _RULE.fullmatch(text)
        if match is None:
            raise UsageError(f"{shown!r} is not a rule", hint=EXAMPLES)
        subject, name = RuleSubject(match["subject"]), (match["name"] or "").strip()
        if subject is RuleSubject.FRAME and name:
            raise UsageError(f"{shown!r}: a frame has no name", hint="write: frame > 1.5 * p99, or stage[NAME] > 8ms")
        if subject in (RuleSubject.LAYER, RuleSubject.METRIC) and not name:
            raise UsageError(f"{shown!r}: which {subject}?", hint=EXAMPLES)
        if subject is RuleSubject.METRIC and (match["quantile"] or match["unit"]):
            raise UsageError(f"{shown!r}: a metric is compared with a number", hint=EXAMPLES)
        if subject is not RuleSubject.METRIC and match["value"] and not match["unit"]:
            raise UsageError(f"{shown!r}: the time has no unit", hint=f"{EXAMPLES}: units are ns, us, ms, s")
        quantile = match["quantile"] and float(match["quantile"]) / 100
        value = match["value"] and float(match["value"]) * US_BY_UNIT.get(match["unit"] or "us", 1.0)
        is_below = match["sign"] == "<"
        return cls(shown, subject, name, is_below, float(match["factor"] or 1), value or None, quantile or None)

    @property
    def unit(self) -> str:
        """Unit of value and bound; empty for a metric's own, and where nothing is compared."""
        return "us" if self.subject in TIMED else ""

    def bound(self, past: Distribution | None) -> float | None:
        """Return the bound; None while the past has too few values for a quantile."""
        if self.quantile is None:
            return self.factor * (self.value or 0.0)
        if past is None or not has_quantiles(past.number):
            return None
        return self.factor * past.quantile(self.quantile)

    def is_met(self, value: float, bound: float) -> bool:
        """Return True if a value is beyond the bound."""
        return value < bound if self.is_below else value > bound

    def is_left(self, value: float, bound: float) -> bool:
        """Return True if a value is so far inside the bound that the rule is ready again."""
        return value > bound * (1 + HYSTERESIS) if self.is_below else value < bound * (1 - HYSTERESIS)


@dataclass(slots=True)
class RuleState:
    """State of one rule for one subject, such as one model's latency.

    ready → fired   a value is beyond the bound and the cool-down since the last firing is over
    fired → ready   a value has left the bound, see HYSTERESIS
    """

    is_ready: bool = True
    fired_us: int | None = None
    # Values beyond the bound that made no incident, because the cool-down was not over.
    passed_over: int = 0

    def fires(self, rule: IncidentRule, value: float, bound: float, time_us: int, cool_down_us: int) -> bool:
        """Take a value of the subject; return True if it makes an incident."""
        if not rule.is_met(value, bound):
            self.is_ready = self.is_ready or rule.is_left(value, bound)
            return False
        if not self.is_ready:
            return False
        if self.fired_us is not None and 0 < time_us - self.fired_us < cool_down_us:
            self.passed_over += 1
            return False
        self.is_ready, self.fired_us = False, time_us
        return True


@dataclass(frozen=True, slots=True)
class KeepWhen:
    """Choice of a flight recorder: windows of `around_us` on both sides of what one of the rules finds.

    `budget_bytes` bounds the files that are kept in a day of the board's clock, None for no bound. A rule fires again
    `cool_down_us` after it fired.
    """

    rules: tuple[IncidentRule, ...]
    around_us: int
    budget_bytes: int | None
    cool_down_us: int

    @property
    def has_quantile(self) -> bool:
        """True if a rule about inferences needs their past."""
        of_inferences = (RuleSubject.LATENCY, RuleSubject.LAYER)
        return any(rule.quantile is not None and rule.subject in of_inferences for rule in self.rules)

    def __str__(self) -> str:
        rules = " or ".join(rule.text for rule in self.rules)
        budget = "" if self.budget_bytes is None else f", {self.budget_bytes / 2**20:g} MiB a day"
        return f"when {rules}, {self.around_us / 1e6:g} s around{budget}"
