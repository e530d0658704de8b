"""What the sources beside JOBs say of a board while it is watched: one event now and then."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from cachetools import LRUCache

from profagent.ingest.changes import SourceRows
from profagent.limits import REMEMBERED_COLLECTIONS, REMEMBERED_SPANS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from profagent.ingest.changes import JobChanges

UTILIZATION, TEMPERATURE, DAEMON_CPU = "npu.hw_utilization", "power.temperature", "daemon.cpu"
THERMAL = "thermal."
US_PER_S = 1_000_000
NS_PER_US = 1000


class _Ops(NamedTuple):
    """Operators of a subscription since the last event; times are the board's µs."""

    number: int
    since_us: int
    until_us: int


class Mark(NamedTuple):
    """What a program marked, at the board's time."""

    time_us: int
    text: str


class LiveBoard:
    """The newest metrics; operators and spans since the last event."""

    def __init__(self, *, with_all: bool = False) -> None:
        """`with_all`: an event has every metric, and what programs marked."""
        self._with_all = with_all
        self._units: dict[str, str] = {}
        self._marks: deque[Mark] = deque(maxlen=REMEMBERED_SPANS)
        self._mark_count = 0
        self._names: LRUCache[str, dict[int, str]] = LRUCache(REMEMBERED_COLLECTIONS)
        self._metrics: dict[str, float] = {}
        self._time_us = 0
        self._has_new = False
        self._ops: LRUCache[str, _Ops] = LRUCache(REMEMBERED_COLLECTIONS)
        self._spans: LRUCache[str, tuple[int, int]] = LRUCache(REMEMBERED_SPANS)
        # What comes again after a lost link, by its time in µs.
        self._shown_until_us = 0

    def link_is_lost(self) -> None:
        """What was told comes again with the next link."""
        self._shown_until_us = self._time_us

    def take(self, batch: JobChanges) -> None:
        """Rows of a collection."""
        for change in batch.changes:
            if isinstance(change, SourceRows):
                if change.table == "metric_name":
                    # A segment begins with its names.
                    known = {} if change.anew else self._names.get(batch.job, {})
                    self._names[batch.job] = known | {row[0]: row[1] for row in change.rows}
                    self._units |= {row[1]: row[2] for row in change.rows}
                elif change.table == "metric":
                    self._take_metrics(self._names.get(batch.job, {}), change.rows)
                elif change.table == "op_event":
                    self._take_ops(batch.job, change.rows)
                elif change.table == "range":
                    self._take_ranges(change.rows)

    def event(self) -> dict[str, Any] | None:
        """What is new since the last event; None where nothing is."""
        if not self._has_new:
            return None
        self._has_new = False
        spans = sorted(self._spans.items(), key=lambda each: -each[1][1])
        found = {
            "event": "board",
            "time_us": self._time_us,
            "npu_utilization": self._metrics.get(UTILIZATION),
            "temperature": self._metrics.get(TEMPERATURE, self._warmest()),
            "daemon_cpu": self._metrics.get(DAEMON_CPU),
            "ops": [_rate(job, ops) for job, ops in self._ops.items() if ops.number],
            "spans": [
                {"name": name, "count": count, "mean_us": total_ns / count / NS_PER_US}
                for name, (count, total_ns) in spans
            ],
            "mark_count": self._mark_count,
        }
        if self._with_all:
            found["metrics"] = {name: (value, self._units.get(name, "")) for name, value in self._metrics.items()}
            found["marks"] = [*self._marks]
        for job, ops in list(self._ops.items()):
            self._ops[job] = _Ops(0, ops.until_us, ops.until_us)
        self._spans.clear()
        self._marks.clear()
        self._mark_count = 0
        return found

    def _warmest(self) -> float | None:
        return max((value for name, value in self._metrics.items() if name.startswith(THERMAL)), default=None)

    def _take_metrics(self, names: dict[int, str], rows: Iterable[tuple[Any, ...]]) -> None:
        for _, number, time_us, value in rows:
            if number in names and time_us > self._shown_until_us:
                self._metrics[names[number]] = value
                self._see(time_us)

    def _take_ops(self, job: str, rows: Iterable[tuple[Any, ...]]) -> None:
        for _, _, _, _, start_us, end_us, _, _ in rows:
            if end_us > self._shown_until_us:
                number, since_us, until_us = self._ops.get(job, _Ops(0, start_us, end_us))
                self._ops[job] = _Ops(number + 1, since_us, max(until_us, end_us))
                self._see(end_us)

    def _take_ranges(self, rows: Iterable[tuple[Any, ...]]) -> None:
        for _, kind, text, _, _, _, begin_ns, end_ns, _, _ in rows:
            if kind == "mark" and begin_ns // NS_PER_US > self._shown_until_us:
                self._mark_count += 1
                self._marks.append(Mark(begin_ns // NS_PER_US, text))
                self._see(begin_ns // NS_PER_US)
            elif kind != "mark" and end_ns >= begin_ns and end_ns // NS_PER_US > self._shown_until_us:
                count, total_ns = self._spans.get(text, (0, 0))
                self._spans[text] = count + 1, total_ns + end_ns - begin_ns
                self._see(end_ns // NS_PER_US)

    def _see(self, time_us: int) -> None:
        self._time_us = max(self._time_us, time_us)
        self._has_new = True


def _rate(job: str, ops: _Ops) -> dict[str, Any]:
    """A subscription's operators, and how many come in a second of the board's clock."""
    seconds = (ops.until_us - ops.since_us) / US_PER_S
    source = job.partition("-")[2].rpartition("-")[0]
    return {"source": source, "count": ops.number, "per_s": ops.number / seconds if seconds > 0 else None}
