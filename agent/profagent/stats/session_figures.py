"""The figures of a session's inferences by layer, type, model, device and segment, from one pass over its records."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np

from profagent.formats.countermap import RATIOS, bound_by, mean_ratios
from profagent.formats.inference_times import (
    NOT_IN_ANY_LAYER,
    InferencePace,
    LatencyFrom,
    Parts,
    Spans,
    joined_spans,
    pace_of,
    time_in_inference,
)
from profagent.formats.records import is_on_ai_cpu
from profagent.stats.figures import UNITS, UNKNOWN, DurationFigures, LayerColumn, LeftOut, left_out
from profagent.stats.thinned import LATENCY, REST, figures_with, latency_with, merged, whole_pace
from profagent.store.thinning import LAYERS, WHOLE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from profagent.formats.durations import Distribution
    from profagent.formats.inference_times import Latency
    from profagent.stats.figures import CounterSample, JobRecords, ModelTimes
    from profagent.stats.thinned import ThinnedFigures
    from profagent.store.columns import RecordTable
    from profagent.store.queries import LayerRow

K = TypeVar("K")
By = Literal["layer", "type", "model", "device", "segment", "aicpu"]
StatsBy = By | Literal["api", "step", "frame"]
Key = tuple[str, ...]
Unit = Literal["us", "ticks"]
# Stands for a layer's type or unit in rows that belong to no layer.
NONE = "-"
# The parts of a row's key, for each grouping.
KEYS: dict[str, tuple[str, ...]] = {
    "layer": ("model", "layer", "type", "unit"),
    "type": ("model", "type", "unit"),
    "model": ("model",),
    "device": ("model", "device"),
    "segment": ("model", "segment", "unit"),
    "aicpu": ("model", "layer", "type"),
    "api": ("function", "type"),
    "step": ("step", "range"),
    "frame": ("part", "kind"),
}
# Groupings whose rows count inferences: their figures are of latencies.
OF_WHOLE_INFERENCES = ("model", "device")
SMALL_CODES = 1 << 16


def split(codes: NDArray[np.int64], values: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield each code with its values: codes ascending, values in their order; codes must not be negative."""
    if not len(codes):
        return
    # numpy sorts 16-bit integers with a radix sort, which takes a tenth of the time.
    order = np.argsort(codes.astype(np.uint16) if codes.max() < SMALL_CODES else codes, kind="stable")
    ordered = codes[order]
    starts = np.append(0, (ordered[1:] != ordered[:-1]).nonzero()[0] + 1)
    yield from zip(ordered[starts].tolist(), np.split(values[order], starts[1:]), strict=True)


class RecordCodes:
    """Numbers for records that stand for their model, device, net and layer, so that numpy can group by them."""

    def __init__(self, job: JobRecords, records: RecordTable, *, with_net: bool = False) -> None:
        self._job = job
        named = sorted({(each.model, each.device_id): each.model_name for each in job.inferences}.items())
        self._models = [(model, device, name) for (model, device), name in named]
        places = {key[:2]: place for place, key in enumerate(self._models)}
        models = np.array([places[each.model, each.device_id] for each in job.inferences], np.int64)
        self._width = int(records.layer.max(initial=-1)) + 2
        self._height = int(records.net.max(initial=-1)) + 1 if with_net else 1
        net = records.net if with_net else 0
        self.codes: NDArray[np.int64] = (
            (models[records.inference] * self._height + net) * self._width + records.layer + 1
        )

    def of(self, code: int, unit: str) -> Coding:
        """Return the meaning of a code for records of a unit; the net is 0 if codes have none."""
        rest, layer = divmod(code, self._width)
        place, net = divmod(rest, self._height)
        model, device, name = self._models[place]
        return Coding(name, str(device), LayerColumn(unit, net, layer - 1), self._job.layers[model].get(layer - 1))


class Coding(NamedTuple):
    """The model, device, unit, net and layer of records; `layer` is None if the model's table has no such layer."""

    model: str
    device: str
    column: LayerColumn
    layer: LayerRow | None

    def key(self, by: By) -> Key:
        """Return the key of the row that the records belong to."""
        name, kind = (UNKNOWN, UNKNOWN) if self.layer is None else (self.layer.name, self.layer.type)
        # Another tool's results say only in the type that a layer ran on the CPU.
        unit = UNITS[1] if is_on_ai_cpu(kind) else self.column.unit
        match by:
            case "model":
                return (self.model,)
            case "device":
                return (self.model, self.device)
            case "segment":
                return (self.model, str(self.column.net), self.column.unit)
            case "type":
                return (self.model, kind, unit)
            case "aicpu":
                return (self.model, name, kind)
        return (self.model, name, kind, unit)


class ModelFigures(NamedTuple):
    """The latency and the sum of layers of a model's inferences, and their pace.

    `latency` is in µs, of the inferences whose latency is known; `layers`, the sum of an inference's layers, of all of
    them, in µs or in ticks of the NPU. `recorded` of the layers in the model's table (`of_layers`; both None without
    one) have a record in at least one inference; `lacking` inferences lack the record of a layer that most have.
    `gap_us` is the time between an inference and the next. `device` is set if the figures are of that device only, else
    they are of all `devices`.
    """

    model: str
    inferences: int
    latency: DurationFigures
    latency_from: LatencyFrom | None
    per_second: float | None
    gap_us: float | None
    layers: DurationFigures
    layers_unit: Unit
    recorded: int | None
    of_layers: int | None
    lacking: int
    device: str | None = None
    devices: int = 1

    @property
    def key(self) -> Key:
        """The key of the row that has these figures, where rows are inferences."""
        return (self.model,) if self.device is None else (self.model, self.device)

    @property
    def name(self) -> str:
        """The name of the model, with its device if the figures are of one device."""
        return self.model if self.device is None else f"{self.model}, device {self.device}"

    @property
    def parts(self) -> Parts:
        """The parts of the mean inference."""
        latency_us = self.latency.mean if self.layers_unit == "us" else None
        return Parts(self.layers.mean or 0.0, latency_us)


class _JobTimes(NamedTuple):
    """The times of a model's inferences in one JOB, as in `ModelTimes`."""

    whole: Spans
    calls: Spans
    loads: NDArray[np.int64]
    ran_before: NDArray[np.float64]


class ModelInferences(NamedTuple):
    """Times of a model's inferences: latency, span of the records, and sum of layers.

    `times` has the shape (inferences, 3), NaN where a time is not known; `latency` and `whole` are those of inferences
    that a flight recorder has thinned, None without any.
    """

    model: str
    times: NDArray[np.float64]
    latency: Distribution | None
    whole: Distribution | None


class _ReducedModel:
    """A model's inferences of several JOBs, or those on one device, reduced to times so that records can be freed."""

    def __init__(self, key: Key) -> None:
        self._key = key
        # The times of each JOB, and the sum of layers of its inferences, in the same order.
        self._jobs: list[_JobTimes] = []
        self._layers: list[NDArray[np.float64]] = []
        # The largest number of layers in any JOB (recorded, in the table), and the inferences that lack a record.
        self._recorded, self._of_layers, self._lacking = 0, 0, 0
        # All devices on which any of the inferences ran.
        self._devices: set[int] = set()
        # Inferences that a flight recorder has thinned.
        self._thinned: list[ThinnedFigures] = []
        # Of each column over all inferences: its time with missing records filled in, without them, and its inferences.
        self._sums: dict[tuple[LayerColumn, LayerRow | None], NDArray[np.float64]] = defaultdict(lambda: np.zeros(3))

    def add(self, model: ModelTimes, devices: Collection[int]) -> None:
        """Add the inferences of a JOB, which ran on these devices."""
        self._devices.update(devices)
        self._jobs.append(_JobTimes(model.whole, model.calls, model.loads, model.ran_before))
        self._layers.append(model.completed.sum(axis=1))
        self._recorded = max(self._recorded, len({column.layer for column in model.columns if column.layer >= 0}))
        self._of_layers = max(self._of_layers, len(model.table))
        self._lacking += int((np.isnan(model.times) & (model.completed > 0)).any(axis=1).sum())
        recorded = (~np.isnan(model.times)).sum(axis=0)
        sums = np.stack([model.completed.sum(axis=0), np.nansum(model.times, axis=0), recorded], axis=1)
        for column, of_column in zip(model.columns, sums, strict=True):
            self._sums[column, model.table.get(column.layer)] += of_column

    def add_thinned(self, thinned: ThinnedFigures) -> None:
        """Add inferences that a flight recorder has thinned."""
        self._devices.add(thinned.device)
        self._thinned.append(thinned)
        layers = [*thinned.layers()]
        self._recorded = max(self._recorded, len({column.layer for column, *_ in layers if column.layer >= 0}))
        self._of_layers = max(self._of_layers, len(thinned.table))
        self._lacking += thinned.lacking
        for column, found, recorded in layers:
            self._sums[column, thinned.table.get(column.layer)] += (0.0, found.total, recorded)

    def _thinned_of(self, subject: str) -> Distribution | None:
        return merged([each.of(subject) for each in self._thinned])

    @property
    def _inferences(self) -> int:
        return sum(map(len, self._layers)) + sum(each.all_inferences for each in self._thinned)

    def _latency(self) -> Latency:
        whole, calls = (
            joined_spans([getattr(job, name) for job in self._jobs] or [Spans(*np.empty((2, 0)))])
            for name in ("whole", "calls")
        )
        return latency_with(whole, calls, self._thinned)

    def figures(self, unit: Unit) -> ModelFigures:
        """Return the figures of all inferences that were added; `unit` is the unit of the layers."""
        latency, layers = self._latency(), np.concatenate([np.empty(0), *self._layers])
        known = latency.us[~np.isnan(latency.us)]
        pace = pace_of(
            ((job.calls if latency.origin is LatencyFrom.CALL else job.whole).at(found), job.ran_before[found])
            for job in self._jobs
            for _, found in split(job.loads, np.arange(len(job.loads)))
        )
        return ModelFigures(
            self._key[0],
            self._inferences,
            figures_with(known, self._thinned_of(LATENCY[latency.origin])),
            latency.origin,
            *(self._pace_with_thinned() if self._thinned else pace),
            self._sum_of_layers(layers.copy()),
            unit,
            self._recorded if self._of_layers else None,
            self._of_layers or None,
            self._lacking,
            self._key[1] if len(self._key) > 1 else None,
            len(self._devices),
        )

    def _sum_of_layers(self, layers: NDArray[np.float64]) -> DurationFigures:
        return self.exact(figures_with(layers, self._thinned_of(LAYERS)), sum(self.columns().values()))

    def _pace_with_thinned(self) -> InferencePace:
        """Return the pace from the first to the last inference; the gaps between thinned ones are not known."""
        loads = [
            (job.whole.begin_us[found], job.ran_before[found])
            for job in self._jobs
            for _, found in split(job.loads, np.arange(len(job.loads)))
        ]
        found = whole_pace(loads, self._thinned)
        return InferencePace(None if found is None else found.steps / found.us * 1e6, None)

    def times(self) -> ModelInferences:
        """Return the times of each inference, and those that were thinned."""
        none, latency = Spans(*np.empty((2, 0))), self._latency()
        whole = joined_spans([none, *(job.whole for job in self._jobs)])
        times = np.stack([latency.us, whole.us, np.concatenate([np.empty(0), *self._layers])], axis=1)
        of_latency, of_whole = (self._thinned_of(subject) for subject in (LATENCY[latency.origin], WHOLE))
        return ModelInferences(self._key[0], times, of_latency, of_whole)

    def times_in_inference(self, by: By) -> dict[Key, float]:
        """Return the time that the mean inference spends on each row's layers."""
        sums: dict[Key, float] = defaultdict(float)
        for (column, layer), time in self.columns().items():
            if by != "aicpu" or column.unit == UNITS[1]:
                sums[Coding(self._key[0], "", column, layer).key(by)] += time
        return sums

    def columns(self) -> dict[tuple[LayerColumn, LayerRow | None], float]:
        """Return the time that the mean inference spends on each of the model's columns."""
        if not self._sums:
            return {}
        filled, sums, recorded = np.array([*self._sums.values()]).T
        kept, thinned = sum(map(len, self._layers)), sum(each.of(LAYERS).number for each in self._thinned)
        times = time_in_inference(sums, recorded.astype(np.int64), kept + thinned) if thinned else filled / kept
        return dict(zip(self._sums, times.tolist(), strict=True))

    def rest(self, figures: ModelFigures) -> DurationFigures:
        """Return the figures of the time that no layer explains, in inferences whose latency is known."""
        latency = self._latency()
        rest = latency.us - np.concatenate([np.empty(0), *self._layers])
        found = figures_with(rest[~np.isnan(rest)], self._thinned_of(REST[latency.origin]))
        return self.exact(found, figures.parts.rest_us)

    def exact(self, found: DurationFigures, mean: float | None) -> DurationFigures:
        """Return the figures of a time of all inferences with its mean, which that of thinned sums is close to.

        Each thinned sum has for a missing record the mean of the layer as it was known then.
        """
        if not self._thinned or mean is None or found.number != self._inferences:
            return found
        return found._replace(mean=mean, total=mean * found.number)


class Row(NamedTuple):
    """The figures of one layer, type, model, device, segment, function or step, or of a part of frames.

    `in_inference` is its time in the mean inference of its model, `share` that time in % of the inference. Rows that
    belong to no inference have None, and their share is of the total of all rows. `own`, of the runtime's functions
    only, is the total without nested calls; the share is then of all rows' own time.
    """

    key: Key
    figures: DurationFigures
    share: float | None
    bound: str | None
    in_inference: float | None = None
    own: float | None = None


class SessionFigures:
    """Figures of several JOBs together, grouped by each of `bys`; the records of a JOB are freed after `add`.

    `skip` is as in `stats`. Unless `in_us`, times of the NPU are in ticks, and those of the CPU are kept apart.
    """

    def __init__(self, bys: frozenset[StatsBy], skip: int | None = None, *, in_us: bool = True) -> None:
        self.in_us = in_us
        self._bys, self._skip = bys, skip
        # By unit: the coding of records, their durations, and the length of a tick in µs.
        self._durations: dict[str, list[tuple[Coding, NDArray[Any], float]]] = {unit: [] for unit in UNITS}
        # The time of each segment in each inference, an array for each JOB.
        self._sums: dict[Key, list[NDArray[np.float64]]] = defaultdict(list)
        # The distributions of thinned inferences, by layer and by segment.
        self._thinned: list[tuple[Coding, Distribution]] = []
        self._thinned_sums: dict[Key, list[Distribution]] = defaultdict(list)
        # The coding of records with counters, their ratios, and their durations as weights.
        self._counters: list[tuple[Coding, NDArray[np.float64], NDArray[Any]]] = []
        # By grouping and key: JOBs are added one after the other, so that only one has its records in memory.
        self._models: dict[By, dict[Key, _ReducedModel]] = {"model": {}, "device": {}, "aicpu": {}}
        # By model: the number of its inferences, and how many of them are left out.
        self._left_out: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        # The rule of the last JOB holds for all: the JOBs of a session come from one kind of device.
        self._bound: Callable[[NDArray[np.float64]], str | None] = bound_by

    def unit(self, by: By) -> Unit:
        """Return the unit of layers' times."""
        return "us" if self.in_us or by == "aicpu" else "ticks"

    def add(self, job: JobRecords) -> None:
        """Add a JOB without its warm-up."""
        self._bound = job.bound
        keeps, found = left_out(job, self._skip)
        for model, inferences, number in found:
            self._left_out[model][0] += inferences
            self._left_out[model][1] += number
        models = job.models(keeps)
        for times in models:
            self._add_model("model", (times.name,), job, times)
            for device, places in _by_device(job, times) if "device" in self._bys else ():
                self._add_model("device", (times.name, str(device)), job, times.at(places))
        if "aicpu" in self._bys and not self.in_us:
            for times in job.models(keeps, is_of_cpu=True):
                self._add_model("aicpu", (times.name,), job, times)
        if "segment" in self._bys:
            self._add_segments(models)
        if not self._bys.isdisjoint(("layer", "type", "aicpu")):
            self._add_durations(job, keeps)
        if job.counters is not None:
            self._add_counters(job, job.counters, keeps)

    def add_thinned(self, thinned: ThinnedFigures) -> None:
        """Add inferences that a flight recorder has thinned: their times are in µs, and so none is added to ticks."""
        thinned = thinned if self.in_us else thinned.without_layers()
        keys: dict[By, Key] = {"model": (thinned.name,), "device": (thinned.name, str(thinned.device))}
        for by, key in keys.items():
            self._models[by].setdefault(key, _ReducedModel(key)).add_thinned(thinned)
        self._left_out[thinned.name][0] += thinned.all_inferences
        self._thinned += [
            (Coding(thinned.name, str(thinned.device), column, thinned.table.get(column.layer)), found)
            for column, found, _ in thinned.layers()
        ]
        for column, found in thinned.segments():
            self._thinned_sums[Coding(thinned.name, "", column, None).key("segment")].append(found)

    def _add_model(self, of: By, key: Key, job: JobRecords, times: ModelTimes) -> None:
        devices = {job.inferences[place].device_id for place in times.places.tolist()}
        self._models[of].setdefault(key, _ReducedModel(key)).add(times, devices)

    def _add_segments(self, models: Sequence[ModelTimes]) -> None:
        for model in models:
            places: dict[Key, list[int]] = defaultdict(list)
            for place, column in enumerate(model.columns):
                places[Coding(model.name, "", column, None).key("segment")].append(place)
            for key, found in places.items():
                is_known = ~np.isnan(model.times[:, found]).all(axis=1)
                self._sums[key].append(model.completed[:, found].sum(axis=1)[is_known])

    def _add_durations(self, job: JobRecords, keeps: NDArray[np.bool_]) -> None:
        units = job.units() if self.in_us else (*job.units(), *job.units(is_of_cpu=True))
        for unit, records, us in units:
            coded, counted = RecordCodes(job, records), keeps[records.inference]
            for code, durations in split(coded.codes[counted], records.duration[counted]):
                self._durations[unit].append((coded.of(code, unit), durations, us))

    def _add_counters(self, job: JobRecords, counters: CounterSample, keeps: NDArray[np.bool_]) -> None:
        records = counters.records
        coded, duration = RecordCodes(job, records, with_net=True), records.duration
        (places,) = keeps[records.inference].nonzero()
        for code, found in split(coded.codes[places], places):
            self._counters.append((coded.of(code, UNITS[0]), counters.values[found, : len(RATIOS)], duration[found]))

    def inference_times(self) -> Iterator[ModelInferences]:
        """Yield the times of each model's inferences."""
        for model in self._models["model"].values():
            yield model.times()

    def columns(self) -> Iterator[tuple[Coding, float]]:
        """Yield the time that the mean inference of each model spends on each layer of a net."""
        for (name, *_), model in self._models["model"].items():
            for (column, layer), time in model.columns().items():
                yield Coding(name, "", column, layer), time

    def durations(self, by: By) -> dict[Key, list[tuple[NDArray[Any], float]]]:
        """Return the durations of each row's records in parts, each with the length of its tick in µs."""
        found: dict[Key, list[tuple[NDArray[Any], float]]] = defaultdict(list)
        for unit in UNITS[1:] if by == "aicpu" else UNITS if self.in_us else UNITS[:1]:
            for coding, durations, us in self._durations[unit]:
                found[coding.key(by)].append((durations, us))
        return found

    def thinned(self, by: By) -> dict[Key, Distribution]:
        """Return the durations of each row's records that a flight recorder has thinned."""
        found: dict[Key, list[Distribution]] = defaultdict(list)
        for coding, distribution in self._thinned:
            if by != "aicpu" or coding.column.unit == UNITS[1]:
                found[coding.key(by)].append(distribution)
        return {key: whole for key, each in found.items() if (whole := merged(each)) is not None}

    def longest(self, by: By, most: int) -> dict[Key, tuple[NDArray[np.float64], Distribution | None]]:
        """Return `durations` in µs and `thinned` of the `most` rows that take the most time, the longest first."""
        durations = {key: joined_us(parts) for key, parts in self.durations(by).items()}
        thinned = self.thinned(by)
        totals = {key: each.total for key, each in thinned.items()}
        totals |= {key: float(each.sum()) + totals.get(key, 0.0) for key, each in durations.items()}
        keys = sorted(totals, key=lambda key: -totals[key])[:most]
        return {key: (durations.get(key, np.empty(0)), thinned.get(key)) for key in keys}

    def ratios(self, key_of: Callable[[Coding], K]) -> dict[K, NDArray[np.float64]]:
        """Return the mean ratios of the records that have counters, weighted by time, grouped by `key_of`."""
        found: dict[K, list[tuple[NDArray[np.float64], NDArray[Any]]]] = defaultdict(list)
        for coding, ratios, ticks in self._counters:
            found[key_of(coding)].append((ratios, ticks))
        return {
            key: mean_ratios(*(np.concatenate(column) for column in zip(*parts, strict=True)))
            for key, parts in found.items()
        }

    def bound_of(self, ratios: NDArray[np.float64]) -> str | None:
        """Return the word for what bounds a layer with these mean ratios."""
        return self._bound(ratios)

    def models(self, by: By = "model") -> list[ModelFigures]:
        """Return the figures of each model, or of each on each device, the longest total time first."""
        found = [model.figures(self.unit(by)) for model in self._models_by(by).values()]
        return sorted(found, key=lambda each: (-(each.latency.total or 0.0), -(each.layers.total or 0.0), each.key))

    def _models_by(self, by: By) -> dict[Key, _ReducedModel]:
        is_apart = by == "device" or (by == "aicpu" and not self.in_us)
        return self._models[by if is_apart else "model"]

    def rows(self, by: By) -> list[Row]:
        """Return a row for each key, the longest time in an inference first, then the rest of each model's latency."""
        # Counters are the NPU's: layers of the CPU have no bound.
        bounds = {} if by == "aicpu" else {key: self._bound(ratios) for key, ratios in self._ratios_by(by).items()}
        models = self.models(by)
        if by in OF_WHOLE_INFERENCES:
            return [Row(each.key, each.latency, None, bounds.get(each.key)) for each in models]
        rows, rests = [], []
        figures = self._figures(by)
        for each in models:
            parts, model = each.parts, self._models_by(by)[each.key]
            for key, time in model.times_in_inference(by).items():
                of_row = model.exact(figures[key], time) if by == "segment" else figures[key]
                rows.append(Row(key, of_row, parts.share(time), bounds.get(key), time))
            if parts.rest_us is not None and by != "aicpu":
                # The row of what no layer explains has as many parts in its key as the other rows.
                key = (each.model, NOT_IN_ANY_LAYER, *[NONE] * (len(KEYS[by]) - 2))
                rests.append(Row(key, model.rest(each), parts.share(parts.rest_us), None, parts.rest_us))
        return [*sorted(rows, key=lambda row: (-(row.in_inference or 0.0), row.key)), *rests]

    def _ratios_by(self, by: By) -> dict[Key, NDArray[np.float64]]:
        return self.ratios(lambda coding: coding.key(by))

    def _figures(self, by: By) -> dict[Key, DurationFigures]:
        if by == "segment":
            parts = {key: np.concatenate(each) for key, each in self._sums.items()}
            thinned = {key: found for key, each in self._thinned_sums.items() if (found := merged(each)) is not None}
        else:
            parts, thinned = {key: joined_us(each) for key, each in self.durations(by).items()}, self.thinned(by)
        return {key: figures_with(parts.get(key, np.empty(0)), thinned.get(key)) for key in {**parts, **thinned}}

    def left_out(self) -> list[LeftOut]:
        """Return the number of inferences left out of each model, over all JOBs."""
        return [LeftOut(model, *sums) for model, sums in self._left_out.items()]


def joined_us(parts: Sequence[tuple[NDArray[Any], float]]) -> NDArray[np.float64]:
    """Return the durations of several parts in µs; each part comes with the length of its tick in µs."""
    found = np.empty(sum(len(durations) for durations, _ in parts))
    end = 0
    for durations, us in parts:
        begin, end = end, end + len(durations)
        np.multiply(durations, us, out=found[begin:end])
    return found


def _by_device(job: JobRecords, times: ModelTimes) -> Iterator[tuple[int, NDArray[np.int64]]]:
    devices = np.array([job.inferences[place].device_id for place in times.places.tolist()], np.int64)
    for device in np.unique(devices).tolist():
        yield device, (devices == device).nonzero()[0]
