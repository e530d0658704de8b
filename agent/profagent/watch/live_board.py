"""Periodic board event of a watched board: the rows of all sources other than JOBs, summed up."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from cachetools import LRUCache

from profagent.ingest.changes import SourceRows
from profagent.ingest.source import RowReader, headlines
from profagent.limits import REMEMBERED_COLLECTIONS, REMEMBERED_SPANS, SHOWN_FRAMES
from profagent.store.live_frames import LiveFrames
from profagent.units import NS_PER_US, US_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    from profagent.ingest.changes import JobChanges
    from profagent.ingest.source import CounterValue, Instant, Occurrence, Span
    from profagent.store.frames import Frame


class _Rate(NamedTuple):
    """Number of occurrences in a collection since the last event, and their first and last time in board µs."""

    number: int
    since_us: int
    until_us: int


class LiveBoard:
    """Accumulator of board events: newest values of counters; occurrences, spans and instants since the last event."""

    def __init__(self, *, with_all: bool = False) -> None:
        """Create an accumulator; with `with_all`, an event has every counter, instant and frame."""
        self._with_all = with_all
        self._rows = RowReader()
        self._headlines = headlines()
        # Units of the counters by name.
        self._units: dict[str, str] = {}
        # Instants since the last event; the count also has those that the bound dropped.
        self._instants: deque[Instant] = deque(maxlen=REMEMBERED_SPANS)
        self._instant_count = 0
        # Frames of programs, and those that are complete since the last event.
        self._frames = LiveFrames()
        self._complete: deque[Frame] = deque(maxlen=SHOWN_FRAMES)
        # Newest value of each counter by name.
        self._values: dict[str, float] = {}
        # Newest time of any row, in board µs.
        self._time_us = 0
        # True if a row came since the last event.
        self._has_new = False
        # Rates by collection, and count and total ns of spans by name, both since the last event.
        self._rates: LRUCache[str, _Rate] = LRUCache(REMEMBERED_COLLECTIONS)
        self._spans: LRUCache[str, tuple[int, int]] = LRUCache(REMEMBERED_SPANS)
        # Rows up to this time in board µs were shown before the link was lost: they are ignored.
        self._shown_until_us = 0

    def link_is_lost(self) -> None:
        """Remember the newest time shown, because the next link sends the same rows again."""
        self._shown_until_us = self._time_us

    def take(self, batch: JobChanges) -> None:
        """Add the rows of a collection."""
        for change in batch.changes:
            if isinstance(change, SourceRows) and (seen := self._rows.read(batch.job, change)) is not None:
                self._take_samples(seen.samples)
                self._take_occurrences(batch.job, seen.occurrences)
                self._take_spans(seen.spans)
                self._take_instants(seen.instants)
                if self._with_all and seen.framed:
                    new = [each for each in seen.framed if each.end_ns // NS_PER_US > self._shown_until_us]
                    self._complete.extend(self._frames.take(new))

    def event(self) -> dict[str, Any] | None:
        """Return the event of everything since the last one; None if nothing is new."""
        if not self._has_new:
            return None
        self._has_new = False
        spans = sorted(self._spans.items(), key=lambda each: -each[1][1])
        found: dict[str, Any] = {
            "event": "board",
            "time_us": self._time_us,
            **{name: headline.known(self._values) for name, headline in self._headlines.items()},
            "ops": [_rate(job, rate) for job, rate in self._rates.items() if rate.number],
            "spans": [
                {"name": name, "count": count, "mean_us": total_ns / count / NS_PER_US}
                for name, (count, total_ns) in spans
            ],
            "mark_count": self._instant_count,
        }
        if self._with_all:
            found["metrics"] = {name: (value, self._units[name]) for name, value in self._values.items()}
            found["marks"] = [*self._instants]
            found["frames"] = [*self._complete]
            self._complete.clear()
        # The next rate begins where this one ended, so that pauses between operators count as well.
        for job, rate in list(self._rates.items()):
            self._rates[job] = _Rate(0, rate.until_us, rate.until_us)
        self._spans.clear()
        self._instants.clear()
        self._instant_count = 0
        return found

    def _take_samples(self, samples: Iterable[CounterValue]) -> None:
        for time_us, name, unit, value, _ in samples:
            if time_us > self._shown_until_us:
                self._values[name], self._units[name] = value, unit
                self._see(time_us)

    def _take_occurrences(self, job: str, occurrences: Iterable[Occurrence]) -> None:
        for start_us, end_us in occurrences:
            if end_us > self._shown_until_us:
                number, since_us, until_us = self._rates.get(job, _Rate(0, start_us, end_us))
                self._rates[job] = _Rate(number + 1, since_us, max(until_us, end_us))
                self._see(end_us)

    def _take_spans(self, spans: Iterable[Span]) -> None:
        for name, begin_ns, end_ns in spans:
            if end_ns // NS_PER_US > self._shown_until_us:
                count, total_ns = self._spans.get(name, (0, 0))
                self._spans[name] = count + 1, total_ns + end_ns - begin_ns
                self._see(end_ns // NS_PER_US)

    def _take_instants(self, instants: Iterable[Instant]) -> None:
        for each in instants:
            if each.time_us > self._shown_until_us:
                self._instant_count += 1
                self._instants.append(each)
                self._see(each.time_us)

    def _see(self, time_us: int) -> None:
        self._time_us = max(self._time_us, time_us)
        self._has_new = True


def _rate(job: str, rate: _Rate) -> dict[str, Any]:
    seconds = (rate.until_us - rate.since_us) / US_PER_S
    source = job.partition("-")[2].rpartition("-")[0]
    return {"source": source, "count": rate.number, "per_s": rate.number / seconds if seconds > 0 else None}
