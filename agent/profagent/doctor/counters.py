"""Checks of a JOB's counters: whether they can be what a counter map says that they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.doctor.finding import Section, bad, good, unknown
from profagent.formats.plausible import told

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from profagent.doctor.finding import Finding
    from profagent.formats.plausible import Tally

__all__ = ["CheckedCounters", "counters_section"]

_REMEDY = "learn another map with profagent calibrate, and have profagent redecode exchange this one"


@dataclass(frozen=True, slots=True)
class CheckedCounters:
    """What was counted by a map, in `looked` of a JOB's `inferences`; `peak_bytes_per_s` is the memory's."""

    counter_map: str
    tallies: Mapping[str, Tally]
    looked: int
    inferences: int
    peak_bytes_per_s: float


def counters_section(job: str, found: CheckedCounters | None) -> Section:
    """A finding for each check; None: no map is known."""
    if found is None:
        why = "no counter map alone fits: PMU columns are N/A, and there is nothing to check"
        return Section(f"{job}: counters", (unknown("counters", why, "name one with --counter-map FILE"),))
    findings = tuple(_findings(found)) or (unknown("counters", f"no records; {_looked(found)}"),)
    return Section(f"{job}: counters by the map {found.counter_map}", findings)


def _findings(found: CheckedCounters) -> Iterator[Finding]:
    for name, tally in found.tallies.items():
        if tally.implausible:
            yield bad(name, f"{told(name, tally, found.peak_bytes_per_s)}; {_looked(found)}", _REMEDY)
        else:
            yield good(name, f"in all of {tally.rows:,} records; {_looked(found)}")


def _looked(found: CheckedCounters) -> str:
    return f"{found.looked} of {found.inferences} inferences looked at"
