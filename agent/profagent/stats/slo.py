"""Verdicts on objectives for the records and frames of a stored session, or of one of its JOBs."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.formats.durations import Distribution
from profagent.formats.inference_times import NOT_IN_ANY_LAYER, Latency, LatencyFrom, Spans, joined_spans, latency_of
from profagent.stats.figures import UNITS, UNKNOWN, left_out
from profagent.stats.session_figures import split
from profagent.stats.thinned import merged
from profagent.store.thinning import CALL, WHOLE
from profagent.tables.slo import FRAMED, ON_CPU, JudgedSeries, judgement, unjudged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from profagent.stats.figures import JobRecords, ModelTimes
    from profagent.stats.thinned import ThinnedFigures
    from profagent.store.queries import Scope
    from profagent.tables.frame_series import FrameSeries
    from profagent.tables.slo import Judgement, Objective

    Floats = NDArray[np.float64]

_NO_CLOCK = "the NPU's clock is not known"
_THINNED = "a flight recorder thinned most: times are within 0.4 %, and the guilty part is that of those it kept"
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
                yield self._latency(model, jobs)

    def _latency(self, model: str, jobs: Sequence[_JobTimes]) -> JudgedSeries:
        latency = self._latency_of(model, jobs)
        names, parts = _joined(jobs, "completed") if self._in_us else ((), np.empty((0, 0), np.float32))
        if self._in_us:
            rest = latency.us - parts.sum(axis=1)
            names, parts = (*names, NOT_IN_ANY_LAYER), np.column_stack([parts, rest])
        why = "no latency is known" if latency.origin is None else _THINNED if model in self._thinned else ""
        thinned = self._thinned_us(model, CALL if latency.origin is LatencyFrom.CALL else WHOLE)
        return JudgedSeries(model, np.append(latency.us, thinned), *_steps(jobs, latency), names, parts, why)

    def _latency_of(self, model: str, jobs: Sequence[_JobTimes]) -> Latency:
        nothing = Spans(*np.empty((2, 0)))
        whole, calls = (joined_spans([nothing, *(getattr(job, of) for job in jobs)]) for of in ("whole", "calls"))
        if model not in self._thinned:
            return latency_of(whole, calls)
        by_call, by_records = (
            int((~np.isnan(spans.us)).sum()) + sum(each.of(subject).number for each in self._thinned[model])
            for spans, subject in ((calls, CALL), (whole, WHOLE))
        )
        # The rule of `latency_of`, over records and figures together.
        return Latency(calls, LatencyFrom.CALL) if 2 * by_call >= by_records else Latency(whole, LatencyFrom.RECORDS)

    def _thinned_us(self, model: str, subject: str) -> Floats:
        found = merged([each.of(subject) for each in self._thinned.get(model, ())])
        return np.empty(0) if found is None else np.repeat(*found.weighted())

    def _layers(self, model: str, jobs: Sequence[_JobTimes], wanted: str | None) -> Iterator[JudgedSeries]:
        names, times = _joined(jobs, "times")
        thinned = self._thinned_layers(model)
        for name in dict.fromkeys([*names, *thinned]):
            if wanted not in (None, name, name.removesuffix(ON_CPU)):
                continue
            us = times[:, names.index(name)].astype(np.float64) if self._in_us and name in names else np.empty(0)
            why = "" if self._in_us else _NO_CLOCK
            if self._in_us and name in thinned:
                us, why = np.append(us, np.repeat(*thinned[name].weighted())), _THINNED
            yield JudgedSeries(f"{name} of {model}", us, why=why)

    def _thinned_layers(self, model: str) -> dict[str, Distribution]:
        """Return the times of each layer in thinned inferences.

        A layer of several records or segments is left out: of those only the time of each record is known.
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
        return {name: distribution for name, distribution in found.items() if name not in several}


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
