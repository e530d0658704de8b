"""Samples of models that have come while somebody watches, and what was due between them."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from profagent.formats.names import LogKind, parse_log_name
from profagent.formats.sampling import LOADS, NOT_LISTED, SampleCounts, SampleTally, figures_of, sum_of
from profagent.ingest.changes import LogAdvanced, NamesAnnounced, Redecoded, SegmentRecords
from profagent.limits import COMPARED_MODELS, REMEMBERED_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from profagent.formats.names import LogName
    from profagent.ingest.changes import Change

_OF_SAMPLES = (LogKind.AICORE, LogKind.AICPU)
# Name and id of a model.
Model = tuple[str, int]


@dataclass(slots=True)
class _ModelSamples:
    """Samples of one model, in any order of arrival.

    `counts` are the newest picture counts, rising; those up to `forgotten` are only in `tally`.
    """

    tally: SampleTally = field(default_factory=SampleTally)
    counts: list[int] = field(default_factory=list)
    forgotten: int = -1
    is_loaded_again: bool = False
    # Skipped samples, of which nothing comes: they are counted with the next sample that does.
    passed_over: deque[int] = field(default_factory=deque)
    # True if a sample came before its JOB was listed completely: a name between two others may still come.
    is_unsure: bool = False

    def see(self, count: int, pictures: int) -> None:
        """Count a sample after `count` pictures; repetitions count once."""
        while self.passed_over and self.passed_over[0] < count:
            self._see(self.passed_over.popleft(), pictures)
        self._see(count, pictures)

    def _see(self, count: int, pictures: int) -> None:
        place = bisect_left(self.counts, count)
        if count <= self.forgotten or self.counts[place : place + 1] == [count]:
            return
        before = self.counts[place - 1] if place else None
        after = self.counts[place] if place < len(self.counts) else None
        self.tally.insert(before, count, after, pictures)
        self.counts.insert(place, count)
        if len(self.counts) > REMEMBERED_SAMPLES:
            self.forgotten = self.counts.pop(0)

    def figures(self, interval: int | None) -> SampleCounts:
        """Return the figures of the tally; of a model that was loaded again it is unknown what was due."""
        why = NOT_LISTED if self.is_unsure else LOADS if self.is_loaded_again else None
        if why is not None:
            return figures_of(self.tally.sampled, None, interval, why=why)
        return self.tally.figures(interval)


class LiveSamples:
    """Samples that have come since watching began, of all models."""

    def __init__(self) -> None:
        # Samples by JOB and model, the one used last at the end; at most COMPARED_MODELS.
        self._models: OrderedDict[tuple[str, Model], _ModelSamples] = OrderedDict()
        # Sum of the models beyond that bound: one element, or none.
        self._forgotten: list[SampleCounts] = []
        # Interval of each JOB's acl.json.
        self._intervals: dict[str, int | None] = {}
        # JOBs whose files have all been announced in this stream.
        self._listed: set[str] = set()

    def set_interval(self, job: str, interval: int | None) -> None:
        """Set the interval of the JOB's acl.json."""
        self._intervals[job] = interval

    def list(self, job: str) -> None:
        """Note that every file of the JOB has been announced: what lies between two samples is known from now on."""
        self._listed.add(job)
        for (of, _), samples in self._models.items():
            samples.is_unsure &= of != job

    def pass_over(self, job: str, model: Model, counts: Iterable[int]) -> None:
        """Add samples of a model, by rising picture count, that were skipped on purpose and will never come."""
        self._models.setdefault((job, model), _ModelSamples()).passed_over.extend(counts)

    def unlist(self) -> None:
        """Note that the link is lost, after which files are announced in any order. What is known stays."""
        self._listed.clear()

    def take(self, job: str, change: Change) -> None:
        """Count the sample of a file that came or is announced, and note that a model was loaded again."""
        if isinstance(change, LogAdvanced | NamesAnnounced):
            for path in [change.path] if isinstance(change, LogAdvanced) else change.paths:
                name = parse_log_name(path)
                if name is not None and name.kind in _OF_SAMPLES and name.inference is not None:
                    self.see(job, _model(name), name.inference.current_pic_count, name.inference.input_pic_num)
        elif isinstance(change, Redecoded | SegmentRecords):
            records = change.records if isinstance(change, Redecoded) else change
            if records is not None and records.unit.after.loads[0] > 1:
                self.load_again(job, _model(records.name))

    def see(self, job: str, model: Model, count: int, pictures: int) -> None:
        """Count a sample of a model after `count` pictures, each inference having `pictures`."""
        samples = self._of(job, model)
        samples.is_unsure |= job not in self._listed
        samples.see(count, pictures)

    def load_again(self, job: str, model: Model) -> None:
        """Note that a model was loaded again, and counts pictures anew."""
        self._of(job, model).is_loaded_again = True

    def of_model(self, job: str, model: Model) -> dict[str, Any]:
        """Return `sampled` and `due` of one model so far."""
        figures = self._figures(job, self._of(job, model))
        return {"sampled": figures.sampled, "due": figures.due}

    def in_all(self) -> dict[str, Any]:
        """Return the figures of all models together."""
        known = (self._figures(job, samples) for (job, _), samples in self._models.items())
        return sum_of([*self._forgotten, *known]).fields()

    def _figures(self, job: str, samples: _ModelSamples) -> SampleCounts:
        return samples.figures(self._intervals.get(job))

    def _of(self, job: str, model: Model) -> _ModelSamples:
        key = job, model
        samples = self._models.setdefault(key, _ModelSamples())
        self._models.move_to_end(key)
        if len(self._models) > COMPARED_MODELS:
            (other, _), forgotten = self._models.popitem(last=False)
            self._forgotten = [sum_of([*self._forgotten, self._figures(other, forgotten)])]
        return samples


def _model(name: LogName) -> Model:
    return name.model or "", name.model_id or 0
