"""What a JOB directory's counters are by a counter map, counted for the checks of doctor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.doctor.counters import CheckedCounters, counters_section
from profagent.formats.names import display_text
from profagent.formats.plausible import CounterRows, Tally, checked, merged
from profagent.formats.records import AICORE_DTYPE, view_records
from profagent.ingest.job_records import JobRecords
from profagent.store.counter_checks import first_place

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from profagent.commands.counter_maps import CounterMaps
    from profagent.doctor.finding import Section
    from profagent.formats.countermap import CounterMap

__all__ = ["job_counters"]

# Inferences that are looked at, evenly spread, and how much of each.
INFERENCES = 200
MOST_RECORDS = 65_536


def job_counters(directory: Path, maps: CounterMaps) -> Section:
    """A finding for each check, with its numbers. Raises UsageError for no JOB."""
    job, about = JobRecords(directory), display_text(str(directory))
    counter_map = maps.of(simulated=job.is_simulated)
    if counter_map is None:
        return counters_section(about, None)
    logs = job.inferences
    chosen = logs[:: max(1, -(-len(logs) // INFERENCES))]
    tallies: dict[str, Tally] = {}
    for path, _ in chosen:
        for name, found in _checked(job, path, counter_map, maps.peak_bytes_per_s).items():
            tallies[name] = merged(tallies.get(name, Tally()), found)
    name = display_text(counter_map.name)
    return counters_section(about, CheckedCounters(name, tallies, len(chosen), len(logs), maps.peak_bytes_per_s))


def _checked(job: JobRecords, path: str, counter_map: CounterMap, peak: float) -> Mapping[str, Tally]:
    data = job.read(path, MOST_RECORDS * AICORE_DTYPE.itemsize) or b""
    records = view_records(data, AICORE_DTYPE)
    if not len(records):
        return {}
    rows = CounterRows(first_place(path, 0), records["ticks"].astype("i8"), counter_map.apply(records))
    return checked([rows], job.frequency_mhz, peak)
