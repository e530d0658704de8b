"""A run as a comparison reads it: the layers of each model in order, and their times in each inference.

It is read from a JOB's records, or from tables op_summary as profagent or the vendor's tool writes them.
"""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.errors import UsageError
from profagent.formats.cells import text_of
from profagent.formats.countermap import RATIOS, bound_by, mean_ratios
from profagent.formats.durations import Distribution
from profagent.formats.inference_times import LatencyFrom, completed, lacks_records, time_in_inference
from profagent.formats.records import AI_CPU, is_on_ai_cpu
from profagent.stats.figures import UNITS, UNKNOWN, left_out, warm_up
from profagent.stats.thinned import LATENCY, merged
from profagent.store.columns import narrow
from profagent.store.thinning import LAYERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from profagent.stats.figures import JobRecords, ModelTimes
    from profagent.stats.thinned import ThinnedFigures
    from profagent.store.queries import LayerRow

METADATA_FILE = "metadata.json"
COLUMNS = ("Layer Id", "Layer Name", "Layer Type", "Time(us)")
_NAME = re.compile(
    r"op_summary_\d+\.(?P<model>.+)\.\d+\.(?P<batch>\d+)\.(?:(?P<pictures>\d+)\.(?P<count>\d+)|aggregate)\.(?:\d+\.\d+|NA)"
    r"\.(?:\d+|NA)(?:\.reload(?P<load>\d+))?(?:\.\d+)?\.(?:csv|json)"
)


class LayerName(NamedTuple):
    """A layer, or fused layers joined with `+`; `unit` is the processor that ran it."""

    name: str
    type: str
    unit: str


class ThinnedLayer(NamedTuple):
    """Times of a layer in thinned inferences: the sum of its records, how many there are, and of how many inferences.

    `durations` is None if several records or segments make the layer's time: their sums are not known.
    """

    total: float
    records: int
    inferences: int
    durations: Distribution | None

    def joined(self, other: ThinnedLayer | None) -> ThinnedLayer:
        """Return the times of both."""
        if other is None:
            return self
        both = None
        if self.durations is not None and other.durations is not None:
            both = merged([self.durations, other.durations])
        records, inferences = self.records + other.records, self.inferences + other.inferences
        return ThinnedLayer(self.total + other.total, records, inferences, both)


@dataclass(frozen=True, slots=True)
class ThinnedRun:
    """Inferences of a model that a flight recorder has thinned, with their warm-up.

    `layers` are sums of layers; `by_layer` has the times of each layer by its index.
    """

    inferences: int
    lacking: int
    latencies: Mapping[LatencyFrom, Distribution]
    layers: Distribution
    by_layer: Mapping[int, ThinnedLayer]

    def usual(self) -> Iterator[tuple[int, int]]:
        """Yield the layers that most inferences have, and how many lack its record."""
        for place, each in self.by_layer.items():
            if 2 * each.inferences >= self.inferences > each.inferences:
                yield place, self.inferences - each.inferences

    def among(self, places: Sequence[int]) -> ThinnedRun:
        """Return the run with layers at other indices."""
        return replace(self, by_layer={places[place]: each for place, each in self.by_layer.items()})


@dataclass(frozen=True, slots=True)
class ModelRun:
    """A model's inferences, without those of its warm-up. `thinned` has further ones, None without a flight recorder.

    `times` has the shape (inferences, layers), NaN where an inference has no record of a layer, or fewer than most;
    several records of one layer are summed, and `records` counts them, 0 without any. `latencies` has the known latency
    of each inference, by origin. `pictures` are pairs of batch and input pictures. `counters` has a sample of a layer's
    records, by the layer's index, shape (records, counters).
    """

    name: str
    layers: tuple[LayerName, ...]
    times: NDArray[np.float64]
    records: NDArray[np.integer]
    pictures: frozenset[tuple[int, int]] = frozenset()
    left_out: int = 0
    counters: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)
    bound: Callable[[NDArray[np.float64]], str | None] = bound_by
    latencies: Mapping[LatencyFrom, NDArray[np.float64]] = field(default_factory=dict)
    thinned: ThinnedRun | None = None

    @property
    def inferences(self) -> int:
        """Number of inferences, those that were thinned among them."""
        return len(self.times) + (self.thinned.inferences if self.thinned else 0)

    def latency(self, origin: LatencyFrom) -> NDArray[np.float64]:
        """Return the latency of each inference, NaN where that origin does not give it."""
        return self.latencies.get(origin, np.full(len(self.times), np.nan))

    def lacking(self) -> tuple[int, dict[int, int]]:
        """Return the number of inferences that lack a record that most have, and that number by layer index."""
        lacks = lacks_records(self.records)
        counts, inferences = lacks.sum(axis=0), int(lacks.any(axis=1).sum())
        for place, lacking in self.thinned.usual() if self.thinned else ():
            counts[place] += lacking
        inferences += self.thinned.lacking if self.thinned else 0
        return inferences, {place: int(counts[place]) for place in counts.nonzero()[0].tolist()}

    def known_of(self, origin: LatencyFrom) -> float:
        """Return the share of the inferences whose latency is known from an origin."""
        known = int((~np.isnan(self.latency(origin))).sum())
        if self.thinned and origin in self.thinned.latencies:
            known += self.thinned.latencies[origin].number
        return known / self.inferences if self.inferences else 0.0

    def time(self, places: Sequence[int]) -> float:
        """Return the time of some layers together in the mean inference, as if none lacked a record."""
        times, thinned = self.times[:, [*places]], self.thinned.by_layer if self.thinned else {}
        sums, recorded = np.nansum(times, axis=0), (~np.isnan(times)).sum(axis=0)
        for at, place in enumerate(places):
            if place in thinned:
                sums[at] += thinned[place].total
                recorded[at] += thinned[place].inferences
        return float(time_in_inference(sums, recorded, self.inferences).sum())

    def mean(self, place: int) -> float:
        """Return the mean time of a layer over the inferences that have a record of it; NaN without any."""
        known = self.times[~np.isnan(self.times[:, place]), place]
        total, number = float(known.sum()), len(known)
        if self.thinned and (found := self.thinned.by_layer.get(place)):
            total, number = total + found.total, number + found.inferences
        return total / number if number else float("nan")

    def usual_records(self, place: int) -> float:
        """Return the median number of records of a layer, over inferences that have any."""
        records = self.records[:, place]
        if self.thinned and (found := self.thinned.by_layer.get(place)):
            return float(round(found.records / found.inferences))
        return float(np.median(records[records > 0])) if records.any() else 0.0

    def bound_of(self, place: int) -> str | None:
        """Return the word for what bounds a layer; None if it is not known."""
        found = self.counters.get(place)
        if found is None or not len(found):
            return None
        ratios = found[:, : len(RATIOS)]
        return self.bound(mean_ratios(ratios, np.ones(len(ratios))))


def model_runs(job: JobRecords, skip: int | None) -> list[ModelRun]:
    """Return the models of a JOB, by name and layers; inferences without any record are in none."""
    keeps, left = left_out(job, skip)
    counts = {each.model: each.left_out for each in left}
    # Several models may share a name: the first one carries the number left out of all, so that sums are right.
    return joined_runs([_model_run(job, model, counts.pop(model.name, 0)) for model in job.models(keeps)])


def thinned_run(found: ThinnedFigures) -> ModelRun:
    """Return the inferences that a flight recorder has thinned as a run that has no times of single inferences."""
    by_key: dict[tuple[bool, int, str], list[tuple[Distribution, int]]] = defaultdict(list)
    for column, durations, inferences in found.layers():
        by_key[column.layer < 0, column.layer, column.unit].append((durations, inferences))
    layers = {}
    for place, key in enumerate(sorted(by_key)):
        parts = by_key[key]
        inferences, records = max(number for _, number in parts), sum(each.number for each, _ in parts)
        only = parts[0][0] if records == inferences else None
        layers[place] = ThinnedLayer(sum(each.total for each, _ in parts), records, inferences, only)
    latencies = {origin: found.of(subject) for origin, subject in LATENCY.items() if origin is not None}
    thinned = ThinnedRun(found.all_inferences, found.lacking, latencies, found.of(LAYERS), layers)
    names = tuple(_name_of(found.table.get(layer), unit) for _, layer, unit in sorted(by_key))
    nothing = np.empty((0, len(names)))
    latency = dict.fromkeys(latencies, np.empty(0))
    return ModelRun(found.name, names, nothing, nothing.astype(np.int16), latencies=latency, thinned=thinned)


def joined_runs(runs: list[ModelRun]) -> list[ModelRun]:
    """Return the runs with those of one model joined: the layers of one run are a subsequence of the other's.

    The list is emptied, so that no run is twice in memory.
    """
    found: dict[tuple[str, tuple[LayerName, ...]], list[tuple[ModelRun, list[int]]]] = {}
    run = None
    for number in sorted(range(len(runs)), key=lambda number: -len(runs[number].layers)):
        run = runs[number]
        for (name, layers), parts in found.items():
            places = _places(run.layers, layers) if name == run.name else None
            if places is not None:
                parts.append((run, places))
                break
        else:
            found[run.name, run.layers] = [(run, [*range(len(run.layers))])]
    del run
    runs.clear()
    return [_joined(parts) for parts in found.values()]


def _among(run: ModelRun, layers: tuple[LayerName, ...], places: list[int]) -> ModelRun:
    times = np.full((len(run.times), len(layers)), np.nan)
    times[:, places] = run.times
    records = np.zeros(times.shape, run.records.dtype)
    records[:, places] = run.records
    thinned = run.thinned and run.thinned.among(places)
    counters = _counters_at(run, places)
    return replace(run, layers=layers, times=times, records=records, counters=counters, thinned=thinned)


def _counters_at(run: ModelRun, places: Sequence[int]) -> dict[int, NDArray[np.float64]]:
    return {places[place]: values for place, values in run.counters.items()}


def with_all_layers(runs: Sequence[ModelRun]) -> list[ModelRun]:
    """Return runs of one model, each of which may lack layers, widened to the layers of all."""
    merged: list[LayerName] = []
    for run in sorted(runs, key=lambda run: -len(run.layers)):
        if _places(run.layers, tuple(merged)) is None:
            behind = 0
            for layer in run.layers:
                if layer in merged[behind:]:
                    behind = merged.index(layer, behind) + 1
                else:
                    merged.insert(behind, layer)
                    behind += 1
    layers = tuple(merged)
    return [_among(run, layers, places) for run in runs if (places := _places(run.layers, layers)) is not None]


def on_unit(run: ModelRun, unit: str) -> ModelRun:
    """Return the run without the layers of other units."""
    places = [place for place, layer in enumerate(run.layers) if layer.unit == unit]
    counters = {to: run.counters[place] for to, place in enumerate(places) if place in run.counters}
    layers = tuple(run.layers[place] for place in places)
    found = replace(run, layers=layers, times=run.times[:, places], records=run.records[:, places], counters=counters)
    if run.thinned is None:
        return found
    # Sums of the layers of one unit are in no histogram.
    by_layer = {to: run.thinned.by_layer[place] for to, place in enumerate(places) if place in run.thinned.by_layer}
    is_all = len(by_layer) == len(run.thinned.by_layer)
    of_unit = run.thinned.layers if is_all else Distribution()
    return replace(found, thinned=replace(run.thinned, by_layer=by_layer, layers=of_unit))


def _places(some: tuple[LayerName, ...], layers: tuple[LayerName, ...]) -> list[int] | None:
    places: list[int] = []
    for layer in some:
        try:
            places.append(layers.index(layer, places[-1] + 1 if places else 0))
        except ValueError:
            return None
    return places


def _joined(parts: list[tuple[ModelRun, list[int]]]) -> ModelRun:
    """Return several runs as one with the layers of the first, each at the indices of its layers.

    `parts` is emptied.
    """
    first = replace(parts[0][0], times=np.empty((0, 0)), records=np.empty((0, 0), np.int16))
    shape = (sum(len(part.times) for part, _ in parts), len(first.layers))
    kind = max((part.records.dtype for part, _ in parts), key=lambda dtype: dtype.itemsize)
    times, records = np.empty(shape), np.zeros(shape, kind)
    latencies: dict[LatencyFrom, list[NDArray[np.float64]]] = {origin: [] for origin in LatencyFrom}
    pictures, skipped = frozenset[tuple[int, int]](), 0
    counters: dict[int, list[NDArray[np.float64]]] = defaultdict(list)
    thinned = _joined_thinned([part.thinned.among(places) for part, places in parts if part.thinned])
    end = 0
    while parts:
        part, places = parts.pop(0)
        begin, end = end, end + len(part.times)
        times[begin:end, places], records[begin:end, places] = part.times, part.records
        times[begin:end, sorted({*range(shape[1])}.difference(places))] = np.nan
        for place, values in _counters_at(part, places).items():
            counters[place].append(values)
        for origin, of_parts in latencies.items():
            of_parts.append(part.latency(origin))
        pictures, skipped = pictures | part.pictures, skipped + part.left_out
    times[lacks_records(records)] = np.nan
    return replace(
        first,
        times=times,
        records=records,
        latencies={origin: np.concatenate(of_parts) for origin, of_parts in latencies.items()},
        pictures=pictures,
        left_out=skipped,
        counters={place: np.concatenate(values) for place, values in counters.items()},
        thinned=thinned,
    )


def _joined_thinned(runs: Sequence[ThinnedRun]) -> ThinnedRun | None:
    if not runs:
        return None
    by_layer: dict[int, ThinnedLayer] = {}
    for place, each in (item for run in runs for item in run.by_layer.items()):
        by_layer[place] = each.joined(by_layer.get(place))
    latencies = {
        origin: merged([run.latencies[origin] for run in runs]) or Distribution() for origin in runs[0].latencies
    }
    inferences, lacking = (sum(getattr(run, name) for run in runs) for name in ("inferences", "lacking"))
    return ThinnedRun(inferences, lacking, latencies, merged([run.layers for run in runs]) or Distribution(), by_layer)


def _model_run(job: JobRecords, model: ModelTimes, left_out: int) -> ModelRun:
    places: dict[tuple[bool, int, str], list[int]] = defaultdict(list)
    for place, column in enumerate(model.columns):
        places[column.layer < 0, column.layer, column.unit].append(place)
    keys = sorted(places)
    return ModelRun(
        model.name,
        tuple(_name_of(model.table.get(layer), unit) for _, layer, unit in keys),
        np.stack([sum_where_known(model.times[:, places[key]]) for key in keys], axis=1),
        narrow(np.stack([model.records[:, places[key]].sum(axis=1) for key in keys], axis=1)),
        model.pictures,
        left_out,
        _counters(job, model.places, {key[1]: place for place, key in enumerate(keys) if key[2] == UNITS[0]}),
        job.bound,
        {LatencyFrom.CALL: model.calls.us, LatencyFrom.RECORDS: model.whole.us},
    )


def sum_where_known(times: NDArray[np.float64], *, is_completed: bool = False) -> NDArray[np.float64]:
    """Return the sum of each row of times, NaN for a row without any.

    `is_completed`: missing times are filled in first, as by `completed`.
    """
    total, is_unknown = np.zeros(len(times)), np.ones(len(times), np.bool_)
    # One column at a time: a copy of the times of many inferences would need much memory.
    for place in range(times.shape[1]):
        column = times[:, place : place + 1]
        is_unknown &= np.isnan(column[:, 0])
        total += completed(column)[:, 0] if is_completed else np.nan_to_num(column[:, 0], nan=0.0)
    return np.where(is_unknown, np.nan, total)


def _name_of(layer: LayerRow | None, unit: str) -> LayerName:
    """Return the name of a layer with its unit; `layer` is None if the model's table has no such layer.

    Another tool's results name the AI CPU in the type: it moves to the unit, so that the layer matches a board's.
    """
    if layer is None:
        return LayerName(UNKNOWN, UNKNOWN, unit)
    if is_on_ai_cpu(layer.type):
        return LayerName(layer.name, layer.type.removesuffix(f" ({AI_CPU})"), UNITS[1])
    return LayerName(layer.name, layer.type, unit)


def _counters(
    job: JobRecords, inferences: NDArray[np.int64], places: Mapping[int, int]
) -> dict[int, NDArray[np.float64]]:
    if job.counters is None:
        return {}
    records, values = job.counters
    is_wanted = np.isin(records.inference, inferences)
    return {place: values[is_wanted & (records.layer == layer)] for layer, place in places.items()}


def exported_files(path: Path) -> list[Path]:
    """Return the tables at a path: a file, or all of a folder; empty for a folder without any, such as a JOB."""
    if path.is_file():
        return [path]
    return sorted(file for file in path.glob("op_summary_*") if file.suffix in (".csv", ".json"))


def read_exported(files: Sequence[Path], skip: int | None) -> tuple[list[ModelRun], list[dict[str, Any]]]:
    """Return the inferences of the tables, and the provenance that the metadata beside them gives.

    Inferences are in the order of their picture counts, without `skip` of each load, or its warm-up. Raises UsageError
    for a file that is no such table, or has no times.
    """
    loads: dict[tuple[Path, str, int], list[tuple[int, ModelRun]]] = defaultdict(list)
    for file in files:
        named = _NAME.fullmatch(file.name)
        # A file whose name does not follow the pattern is a load by itself.
        load = (file.parent, file.name[: named.end("batch")], int(named["load"] or 0)) if named else (file, "", 0)
        loads[load].append((int(named["count"] or 0) if named else 0, _inference(file, named)))
    runs: list[ModelRun] = []
    for _, found in sorted(loads.items()):
        load_runs = with_all_layers([run for _, run in sorted(found, key=lambda each: each[0])])
        sums = completed(np.concatenate([run.times for run in load_runs])).sum(axis=1)
        first = warm_up(sums) if skip is None else skip
        runs += [replace(run, left_out=0 if place else first) for place, run in enumerate(load_runs[first:])]
    metadata = [_metadata(folder) for folder in dict.fromkeys(file.parent for file in files)]
    return runs, [found for found in metadata if found is not None]


def _inference(file: Path, named: re.Match[str] | None) -> ModelRun:
    times: dict[tuple[str, str, str], float] = {}
    records: dict[tuple[str, str, str], int] = defaultdict(int)
    for row in _rows(file):
        layer, name, kind, time_us = (str(row.get(column)) for column in COLUMNS)
        if layer == "-":
            continue
        try:
            times[layer, name, kind] = times.get((layer, name, kind), 0.0) + float(time_us)
            records[layer, name, kind] += 1
        except ValueError as error:
            hint = "export it from a JOB with info.json, and as CSV or JSON"
            raise UsageError(f"{file} has {time_us!r} for the time of layer {name}", hint=hint) from error
    if not times:
        raise UsageError(f"{file} is not an op_summary table", hint=f"it needs the columns {', '.join(COLUMNS)}")
    pictures = frozenset({(int(named["batch"]), int(named["pictures"]))} if named and named["pictures"] else ())
    layers = tuple(LayerName(name, kind, UNITS[0]) for _, name, kind in times)
    counts = np.array([[records[key] for key in times]])
    return ModelRun(named["model"] if named else file.stem, layers, np.array([list(times.values())]), counts, pictures)


def _rows(file: Path) -> list[dict[str, Any]]:
    hint = f"name an op_summary table, as CSV or JSON, with the columns {', '.join(COLUMNS)}"
    try:
        # The vendor's tool and spreadsheets write a byte order mark.
        text = file.read_text("utf-8-sig")
        rows = json.loads(text) if file.suffix == ".json" else _csv_rows(text)
    except (OSError, ValueError, csv.Error) as error:
        raise UsageError(f"cannot read {file}: {error}", hint=hint) from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) and row.keys() >= set(COLUMNS) for row in rows):
        raise UsageError(f"{file} is not an op_summary table", hint=hint)
    return rows


def _csv_rows(text: str) -> list[dict[str, Any]]:
    header, *rows = csv.reader(StringIO(text, newline="")) if text else ([],)
    return [dict(zip(header, map(text_of, row), strict=False)) for row in rows if row]


def _metadata(folder: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((folder / METADATA_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and {"simulated", "ledger", "sampling"} <= found.keys() else None
