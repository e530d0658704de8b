"""Figures of durations, and the inferences of a JOB's models as columns without their warm-up; pure functions."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.errors import UsageError
from profagent.formats.inference_times import completed, lacks_records, latency_of, layer_times, record_counts
from profagent.limits import LARGEST_COUNTED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from profagent.formats.inference_times import Spans
    from profagent.store.columns import RecordTable
    from profagent.store.queries import LayerRow

UNKNOWN = "N/A"
UNITS = ("AA_CORE", "AA_CPU")
# The standard deviation of normally distributed values is this factor times their MAD.
MAD_TO_SIGMA = 1.4826
# Fewer inferences do not show which times are usual, so none of them counts as warm-up.
FEWEST_INFERENCES = 10
# Warm-up is slower than the median of the later half by this many standard deviations, and by this share of it.
NOISE_FACTOR = 4.0
WARM_UP_FLOOR = 0.02
WARM_UP_DIVISOR = 4


class DurationFigures(NamedTuple):
    """Figures of durations in their own unit, None without a duration; `mad` is not scaled to a standard deviation."""

    number: int
    total: float | None
    mean: float | None
    median: float | None
    mad: float | None
    p95: float | None
    p99: float | None
    max: float | None


def figures_of(durations: NDArray[np.float64], count: int | None = None) -> DurationFigures:
    """Return the figures of durations; `count` is the number of events if some of them have no duration."""
    return figures_in_place(durations.copy(), count)


def figures_in_place(durations: NDArray[np.float64], count: int | None = None) -> DurationFigures:
    """Return the figures of durations as `figures_of`, but overwrite the durations, which saves a copy of them."""
    number = len(durations) if count is None else count
    if not len(durations):
        return DurationFigures(number, None, None, None, None, None, None, None)
    total = float(durations.sum())
    mean = total / len(durations)
    # Between two values it is linear, as numpy's quantile is unless it is told otherwise.
    quantiles = np.quantile(durations, (0.5, 0.95, 0.99, 1.0), overwrite_input=True)
    median, p95, p99, most = (float(value) for value in quantiles)
    durations -= median
    np.abs(durations, out=durations)
    spread = float(np.median(durations, overwrite_input=True))
    return DurationFigures(number, total, mean, median, spread, p95, p99, most)


def mad(values: NDArray[np.float64]) -> float:
    """Return the median absolute deviation from the median, not scaled."""
    return float(np.median(np.abs(values - np.median(values))))


def warm_up(times: NDArray[np.float64]) -> int:
    """Return the number of a load's first inferences that are warm-up, at most a quarter of them.

    `times` are in the order in which the inferences ran.
    """
    if len(times) < FEWEST_INFERENCES:
        return 0
    rest = times[len(times) // 2 :]
    usual = float(np.median(rest))
    limit = usual + max(NOISE_FACTOR * MAD_TO_SIGMA * mad(rest), WARM_UP_FLOOR * usual)
    leading = times[: len(times) // WARM_UP_DIVISOR] > limit
    return len(leading) if leading.all() else int(leading.argmin())


class LayerColumn(NamedTuple):
    """A layer of a model (-1: not in the model's table) in one segment on one unit."""

    unit: str
    net: int
    layer: int


@dataclass(frozen=True, slots=True)
class ModelTimes:
    """Inferences of one model that have records, in the order in which they ran.

    `times` has a row for each inference and a column for each of `columns`, in µs or in ticks of the NPU, NaN without a
    record or with fewer records than most inferences have; `records` counts them. In `completed` estimates replace the
    records that the runtime dropped; `whole` is unknown for inferences that lack a record with which others begin or
    end. `places` index the JOB's list of inferences. `table` has the model's layers, `loads` the load of each
    inference, `ran_before` the number of inferences that the model had executed before it; `pictures` are pairs of
    batch and pictures.
    """

    name: str
    places: NDArray[np.int64]
    table: Mapping[int, LayerRow]
    columns: Sequence[LayerColumn]
    times: NDArray[np.float64]
    records: NDArray[np.int64]
    completed: NDArray[np.float64]
    whole: Spans
    calls: Spans
    loads: NDArray[np.int64]
    ran_before: NDArray[np.float64]
    pictures: frozenset[tuple[int, int]]

    def at(self, rows: NDArray[np.int64]) -> ModelTimes:
        """Return the inferences of these rows."""
        if len(rows) == len(self.places):
            return self
        return replace(
            self,
            places=self.places[rows],
            times=self.times[rows],
            records=self.records[rows],
            completed=self.completed[rows],
            whole=self.whole.at(rows),
            calls=self.calls.at(rows),
            loads=self.loads[rows],
            ran_before=self.ran_before[rows],
        )


class InferenceOf(NamedTuple):
    """An inference that has records. `load` counts the model's loads: picture counts begin anew with each."""

    model: int
    model_name: str
    device_id: int
    batch_num: int
    input_pic_num: int
    load: int
    current_pic_count: int = 0


class CounterSample(NamedTuple):
    """A sample of aicore records with their counters, shape (records, counters) as in COUNTER_NAMES, NaN if unknown."""

    records: RecordTable
    values: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class JobRecords:
    """A JOB's inferences in the order in which each model ran them, and the records of both units.

    `numbers` are the inferences' numbers in the database. `whole` spans the first begin to the last end of each
    inference's records, `calls` its call. `layers` are those of each model. `us_per_tick` is None if durations stay in
    ticks. `bound` returns the word for what bounds a layer, from its ratios.
    """

    inferences: list[InferenceOf]
    numbers: list[int]
    aicore: RecordTable
    aicpu: RecordTable
    counters: CounterSample | None
    whole: Spans
    calls: Spans
    layers: Mapping[int, Mapping[int, LayerRow]]
    us_per_tick: float | None
    bound: Callable[[NDArray[np.float64]], str | None]

    def units(self, *, is_of_cpu: bool = False) -> list[tuple[str, RecordTable, float]]:
        """Return each unit with its records and the length of a tick in µs.

        Without a known tick of the NPU, times of the two units cannot be added: only one is returned, the NPU in ticks,
        or the CPU if `is_of_cpu`.
        """
        npu, cpu = (UNITS[0], self.aicore, self.us_per_tick or 1.0), (UNITS[1], self.aicpu, 1.0)
        return [npu, cpu] if self.us_per_tick is not None else [cpu] if is_of_cpu else [npu]

    def models(self, keeps: NDArray[np.bool_], *, is_of_cpu: bool = False) -> list[ModelTimes]:
        """Return the inferences of each model for which `keeps` is True, with the records of `units`."""
        of_model = np.array([row.model for row in self.inferences], np.int64)
        units = self.units(is_of_cpu=is_of_cpu)
        found = [self._model(((of_model == model) & keeps).nonzero()[0], units) for model in np.unique(of_model[keeps])]
        return [model for model in found if model.columns]

    def _model(self, places: NDArray[np.int64], units: Sequence[tuple[str, RecordTable, float]]) -> ModelTimes:
        rows = np.full(len(self.inferences), -1)
        rows[places] = np.arange(len(places))
        parts = [_times_of(unit, records, us, rows, len(places)) for unit, records, us in units]
        records = np.concatenate([part.records for part in parts], axis=1)
        recorded = records.any(axis=1)
        lacks = lacks_records(records[recorded])
        times = np.where(lacks, np.nan, np.concatenate([part.times for part in parts], axis=1)[recorded])
        is_outer = np.concatenate([part.is_outer for part in parts], axis=1)[recorded]
        # Only complete inferences show which columns are outermost: in others, a record may stand in for a missing one.
        outer = is_outer[lacks.sum(axis=1) == 0].any(axis=0)
        is_whole = (lacks & outer).sum(axis=1) == 0
        inferences = [self.inferences[place] for place in places[recorded].tolist()]
        loads = np.array([(row.device_id, row.load) for row in inferences], np.int64).reshape(-1, 2)
        first = self.inferences[places[0]]
        return ModelTimes(
            first.model_name,
            places[recorded],
            self.layers[first.model],
            [column for part in parts for column in part.columns],
            times,
            records[recorded],
            completed(times),
            self.whole.at(places[recorded]).where(is_whole),
            self.calls.at(places[recorded]),
            np.unique(loads, axis=0, return_inverse=True)[1].reshape(-1),
            np.array([row.current_pic_count / max(row.input_pic_num, 1) for row in inferences], np.float64),
            frozenset((row.batch_num, row.input_pic_num) for row in inferences if row.batch_num),
        )

    def times(self) -> NDArray[np.float64]:
        """Return the latency of each inference, by which warm-up is judged; without any, the sum of its layers."""
        count = len(self.inferences)
        times = np.zeros(count)
        for _, records, tick_us in self.units():
            times += np.bincount(records.inference, records.duration, count) * tick_us
        of_model = np.array([row.model for row in self.inferences], np.int64)
        for model in np.unique(of_model):
            ours = (of_model == model).nonzero()[0]
            us = latency_of(self.whole.at(ours), self.calls.at(ours)).us
            if not np.isnan(us).all():
                times[ours] = np.where(np.isnan(us), np.nanmedian(us), us)
        return times


class _OfUnit(NamedTuple):
    """A model's records on one unit, as in `ModelTimes`; `is_outer`: an inference begins or ends with the column."""

    columns: list[LayerColumn]
    times: NDArray[np.float64]
    records: NDArray[np.int64]
    is_outer: NDArray[np.bool_]


def _times_of(unit: str, records: RecordTable, us: float, rows: NDArray[np.int64], count: int) -> _OfUnit:
    """Return the records of a unit for `count` inferences; `rows` is -1 for other inferences."""
    of_record = rows[records.inference]
    ours = of_record >= 0
    net, layer = records.net[ours], records.layer[ours] + 1
    width = int(layer.max(initial=0)) + 1
    codes, place = _dense(net * width + layer)
    inferences, shape = of_record[ours], (count, len(codes))
    counts = record_counts(inferences, place, shape)
    times = layer_times(inferences, place, records.duration[ours], counts) * us
    is_outer = np.zeros(shape, np.bool_)
    for order in (slice(None), slice(None, None, -1)):
        # Assigning several values to one index, numpy keeps the last: forwards the end, backwards the begin.
        outer = np.full(count, -1)
        outer[inferences[order]] = place[order]
        (recorded,) = (outer >= 0).nonzero()
        is_outer[recorded, outer[recorded]] = True
    columns = [LayerColumn(unit, code // width, code % width - 1) for code in codes.tolist()]
    return _OfUnit(columns, times, counts, is_outer)


def _dense(codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if codes.max(initial=0) >= LARGEST_COUNTED:
        different, places = np.unique(codes, return_inverse=True)
        return different, places
    counts = np.bincount(codes)
    return counts.nonzero()[0], (np.cumsum(counts > 0) - 1)[codes]


class LeftOut(NamedTuple):
    """The number of a model's inferences, and how many of them the figures leave out."""

    model: str
    inferences: int
    left_out: int


def left_out(job: JobRecords, skip: int | None) -> tuple[NDArray[np.bool_], list[LeftOut]]:
    """Return a mask of the inferences that figures count, and the number left out of each model.

    Of each load `skip` inferences are left out; with None its warm-up. Raises UsageError if `skip` is negative.
    """
    if skip is not None and skip < 0:
        raise UsageError(f"{skip} inferences cannot be left out", hint="skip is a whole number from 0 on")
    times, loads = job.times(), loads_of(job)
    keeps = np.ones(len(times), np.bool_)
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for place in loads:
        number = min(skip, len(place)) if skip is not None else warm_up(times[place])
        keeps[place[:number]] = False
        sums = counts[job.inferences[place[0]].model_name]
        sums[0] += len(place)
        sums[1] += number
    return keeps, [LeftOut(model, *sums) for model, sums in counts.items()]


def loads_of(job: JobRecords) -> list[NDArray[np.int64]]:
    """Return the places of each load's inferences, in the order in which they ran."""
    found: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for place, inference in enumerate(job.inferences):
        found[inference.model, inference.device_id, inference.load].append(place)
    return [np.array(places, np.int64) for places in found.values()]
