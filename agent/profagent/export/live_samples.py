"""How well the board samples while someone watches: by the names of files that come, of each model the newest."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from profagent.formats.names import LogKind, parse_log_name
from profagent.formats.sampling import Figures, SampleTally, sum_of
from profagent.ingest.changes import LogAdvanced, SegmentRecords

if TYPE_CHECKING:
    from profagent.formats.names import LogName
    from profagent.ingest.changes import Change

# Files of one model come at most so far out of their order.
REMEMBERED_SAMPLES = 1_000
# Models that are still compared; of those that were not heard of for longest the figures stay.
REMEMBERED_MODELS = 256
_OF_SAMPLES = (LogKind.AICORE, LogKind.AICPU)
_Model = tuple[str, str, int]


@dataclass(slots=True)
class _Samples:
    tally: SampleTally = field(default_factory=SampleTally)
    counts: list[int] = field(default_factory=list)
    forgotten: int = -1

    def see(self, count: int, pictures: int) -> None:
        """A file with this picture count came."""
        place = bisect_left(self.counts, count)
        if count <= self.forgotten or self.counts[place : place + 1] == [count]:
            return
        before = self.counts[place - 1] if place else None
        after = self.counts[place] if place < len(self.counts) else None
        self.tally.insert(before, count, after, pictures)
        self.counts.insert(place, count)
        if len(self.counts) > REMEMBERED_SAMPLES:
            self.forgotten = self.counts.pop(0)


class LiveSamples:
    """The samples that came since watching began. Of a model that was loaded again nobody knows what was due."""

    def __init__(self) -> None:
        self._models: OrderedDict[_Model, _Samples] = OrderedDict()
        self._forgotten: list[Figures] = []  # their sum, once there is one
        self._told: dict[str, int | None] = {}

    def tell(self, job: str, interval: int | None) -> None:
        """The interval of the JOB's acl.json."""
        self._told[job] = interval

    def take(self, job: str, change: Change) -> None:
        """Know of a file that came, or that a model was loaded again: its picture counts are of several loads then."""
        if isinstance(change, LogAdvanced):
            name = parse_log_name(change.path)
            if name is not None and name.kind in _OF_SAMPLES and name.inference is not None:
                of = name.inference
                self._of(job, name).see(of.current_pic_count, of.input_pic_num)
        elif isinstance(change, SegmentRecords) and change.stretch[-1]:
            self._of(job, change.name).tally.pictures = 0

    def of_model(self, job: str, name: LogName) -> dict[str, Any]:
        """`sampled` and `due` of one model so far."""
        figures = self._of(job, name).tally.figures(self._told.get(job))
        return {"sampled": figures.sampled, "due": figures.due}

    def in_all(self) -> dict[str, Any]:
        """The figures of all models together."""
        known = (samples.tally.figures(self._told.get(job)) for (job, _, _), samples in self._models.items())
        total = sum_of([*self._forgotten, *known])
        return {
            "sampled": total.sampled,
            "due": total.due,
            "late": total.late,
            "never_came": total.never_came,
            "interval": total.interval,
            "interval_from": total.origin,
        }

    def _of(self, job: str, name: LogName) -> _Samples:
        key = (job, name.model or "", name.model_id or 0)
        samples = self._models.setdefault(key, _Samples())
        self._models.move_to_end(key)
        if len(self._models) > REMEMBERED_MODELS:
            (other, _, _), forgotten = self._models.popitem(last=False)
            self._forgotten = [sum_of([*self._forgotten, forgotten.tally.figures(self._told.get(other))])]
        return samples
