"""How long a tick of word 0x04 is (format page 3.1): layers take no longer than their inference, and most of it.

An NPU that idles looks like a longer tick. What it waits does not grow with the ticks, though: of many inferences of a
model, those that have more ticks take longer by just these.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from statistics import StatisticsError, correlation, linear_regression, median
from typing import TYPE_CHECKING

from profagent.doctor.fact import Alternative, Fact, cannot_tell, settled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from profagent.doctor.fact import Answer

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
# Of so many inferences one that has a disturbed record is outvoted; of fewer, the longest layer may be that record.
FEWEST_WHOLE = 5
# Below, whole microseconds say little.
LEAST_US = 50
# Of a model, the fewest inferences whose times and ticks are compared, how alike they are to be, and how far the time
# for each tick may be from an alternative's.
FEWEST_COMPARED, LEAST_ALIKE, MOST_APART = 10, 0.9, 2.0


@dataclass(frozen=True, slots=True)
class Timed:
    """One inference: the ticks of its layers in all, and its time on the NPU by its `.done` and its CPU records.

    `may_have_cpu_part`: some of that time may be the CPU's, of which there are no records. Inferences of one `model` do
    the same work. `longest` are the ticks of the layer that has most.
    """

    ticks: int
    window_us: int
    frequency_mhz: int
    may_have_cpu_part: bool = False
    model: str = ""
    longest: int = 0

    @property
    def layers_us(self) -> Mapping[str, float]:
        """What its layers take, by each alternative."""
        return _us(self.ticks, self.frequency_mhz)

    @property
    def others_us(self) -> Mapping[str, float]:
        """What its layers take but the longest: the ticks of one record may be disturbed."""
        return _us(self.ticks - self.longest, self.frequency_mhz)


def check_ticks(inferences: Sequence[Timed]) -> Answer:
    """What inferences with a `.done` tell."""
    usable = [each for each in inferences if each.window_us >= LEAST_US and each.ticks]
    if not usable:
        return cannot_tell(TICK_UNIT, f"no inference of {LEAST_US} us or more with a .done and the NPU's clock")
    taken = [each.layers_us if len(usable) >= FEWEST_WHOLE else each.others_us for each in usable]
    allowed = [
        {name for name, us in took.items() if us <= each.window_us * MOST_SHARE + SLACK_US}
        for took, each in zip(taken, usable, strict=True)
    ]
    grown = _grown(usable)
    likely = [
        names & grown or _likely(names, took, each) for names, took, each in zip(allowed, taken, usable, strict=True)
    ]
    return settled(TICK_UNIT, allowed, likely, _seen(usable, taken, grown))


def _grown(inferences: Sequence[Timed]) -> set[str]:
    """The alternatives by which inferences with more ticks of one model take longer; none where that is not seen."""
    by_model = groupby(sorted(inferences, key=_model_of), _model_of)
    lengths = [us for _, of_one in by_model if (us := _us_for_a_tick(list(of_one)))]
    mhz = median(each.frequency_mhz for each in inferences)
    return {name for name, us in _us(1, mhz).items() if lengths and all(_is_near(us, each) for each in lengths)}


def _us_for_a_tick(inferences: Sequence[Timed]) -> float | None:
    """Microseconds that inferences of one model take longer for each tick more; None where they are not alike."""
    if len(inferences) < FEWEST_COMPARED or any(each.may_have_cpu_part for each in inferences):
        return None
    ticks, times = [each.ticks for each in inferences], [each.window_us for each in inferences]
    try:
        is_alike = correlation(ticks, times) >= LEAST_ALIKE
    except StatisticsError:
        return None  # one of them never changes
    return linear_regression(ticks, times).slope if is_alike else None


def _us(ticks: int, mhz: float) -> Mapping[str, float]:
    """How long so many ticks are, by each alternative."""
    cycles_us = ticks / mhz
    return {"100-cycles": 100 * cycles_us, "cycle": cycles_us, "10-ns": ticks / 100, "us": float(ticks)}


def _is_near(one: float, other: float) -> bool:
    return one / MOST_APART <= other <= one * MOST_APART


def _model_of(each: Timed) -> str:
    return each.model


def _likely(allowed: set[str], took: Mapping[str, float], each: Timed) -> set[str]:
    if each.may_have_cpu_part or len(allowed) == len(TICK_UNIT.alternatives):
        return allowed
    return {name for name in allowed if took[name] >= LEAST_SHARE * each.window_us}


def _seen(inferences: Sequence[Timed], taken: Sequence[Mapping[str, float]], grown: set[str]) -> str:
    shares = ", ".join(f"{_share(inferences, taken, name):.1%} by {name}" for name in TICK_UNIT.names)
    seen = f"layers take of {len(inferences)} inferences, at the median, {shares}"
    if len(inferences) < FEWEST_WHOLE:
        seen = f"{seen}, without the longest of each"
    if grown:
        seen = f"{seen}; those with more ticks take longer as by {', '.join(sorted(grown))}"
    unrecorded = sum(each.may_have_cpu_part for each in inferences)
    return f"{seen}; of {unrecorded} a CPU part may have gone unrecorded" if unrecorded else seen


def _share(inferences: Sequence[Timed], taken: Sequence[Mapping[str, float]], name: str) -> float:
    return median(took[name] / each.window_us for took, each in zip(taken, inferences, strict=True))
