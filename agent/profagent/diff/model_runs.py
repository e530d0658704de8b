"""What a run is to a comparison: of each model its layers in order, and how long each took in each inference."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from profagent.diff.alignment import LayerName
from profagent.stats.gathering import UNITS, UNKNOWN, left_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from profagent.stats.gathering import JobRecords
    from profagent.store.queries import LayerRow
    from profagent.store.series import JobSeries, RecordSeries

__all__ = ["ModelRun", "joined_runs", "model_runs", "on_unit"]


@dataclass(frozen=True, slots=True)
class ModelRun:
    """A model's inferences, without those of its warm-up.

    `times` has the shape (inferences, layers), NaN where an inference has no record of a layer; records of one layer
    are added up. `pictures` are pairs of batch and input pictures. `counters`: of some records of a layer, by the
    layer's place, shape (records, counters).
    """

    name: str
    layers: tuple[LayerName, ...]
    times: NDArray[np.float64]
    pictures: frozenset[tuple[int, int]] = frozenset()
    left_out: int = 0
    counters: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)

    def totals(self) -> NDArray[np.float64]:
        """Each inference's time; a layer that it has no record of counts with its median."""
        missing = np.isnan(self.times)
        totals: NDArray[np.float64] = np.where(missing, np.nanmedian(self.times, axis=0), self.times).sum(axis=1)
        return totals


def model_runs(job: JobRecords, skip: int | None) -> list[ModelRun]:
    """The models of a JOB, by name and layers; inferences without any record are in none."""
    keeps, _ = left_out(job, skip)
    names = {row.model: row.model_name for row in job.series.inferences}
    runs = [_model_run(job, model, name, keeps) for model, name in names.items()]
    return joined_runs(run for run in runs if run.layers)


def joined_runs(runs: Iterable[ModelRun]) -> list[ModelRun]:
    """Runs of one model as one, where the layers of one are those of another or some of them in the same order."""
    found: dict[tuple[str, tuple[LayerName, ...]], list[ModelRun]] = {}
    for run in sorted(runs, key=lambda run: -len(run.layers)):
        for (name, layers), parts in found.items():
            places = _places(run.layers, layers) if name == run.name else None
            if places is not None:
                parts.append(_widened(run, layers, places))
                break
        else:
            found[run.name, run.layers] = [run]
    return [_joined(parts) for parts in found.values()]


def on_unit(run: ModelRun, unit: str) -> ModelRun:
    """The run without the layers of other units."""
    places = [place for place, layer in enumerate(run.layers) if layer.unit == unit]
    counters = {to: run.counters[place] for to, place in enumerate(places) if place in run.counters}
    layers = tuple(run.layers[place] for place in places)
    return replace(run, layers=layers, times=run.times[:, places], counters=counters)


def _places(some: tuple[LayerName, ...], layers: tuple[LayerName, ...]) -> list[int] | None:
    """Where some layers stand among others; None unless all do, in the same order."""
    places: list[int] = []
    for layer in some:
        try:
            places.append(layers.index(layer, places[-1] + 1 if places else 0))
        except ValueError:
            return None
    return places


def _widened(run: ModelRun, layers: tuple[LayerName, ...], places: list[int]) -> ModelRun:
    times = np.full((len(run.times), len(layers)), np.nan)
    times[:, places] = run.times
    return replace(run, layers=layers, times=times, counters={places[place]: v for place, v in run.counters.items()})


def _joined(parts: list[ModelRun]) -> ModelRun:
    counters: dict[int, list[NDArray[np.float64]]] = {}
    for part in parts:
        for place, values in part.counters.items():
            counters.setdefault(place, []).append(values)
    return ModelRun(
        parts[0].name,
        parts[0].layers,
        np.concatenate([part.times for part in parts]),
        frozenset[tuple[int, int]]().union(*(part.pictures for part in parts)),
        sum(part.left_out for part in parts),
        {place: np.concatenate(values) for place, values in counters.items()},
    )


def _model_run(job: JobRecords, model: int, name: str, keeps: NDArray[np.bool_]) -> ModelRun:
    series = job.series
    is_ours = np.array([row.model == model for row in series.inferences], np.bool_)
    units = [(UNITS[0], series.aicore, job.us_per_tick or 1.0)]
    if job.us_per_tick is not None:
        units.append((UNITS[1], series.aicpu, 1.0))
    keys, columns = [], []
    for unit, records, us in units:
        for layer, times in _layer_times(records, is_ours & keeps):
            keys.append((layer < 0, layer, unit))
            columns.append(times * us)
    order = sorted(range(len(keys)), key=keys.__getitem__)
    times = np.stack([columns[at] for at in order], axis=1) if order else np.empty((0, 0))
    cores = {keys[at][1]: place for place, at in enumerate(order) if keys[at][2] == UNITS[0]}
    kept = [row for row, keep in zip(series.inferences, is_ours & keeps, strict=True) if keep]
    return ModelRun(
        name,
        tuple(_layer_name(job.layers[model], keys[at][1], keys[at][2]) for at in order),
        times[~np.isnan(times).all(axis=1)],
        frozenset((row.batch_num, row.input_pic_num) for row in kept),
        int((is_ours & ~keeps).sum()),
        _counters(series, is_ours & keeps, cores),
    )


def _layer_times(records: RecordSeries, keeps: NDArray[np.bool_]) -> Iterable[tuple[int, NDArray[np.float64]]]:
    """Of each layer, its time in each kept inference."""
    kept = keeps[records.inference]
    if not kept.any():
        return
    rows = np.cumsum(keeps) - 1
    layers, place = np.unique(records.layer[kept], return_inverse=True)
    cells = rows[records.inference[kept]] * len(layers) + place
    size = int(keeps.sum()) * len(layers)
    counts = np.bincount(cells, minlength=size)
    sums = np.where(counts > 0, np.bincount(cells, records.duration[kept], size), np.nan)
    yield from zip(layers.tolist(), sums.reshape(-1, len(layers)).T, strict=True)


def _layer_name(layers: Mapping[int, LayerRow], index: int, unit: str) -> LayerName:
    layer = layers.get(index)
    return LayerName(UNKNOWN, UNKNOWN, unit) if layer is None else LayerName(layer.name, layer.type, unit)


def _counters(series: JobSeries, keeps: NDArray[np.bool_], places: Mapping[int, int]) -> dict[int, NDArray[np.float64]]:
    if series.counters is None:
        return {}
    records, values = series.counters.records, series.counters.values
    kept = keeps[records.inference]
    return {place: values[kept & (records.layer == layer)] for layer, place in places.items()}
