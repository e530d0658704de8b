"""How long a tick of word 0x04 is (format page 3.1): layers take no longer than their inference, and most of it."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from profagent.hypotheses.fact import Alternative, Fact, cannot_tell, settled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from profagent.hypotheses.fact import Answer

__all__ = ["TICK_UNIT", "Timed", "check_ticks"]

TICK_UNIT = Fact(
    "tick-unit",
    (
        Alternative("100-cycles", "a tick is 100 cycles of the NPU's clock"),
        Alternative("cycle", "a tick is one cycle of the NPU's clock", is_read=False),
        Alternative("10-ns", "a tick is 10 ns", is_read=False),
        Alternative("us", "a tick is a microsecond", is_read=False),
    ),
)
# How far layers may be over their inference, whose start and end are whole microseconds.
MOST_SHARE, SLACK_US = 1.02, 2.0
# Neighbouring alternatives differ by a factor of 7 at least: no two fit between these. That layers take so much tells
# only where a longer tick would be too long: an NPU that idles looks like a longer tick.
LEAST_SHARE = 0.25
# Below, whole microseconds say little.
LEAST_US = 50


@dataclass(frozen=True, slots=True)
class Timed:
    """One inference: the ticks of its layers in all, and its time on the NPU by its `.done` and its CPU records.

    `may_have_cpu_part`: some of that time may be the CPU's, of which there are no records.
    """

    ticks: int
    window_us: int
    frequency_mhz: int
    may_have_cpu_part: bool = False

    @property
    def layers_us(self) -> Mapping[str, float]:
        """What its layers take, by each alternative."""
        cycle_us = self.ticks / self.frequency_mhz
        return {"100-cycles": 100 * cycle_us, "cycle": cycle_us, "10-ns": self.ticks / 100, "us": float(self.ticks)}


def check_ticks(inferences: Sequence[Timed]) -> Answer:
    """What inferences with a `.done` tell."""
    usable = [each for each in inferences if each.window_us >= LEAST_US and each.ticks]
    if not usable:
        return cannot_tell(TICK_UNIT, f"no inference of {LEAST_US} us or more with a .done and the NPU's clock")
    allowed = [{name for name, us in each.layers_us.items() if us <= _most(each)} for each in usable]
    likely = [_likely(names, each) for names, each in zip(allowed, usable, strict=True)]
    return settled(TICK_UNIT, allowed, likely, _seen(usable))


def _likely(allowed: set[str], each: Timed) -> set[str]:
    if each.may_have_cpu_part or len(allowed) == len(TICK_UNIT.alternatives):
        return allowed
    return {name for name in allowed if each.layers_us[name] >= LEAST_SHARE * each.window_us}


def _seen(inferences: Sequence[Timed]) -> str:
    shares = ", ".join(f"{_share(inferences, name):.1%} by {name}" for name in TICK_UNIT.names)
    seen = f"layers take of {len(inferences)} inferences, at the median, {shares}"
    unrecorded = sum(each.may_have_cpu_part for each in inferences)
    return f"{seen}; of {unrecorded} a CPU part may have gone unrecorded" if unrecorded else seen


def _most(each: Timed) -> float:
    return each.window_us * MOST_SHARE + SLACK_US


def _share(inferences: Sequence[Timed], name: str) -> float:
    return median(each.layers_us[name] / each.window_us for each in inferences)
