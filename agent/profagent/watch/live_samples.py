"""How well the board samples while someone watches: by the names of files that come, of each model the newest."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from profagent.formats.loads import counts_of_loads
from profagent.formats.names import LogKind, parse_log_name
from profagent.formats.sampling import Figures, SampleTally, figures_of, sum_of, tally_of
from profagent.ingest.changes import InferenceTimed, LogAdvanced, Redecoded, SegmentRecords

if TYPE_CHECKING:
    from profagent.formats.names import LogName
    from profagent.ingest.changes import Change

# Files of one model come at most so far out of their order: those of a JOB that stands come in a directory's.
REMEMBERED_SAMPLES = 100_000
# Models that are still compared; of those that were not heard of for longest the figures stay.
REMEMBERED_MODELS = 256
# Samples of all models of which it is remembered when their inferences began, so that loads can be told apart.
REMEMBERED_TIMES = 50_000
_OF_SAMPLES = (LogKind.AICORE, LogKind.AICPU)
_Model = tuple[str, str, int]


@dataclass(slots=True)
class _Samples:
    tally: SampleTally = field(default_factory=SampleTally)
    counts: list[int] = field(default_factory=list)
    forgotten: int = -1
    # By picture count, when each inference in the files of that name began; a file has one for each load.
    times: dict[int, list[int | None]] = field(default_factory=dict)
    is_loaded_again: bool = False

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

    def split(self, count: int, inferences: int, *, has_room: bool) -> None:
        """The files of this picture count hold so many inferences; where there is no room it is not remembered."""
        self.is_loaded_again |= inferences > 1
        if has_room or count in self.times:
            times = self.times.setdefault(count, [])
            times += [None] * (inferences - len(times))

    def time(self, count: int, number: int, start_us: int | None) -> None:
        """When an inference of these files began."""
        times = self.times.get(count, [])
        times[number : number + 1] = [start_us] * len(times[number : number + 1])

    def figures(self, told: int | None, *, by_load: bool) -> Figures:
        """As SampleTally's; of a model that was loaded again only `by_load`, and where all its samples are known."""
        if not self.is_loaded_again:
            return self.tally.figures(told)
        are_all_known = by_load and len(self.times) == self.tally.sampled
        loads = counts_of_loads(self.times) if are_all_known else None
        if loads is None:
            return figures_of(self.tally.sampled, None, told)
        return tally_of(loads, self.tally.pictures or 0).figures(told)


class LiveSamples:
    """The samples that came since watching began. Of a model that was loaded again what was due is known at the end."""

    def __init__(self) -> None:
        self._models: OrderedDict[_Model, _Samples] = OrderedDict()
        self._forgotten: list[Figures] = []  # their sum, once there is one
        self._told: dict[str, int | None] = {}
        self._missed: set[str] = set()
        self._listed: set[str] = set()
        self._room = REMEMBERED_TIMES

    def tell(self, job: str, interval: int | None) -> None:
        """The interval of the JOB's acl.json."""
        self._told[job] = interval

    def miss(self, job: str) -> None:
        """Samples of the JOB may have passed unseen: those of a later load hide which ones."""
        self._missed.add(job)

    def list(self, job: str) -> None:
        """Every file of the JOB has been told: from now on, what lies between two samples is known."""
        self._listed.add(job)

    def unlist(self) -> None:
        """The link is lost: files are told again, in any order."""
        self._listed.clear()

    def take(self, job: str, change: Change) -> None:
        """Know of a file that came, or that a model was loaded again: its picture counts are of several loads then."""
        if isinstance(change, LogAdvanced):
            name = parse_log_name(change.path)
            if name is not None and name.kind in _OF_SAMPLES and name.inference is not None:
                of = name.inference
                self._of(job, name).see(of.current_pic_count, of.input_pic_num)
        elif isinstance(change, SegmentRecords):
            self._split(job, change)
        elif isinstance(change, Redecoded) and change.records is not None:
            self._split(job, change.records)
        elif isinstance(change, InferenceTimed) and change.name.inference is not None:
            start_us = None if change.done is None else change.done.start_us or None
            self._of(job, change.name).time(change.name.inference.current_pic_count, change.stretch, start_us)

    def of_model(self, job: str, name: LogName) -> dict[str, Any]:
        """`sampled` and `due` of one model so far."""
        figures = self._of(job, name).figures(self._told.get(job), by_load=False)
        if job not in self._listed:
            # A file between two others may be told later.
            figures = figures_of(figures.sampled, None, figures.interval)
        return {"sampled": figures.sampled, "due": figures.due}

    def in_all(self) -> dict[str, Any]:
        """The figures of all models together."""
        known = (self._figures(job, samples) for (job, _, _), samples in self._models.items())
        total = sum_of([*self._forgotten, *known])
        return {
            "sampled": total.sampled,
            "due": total.due,
            "late": total.late,
            "never_came": total.never_came,
            "interval": total.interval,
            "interval_from": total.origin,
        }

    def _split(self, job: str, records: SegmentRecords) -> None:
        assert records.name.inference is not None, "segments are an inference's"
        samples = self._of(job, records.name)
        before = len(samples.times)
        count = records.name.inference.current_pic_count
        samples.split(count, int(records.stretch[-1]) + 1, has_room=self._room > 0)
        self._room -= len(samples.times) - before

    def _figures(self, job: str, samples: _Samples) -> Figures:
        if job not in self._listed:
            return figures_of(samples.tally.sampled, None, self._told.get(job))
        return samples.figures(self._told.get(job), by_load=job not in self._missed)

    def _of(self, job: str, name: LogName) -> _Samples:
        key = (job, name.model or "", name.model_id or 0)
        samples = self._models.setdefault(key, _Samples())
        self._models.move_to_end(key)
        if len(self._models) > REMEMBERED_MODELS:
            (other, _, _), forgotten = self._models.popitem(last=False)
            self._room += len(forgotten.times)
            self._forgotten = [sum_of([*self._forgotten, self._figures(other, forgotten)])]
        return samples
