"""Verdicts on objectives for the records and frames of a stored session, or of one of its JOBs."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.formats.durations import RESOLUTION, Distribution
from profagent.formats.inference_times import NOT_IN_ANY_LAYER, Spans, joined_spans
from profagent.stats.figures import UNITS, UNKNOWN, left_out
from profagent.stats.session_figures import split
from profagent.stats.thinned import LATENCY, latency_with, merged, whole_pace
from profagent.tables.slo import FRAMED, ON_CPU, JudgedSeries, is_of_layer, judgement, unjudged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from profagent.formats.inference_times import Latency
    from profagent.stats.figures import JobRecords, ModelTimes
    from profagent.stats.thinned import ThinnedFigures
    from profagent.store.queries import Scope
    from profagent.tables.frame_series import FrameSeries
    from profagent.tables.slo import Judgement, Objective

    Floats = NDArray[np.float64]

_NO_CLOCK = "the NPU's clock is not known"
_THINNED = f"a flight recorder thinned most: percentiles are within {RESOLUTION:.1%}, a guilty part is that of the rest"
_SEVERAL = "a flight recorder thinned most: of a layer with several records in an inference it has no sums"
_NO_RATE = "a flight recorder thinned inferences of several JOBs, devices or loads: their rate is not known"
_CLEARED = "`profagent gc` deleted its records"


class _JobTimes(NamedTuple):
    """Inferences of a model in one JOB: their spans, and the times of its layers, shape (inferences, layers)."""

    whole: Spans
    calls: Spans
    loads: NDArray[np.int64]
    ran_before: Floats
    layers: tuple[str, ...]
    times: NDArray[np.float32]
    completed: NDArray[np.float32]


class ModelSeries:
    """Latencies and layers of each model, over the JOBs of a session."""

    def __init__(self, *, in_us: bool) -> None:
        self._in_us = in_us
        self._models: dict[str, list[_JobTimes]] = defaultdict(list)
        # Inferences that a flight recorder has thinned.
        self._thinned: dict[str, list[ThinnedFigures]] = defaultdict(list)

    def add_thinned(self, thinned: ThinnedFigures) -> None:
        """Add inferences that a flight recorder has thinned: only their times are known, within RESOLUTION."""
        self._thinned[thinned.name].append(thinned)

    def add(self, job: JobRecords, skip: int | None) -> None:
        """Add a JOB without its warm-up, as `stats` leaves it out."""
        keeps, _ = left_out(job, skip)
        for model in job.models(keeps):
            self._models[model.name].append(_times_of(model))

    def of(self, objective: Objective) -> Iterator[JudgedSeries]:
        """Yield the series of models or layers that an objective is about."""
        for model in {**self._models, **self._thinned}:
            jobs = self._models.get(model, [])
            if objective.subject == "layer":
                yield from self._layers(model, jobs, objective.name)
            elif objective.name in (None, model):
                series = self._latency(model, jobs)
                is_unknown = objective.is_rate and series.thinned is not None and not len(series.steps)
                yield series._replace(why=_NO_RATE) if is_unknown else series

    def _latency(self, model: str, jobs: Sequence[_JobTimes]) -> JudgedSeries:
        thinned, nothing = self._thinned.get(model, []), Spans(*np.empty((2, 0)))
        whole, calls = (joined_spans([nothing, *(getattr(job, of) for job in jobs)]) for of in ("whole", "calls"))
        latency = latency_with(whole, calls, thinned)
        names, parts = _joined(jobs, "completed") if self._in_us else ((), np.empty((0, 0), np.float32))
        if self._in_us:
            rest = latency.us - parts.sum(axis=1)
            names, parts = (*names, NOT_IN_ANY_LAYER), np.column_stack([parts, rest])
        why = "no latency is known" if latency.origin is None else _THINNED if thinned else ""
        found = merged([each.of(LATENCY[latency.origin]) for each in thinned])
        series = JudgedSeries(model, latency.us, *_steps(jobs, latency), names, parts, why, found)
        if not thinned:
            return series
        # The kept inferences alone have no neighbours: only the rate over all is known.
        pace = whole_pace([*_loads(jobs)], thinned)
        steps_us, steps = np.empty((2, 0)) if pace is None else np.array([[pace.us], [pace.steps]])
        return series._replace(steps_us=steps_us, steps=steps)

    def _layers(self, model: str, jobs: Sequence[_JobTimes], wanted: str | None) -> Iterator[JudgedSeries]:
        names, times = _joined(jobs, "times")
        thinned = self._thinned_layers(model)
        for name in dict.fromkeys([*names, *thinned]):
            if not is_of_layer(wanted, name):
                continue
            us = times[:, names.index(name)].astype(np.float64) if self._in_us and name in names else np.empty(0)
            why, found = "" if self._in_us else _NO_CLOCK, None
            if self._in_us and name in thinned:
                found, why = thinned[name], _THINNED
                if found is None:
                    us, why = np.empty(0), _SEVERAL
            yield JudgedSeries(f"{name} of {model}", us, why=why, thinned=found)

    def _thinned_layers(self, model: str) -> dict[str, Distribution | None]:
        """Return the times of each layer in thinned inferences.

        None for a layer of several records or segments: of those only the time of each record is known.
        """
        found: dict[str, Distribution] = {}
        several = set()
        for thinned in self._thinned.get(model, ()):
            columns: dict[str, int] = defaultdict(int)
            for column, distribution, inferences in thinned.layers():
                layer = thinned.table.get(column.layer)
                name = (UNKNOWN if layer is None else layer.name) + ON_CPU * (column.unit == UNITS[1])
                columns[name] += 1
                if columns[name] > 1 or distribution.number > inferences:
                    several.add(name)
                found.setdefault(name, Distribution()).merge(distribution)
        return {name: None if name in several else distribution for name, distribution in found.items()}


def _times_of(model: ModelTimes) -> _JobTimes:
    places: dict[str, list[int]] = defaultdict(list)
    for place, column in enumerate(model.columns):
        layer = model.table.get(column.layer)
        places[(UNKNOWN if layer is None else layer.name) + ON_CPU * (column.unit == UNITS[1])].append(place)
    columns = [*places.values()]
    # A layer that has several columns, one a segment, has no time where none of them has a record.
    times = [np.where(np.isnan(t := model.times[:, at]).all(axis=1), np.nan, np.nansum(t, axis=1)) for at in columns]
    completed = [model.completed[:, at].sum(axis=1) for at in columns]
    return _JobTimes(
        model.whole,
        model.calls,
        model.loads,
        model.ran_before,
        (*places,),
        *(np.stack(each, axis=1).astype(np.float32) for each in (times, completed)),
    )


def _joined(jobs: Sequence[_JobTimes], of: str) -> tuple[tuple[str, ...], NDArray[np.float32]]:
    """Return the layers of all JOBs, and their times in each inference; 0 or NaN where a JOB has no such layer."""
    names = [*dict.fromkeys(name for job in jobs for name in job.layers)]
    parts = []
    for job in jobs:
        found: NDArray[np.float32] = getattr(job, of)
        part = np.full((len(found), len(names)), 0.0 if of == "completed" else np.nan, np.float32)
        part[:, [names.index(name) for name in job.layers]] = found
        parts.append(part)
    return (*names,), np.concatenate([np.empty((0, len(names)), np.float32), *parts])


def _loads(jobs: Sequence[_JobTimes]) -> Iterator[tuple[Floats, Floats]]:
    for job in jobs:
        for _, at in split(job.loads, np.arange(len(job.loads))):
            yield job.whole.begin_us[at], job.ran_before[at]


def _steps(jobs: Sequence[_JobTimes], latency: Latency) -> tuple[Floats, Floats]:
    """Return the time from each inference to the next of its load, and how many ran in that time."""
    found, begun = [], 0
    for job in jobs:
        begin_us = latency.spans.begin_us[begun : begun + len(job.loads)]
        begun += len(job.loads)
        for _, at in split(job.loads, np.arange(len(job.loads))):
            known = at[~np.isnan(begin_us[at])]
            found.append(np.stack([np.diff(begin_us[known]), np.diff(job.ran_before[known])]))
    step_us, steps = np.concatenate([np.empty((2, 0)), *found], axis=1)
    # A clock that was set back, or inferences out of order, give no rate.
    is_forward = (step_us > 0) & (steps > 0)
    return step_us[is_forward], steps[is_forward]


class Judge:
    """Judge of objectives on a session: the records of each JOB are added while `stats` reads them."""

    def __init__(self, objectives: Sequence[Objective], scopes: Sequence[Scope] = ()) -> None:
        self._objectives = objectives
        self._models = ModelSeries(in_us=all(scope.job.frequency_mhz for scope in scopes))
        self.asks_records = any(each.subject not in FRAMED for each in objectives)
        self.asks_frames = any(each.subject in FRAMED for each in objectives)

    def add_thinned(self, thinned: ThinnedFigures) -> None:
        """Add inferences that a flight recorder has thinned."""
        self._models.add_thinned(thinned)

    def add(self, job: JobRecords, skip: int | None) -> None:
        """Add the records of a JOB."""
        self._models.add(job, skip)

    def judgements(self, frames: FrameSeries | None) -> list[Judgement]:
        """Return the verdict on each objective; `frames` are the session's, if `asks_frames`."""
        return [judgement(each, self._series(each, frames)) for each in self._objectives]

    def _series(self, objective: Objective, frames: FrameSeries | None) -> Iterator[JudgedSeries]:
        if objective.subject not in FRAMED:
            return self._models.of(objective)
        assert frames is not None, "objectives on frames are judged by frames"
        return frames.of(objective)


def of_cleared(objectives: Sequence[Objective]) -> list[Judgement]:
    """Return the verdicts for a session whose records were deleted."""
    return [unjudged(each, _CLEARED) for each in objectives]
