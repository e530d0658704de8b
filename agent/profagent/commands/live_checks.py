"""What cannot be of the counters that are watched."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from profagent.formats.names import LogKind
from profagent.formats.plausible import CounterRows, Tally, checked, merged, told
from profagent.ingest.changes import FrequencyKnown, SegmentRecords
from profagent.store.counter_checks import first_place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagent.ingest.changes import JobChanges

REMEMBERED_JOBS = 16


class LiveChecks:
    """Counts each check over all records; one that fails is told once, as it stands then."""

    def __init__(self, peak_bytes_per_s: float) -> None:
        self._peak = peak_bytes_per_s
        self._frequencies: OrderedDict[str, int] = OrderedDict()
        self._tallies: dict[str, Tally] = {}
        self._told: set[str] = set()

    def feed(self, batch: JobChanges) -> Iterator[str]:
        """Take what a batch meant; gives a line for each check that fails and was not told before."""
        for change in batch.changes:
            if isinstance(change, FrequencyKnown):
                self._know(batch.job, change.mhz)
            elif isinstance(change, SegmentRecords) and change.name.kind is LogKind.AICORE and change.counters:
                yield from self._count(batch.job, change)

    def _know(self, job: str, mhz: int) -> None:
        self._frequencies[job] = mhz
        if len(self._frequencies) > REMEMBERED_JOBS:
            self._frequencies.popitem(last=False)

    def _count(self, job: str, change: SegmentRecords) -> Iterator[str]:
        rows = CounterRows(first_place(change.path, change.first_record), change.columns["ticks"], change.counters)
        for name, found in checked([rows], self._frequencies.get(job), self._peak).items():
            tally = self._tallies[name] = merged(self._tallies.get(name, Tally()), found)
            if tally.implausible and name not in self._told:
                self._told.add(name)
                yield f"implausible: {told(name, tally, self._peak)}: the counter map does not fit this board's runtime"
