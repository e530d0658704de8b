"""Durations of JOBs gathered by what an answer is about, without warm-up, and what they come to."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from profagent.formats.countermap import bound_by, mean_ratios

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from profagent.store.queries import LayerRow
    from profagent.store.series import JobSeries, RecordSeries

By = Literal["layer", "type", "model", "segment", "aicpu"]
Key = tuple[str, ...]
# What a row is named by.
KEYS: dict[str, tuple[str, ...]] = {
    "layer": ("model", "layer", "type"),
    "type": ("type",),
    "model": ("model",),
    "segment": ("model", "segment", "unit"),
    "aicpu": ("model", "layer", "type"),
    "api": ("function", "type"),
    "step": ("step", "range"),
}
UNKNOWN = "N/A"
UNITS = ("AA_CORE", "AA_CPU")
SMALL_CODES = 1 << 16
# The first counters are ratios, those behind are bytes.
RATIOS = 8
# The standard deviation of normally distributed values is so many times their MAD.
MAD_TO_SIGMA = 1.4826
# Of fewer inferences nobody can say what is usual.
FEWEST_INFERENCES = 10
# Warm-up: so many standard deviations of the later half above its median, and at least so much of it.
NOISE_FACTOR = 4.0
WARM_UP_FLOOR = 0.02
LARGEST_SHARE = 4


class Figures(NamedTuple):
    """Of durations in their own unit; None where there is none. `mad` is not scaled to a standard deviation."""

    number: int
    total: float | None
    mean: float | None
    median: float | None
    mad: float | None
    p95: float | None
    max: float | None


def figures_of(durations: NDArray[np.float64], count: int | None = None) -> Figures:
    """The figures of durations; `count` where more are known to be than have a duration."""
    number = len(durations) if count is None else count
    if not len(durations):
        return Figures(number, None, None, None, None, None, None)
    # Between two values it is linear, as numpy's quantile is unless it is told otherwise.
    median, p95, most = (float(value) for value in np.quantile(durations, (0.5, 0.95, 1.0)))
    total = float(durations.sum())
    return Figures(number, total, total / len(durations), median, mad(durations), p95, most)


def mad(values: NDArray[np.float64]) -> float:
    """The median of the distances from the median, not scaled."""
    return float(np.median(np.abs(values - np.median(values))))


def warm_up(times: NDArray[np.float64]) -> int:
    """How many of a load's first inferences to leave out, by their times in the order they ran; at most a quarter."""
    if len(times) < FEWEST_INFERENCES:
        return 0
    rest = times[len(times) // 2 :]
    usual = float(np.median(rest))
    limit = usual + max(NOISE_FACTOR * MAD_TO_SIGMA * mad(rest), WARM_UP_FLOOR * usual)
    leading = times[: len(times) // LARGEST_SHARE] > limit
    return len(leading) if leading.all() else int(leading.argmin())


@dataclass(frozen=True, slots=True)
class JobRecords:
    """A JOB's records, the layers of its models, and how long a tick is (None: durations stay in ticks)."""

    series: JobSeries
    layers: Mapping[int, Mapping[int, LayerRow]]
    us_per_tick: float | None

    def times(self) -> NDArray[np.float64]:
        """Each inference's time, the sum over its layers: on both units in µs, on the NPU alone in ticks."""
        count = len(self.series.inferences)
        times = _sums(self.series.aicore.inference, self.series.aicore.duration, count) * (self.us_per_tick or 1.0)
        if self.us_per_tick is None:
            return times
        return times + _sums(self.series.aicpu.inference, self.series.aicpu.duration, count)


class LeftOut(NamedTuple):
    """How many of a model's inferences are left out of the figures."""

    model: str
    inferences: int
    left_out: int


def left_out(job: JobRecords, skip: int | None) -> tuple[NDArray[np.bool_], list[LeftOut]]:
    """Which inferences the figures are of, and what is left out of each model: of each load `skip`, or its warm-up."""
    times, loads = job.times(), _loads(job.series)
    keeps = np.ones(len(times), np.bool_)
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for place in loads:
        number = min(skip, len(place)) if skip is not None else warm_up(times[place])
        keeps[place[:number]] = False
        sums = counts[job.series.inferences[place[0]].model_name]
        sums[0] += len(place)
        sums[1] += number
    return keeps, [LeftOut(model, *sums) for model, sums in counts.items()]


def durations_by(job: JobRecords, by: By, keeps: NDArray[np.bool_]) -> Iterator[tuple[Key, NDArray[np.float64]]]:
    """Durations of kept inferences by what they are of, in µs or ticks; a key may come several times.

    `layer` and `type`: of aicore records; `aicpu`: of aicpu records; `model`: of inferences; `segment`: sums over the
    records that a segment has on one unit in one inference.
    """
    series, us = job.series, job.us_per_tick or 1.0
    if by == "model":
        times = job.times()
        for place in _loads(series):
            kept = times[place][keeps[place] & (times[place] > 0)]
            yield (series.inferences[place[0]].model_name,), kept
    elif by == "segment":
        yield from _segments(job, keeps, series.aicore, UNITS[0], us)
        if job.us_per_tick is not None:
            yield from _segments(job, keeps, series.aicpu, UNITS[1], 1.0)
    elif by == "aicpu":
        yield from _layers(job, "layer", keeps, series.aicpu, 1.0)
    else:
        yield from _layers(job, by, keeps, series.aicore, us)


def ratios_by(
    job: JobRecords, by: By, keeps: NDArray[np.bool_]
) -> Iterator[tuple[Key, NDArray[np.float64], NDArray[np.float64]]]:
    """Ratios, shape (records, ratios), and ticks of some of the kept inferences' records, by keys as above."""
    counters = job.series.counters
    if counters is None or by == "aicpu":
        return
    coded = _Coded(job, counters.records, "net" if by == "segment" else "layer")
    (places,) = keeps[counters.records.inference].nonzero()
    for code, found in split(coded.codes[places], places):
        yield coded.key(by, code, UNITS[0]), counters.values[found, :RATIOS], counters.records.duration[found]


def split(codes: NDArray[np.int64], values: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """The values of each code, codes rising, values in their order; codes are not negative."""
    if not len(codes):
        return
    # numpy sorts 16 bits by counting, which takes a tenth of the time.
    order = np.argsort(codes.astype(np.uint16) if codes.max() < SMALL_CODES else codes, kind="stable")
    ordered = codes[order]
    starts = np.append(0, (ordered[1:] != ordered[:-1]).nonzero()[0] + 1)
    yield from zip(ordered[starts].tolist(), np.split(values[order], starts[1:]), strict=True)


class _Coded:
    """A number for each record that says of which model it is, and of which of its layers or segments."""

    def __init__(self, job: JobRecords, records: RecordSeries, what: Literal["layer", "net"]) -> None:
        self._job = job
        self._models = sorted({inference.model: inference.model_name for inference in job.series.inferences}.items())
        numbers = records.layer if what == "layer" else records.net
        self._width = int(numbers.max(initial=-1)) + 2
        places = {model: place for place, (model, _) in enumerate(self._models)}
        models = np.array([places[inference.model] for inference in job.series.inferences], np.int64)
        self.codes: NDArray[np.int64] = models[records.inference] * self._width + numbers + 1

    def key(self, by: By, code: int, unit: str) -> Key:
        """How the row of a code is named."""
        place, number = divmod(code, self._width)
        model, name = self._models[place]
        layer = self._job.layers[model].get(number - 1)
        match by:
            case "model":
                return (name,)
            case "segment":
                return (name, str(number - 1), unit)
            case "type":
                return (UNKNOWN if layer is None else layer.type,)
        return (name, UNKNOWN, UNKNOWN) if layer is None else (name, layer.name, layer.type)


def _layers(
    job: JobRecords, by: By, keeps: NDArray[np.bool_], records: RecordSeries, us: float
) -> Iterator[tuple[Key, NDArray[np.float64]]]:
    kept, coded = keeps[records.inference], _Coded(job, records, "layer")
    for code, durations in split(coded.codes[kept], records.duration[kept]):
        yield coded.key(by, code, ""), durations * us


def _segments(
    job: JobRecords, keeps: NDArray[np.bool_], records: RecordSeries, unit: str, us: float
) -> Iterator[tuple[Key, NDArray[np.float64]]]:
    kept, coded = keeps[records.inference], _Coded(job, records, "net")
    inference, codes = records.inference[kept], coded.codes[kept]
    width = int(codes.max(initial=0)) + 1
    runs, places = np.unique(inference * width + codes, return_inverse=True)
    sums = _sums(places, records.duration[kept], len(runs))
    for code, durations in split(runs % width, sums):
        yield coded.key("segment", code, unit), durations * us


def _loads(series: JobSeries) -> list[NDArray[np.int64]]:
    """The places of each load's inferences, in the order they ran."""
    found: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for place, inference in enumerate(series.inferences):
        found[inference.model, inference.device_id, inference.load].append(place)
    return [np.array(places, np.int64) for places in found.values()]


def _sums(places: NDArray[np.int64], values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    return np.bincount(places, values, count).astype(np.float64)


class Row(NamedTuple):
    """The figures of one thing; `share` is of the time of all rows, in %."""

    key: Key
    figures: Figures
    share: float | None
    bound: str | None


class JobRows:
    """What JOBs have together: a JOB's records are let go of before the next ones are read."""

    def __init__(self, by: By, skip: int | None) -> None:
        self._by = by
        self._skip = skip
        self._times: dict[Key, list[NDArray[np.float64]]] = defaultdict(list)
        self._counters: dict[Key, list[tuple[NDArray[np.float64], NDArray[np.float64]]]] = defaultdict(list)
        self._left_out: dict[str, list[int]] = defaultdict(lambda: [0, 0])

    def add(self, job: JobRecords) -> None:
        """Take a JOB in."""
        keeps, found = left_out(job, self._skip)
        for model, inferences, number in found:
            self._left_out[model][0] += inferences
            self._left_out[model][1] += number
        for key, durations in durations_by(job, self._by, keeps):
            self._times[key].append(durations)
        for key, ratios, ticks in ratios_by(job, self._by, keeps):
            self._counters[key].append((ratios, ticks))

    def rows(self) -> list[Row]:
        """A row for each key that the JOBs have, by falling total."""
        bounds = {}
        for key, parts in self._counters.items():
            ratios, ticks = (np.concatenate(column) for column in zip(*parts, strict=True))
            bounds[key] = bound_by(mean_ratios(ratios, ticks))
        return _with_shares({key: figures_of(np.concatenate(parts)) for key, parts in self._times.items()}, bounds)

    def left_out(self) -> list[LeftOut]:
        """What is left out of each model over all JOBs."""
        return [LeftOut(model, *sums) for model, sums in self._left_out.items()]


def call_rows(calls: Iterable[tuple[Key, NDArray[np.float64], int]]) -> list[Row]:
    """A row for each function from its calls' known durations and how many calls there are; keys may be repeated."""
    parts: dict[Key, list[NDArray[np.float64]]] = defaultdict(list)
    counts: Counter[Key] = Counter()
    for key, durations, count in calls:
        parts[key].append(durations)
        counts[key] += count
    return _with_shares({key: figures_of(np.concatenate(found), counts[key]) for key, found in parts.items()}, {})


def _with_shares(figures: Mapping[Key, Figures], bounds: Mapping[Key, str | None]) -> list[Row]:
    all_time = sum(row.total or 0.0 for row in figures.values())
    rows = [
        Row(key, row, row.total / all_time * 100 if row.total is not None and all_time else None, bounds.get(key))
        for key, row in figures.items()
    ]
    return sorted(rows, key=lambda row: (-(row.figures.total or 0.0), row.key))
