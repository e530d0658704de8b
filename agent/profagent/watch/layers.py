"""Latency and layers of one model over its last inferences, in columns, and views of them. Pure."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.formats.countermap import COUNTER_NAMES, RATIOS, bound_in
from profagent.formats.inference_times import NOT_IN_ANY_LAYER, Parts, completed, time_in_inference
from profagent.ingest.live_latency import LatencyWindow
from profagent.limits import MOST_TIMES, REMEMBERED_COUNTERS, REMEMBERED_LATENCIES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from profagent.formats.inference_layers import LayerTimes
    from profagent.formats.inference_times import LatencyFrom
    from profagent.formats.model_info import LayerTable
    from profagent.ingest.live_latency import InferenceTimes

TREND_POINTS = 12


class Sort(Enum):
    """Orders of the layers."""

    MEDIAN = "median"
    LAST = "last"
    CHANGE = "change"
    NAME = "name"
    ORDER = "network order"


class LayerQuery(NamedTuple):
    """Selection of layers: a text that name or type contains, the order, and the first line and the number of lines."""

    sort: Sort = Sort.MEDIAN
    text: str = ""
    first: int = 0
    number: int = 1_000


class LayerLine(NamedTuple):
    """Figures of a layer, or of the time in no layer; None means not known.

    `share` is of the mean latency, `change` of the median against the baseline's.
    """

    place: int
    name: str | None
    type: str | None
    is_cpu: bool
    last_us: float | None
    median_us: float
    share: float
    trend: tuple[float, ...]
    bound: str | None
    change: float | None


class LayersView(NamedTuple):
    """Selected lines, the number of matching layers, of all layers and of the inferences behind the figures.

    `overlap`: the layers together take longer than the inference, so that no time is left in no layer.
    """

    lines: tuple[LayerLine, ...]
    matching: int
    layers: int
    inferences: int
    has_counters: bool
    overlap: bool


class InferencesView(NamedTuple):
    """Latencies of the last inferences in µs, oldest first, with the count of all inferences and their pace.

    `layers_us` is the time of all recorded layers, `recorded` the number of the `of_layers` that have any record.
    """

    latencies_us: NDArray[np.float64]
    origin: LatencyFrom | None
    total: int
    per_s: float | None
    gap_us: float | None
    layers_us: float | None
    recorded: int
    of_layers: int | None


class LayerDetail(NamedTuple):
    """Details of one layer: its times in the last inferences in µs, oldest first, and the means of its counters."""

    name: str | None
    type: str | None
    is_cpu: bool
    times_us: NDArray[np.float64]
    share: float
    counters: dict[str, float]
    bound: str | None
    baseline_us: float | None


class ModelLayers:
    """Figures of the last inferences of one model.

    A layer's place is that of LayerTimes; the time in no layer has the place behind all layers.
    """

    def __init__(self) -> None:
        # Table whose places the columns below have; None before the first inference.
        self._table: LayerTable | None = None
        # Processor family of the last inference; the rule for `bound by` depends on it.
        self._family: str | None = None
        # Cached figures; None after a change. A redraw asks for them several times.
        self._made: _Made | None = None
        self._begin(None)

    def take(self, layers: LayerTimes, inference: InferenceTimes) -> None:
        """Add an inference whose figures are final."""
        if layers.table is not self._table:
            self._begin(layers.table)
        self._made, self._family = None, layers.family
        times = layers.by_place
        self._times[self._window.total % len(self._times)] = times
        self._used |= ~np.isnan(times)
        self._counters += [
            (layers.places(each), each.duration, each.counters) for each in layers.columns if each.counters
        ]
        self._window.take(inference)

    def renew(self, inference: InferenceTimes) -> None:
        """Update the latency of an inference that was added before, once its call is known."""
        self._made = None
        self._window.renew(inference)

    def inferences(self) -> InferencesView:
        """Return the view of the latencies."""
        latency, pace, made = self._window.latency, self._window.pace, self._figures()
        return InferencesView(
            latency.us[~np.isnan(latency.us)],
            latency.origin,
            self._window.total,
            pace.per_second,
            pace.gap_us,
            made.parts.layers_us if len(made.used) else None,
            self._recorded(made),
            None if self._table is None else self._runs,
        )

    def places(self, query: LayerQuery, baseline: Mapping[str, float] | None = None) -> list[int]:
        """Return the places of all layers that match a query, in its order."""
        made = self._figures()
        wanted = query.text.lower()
        found = [place for place in made.used.tolist() if not wanted or wanted in self._searched[place]]
        return sorted(found, key=self._key(query.sort, made, baseline or {}))

    def view(self, query: LayerQuery, baseline: Mapping[str, float] | None = None) -> LayersView:
        """Return the lines that a query selects; layers outside it get no trend and no bound, only median and mean."""
        baseline = baseline or {}
        made = self._figures()
        places = self.places(query, baseline)
        shown = places[query.first : query.first + query.number]
        counters = self._mean_counters() if shown else None
        lines = tuple(
            self._line(place, made, counters, baseline, trend)
            for place, trend in zip(shown, _trends(made.times[:, shown]), strict=True)
        )
        layers = int((made.used < self._rest).sum())
        return LayersView(
            lines, len(places), layers, len(made.times), bool(self._counters), overlap=made.parts.is_too_much
        )

    def detail(self, place: int, baseline: Mapping[str, float] | None = None) -> LayerDetail | None:
        """Return the details of the layer at a place; None if the model has no such layer any more."""
        made = self._figures()
        if place not in made.used:
            return None
        times = made.times[:, place]
        name, type_ = self._names[place]
        means = self._mean_counters()
        counters = {} if means is None else dict(zip(COUNTER_NAMES, means[place].tolist(), strict=True))
        return LayerDetail(
            name,
            type_,
            self._is_cpu(place),
            times[~np.isnan(times)],
            made.share(place),
            {counter: value for counter, value in counters.items() if value == value},  # noqa: PLR0124 - NaN
            self._bound(place, means),
            (baseline or {}).get(name or ""),
        )

    def _begin(self, table: LayerTable | None) -> None:
        """Forget all figures and begin with another layer table, whose places mean other layers."""
        runs = () if table is None else table.runs
        self._table, self._runs = table, len(runs)
        names: list[tuple[str | None, str | None]] = [*((run.name, run.type) for run in runs), (None, None)]
        self._rest = 2 * len(names)
        self._names = [*names, *names, (NOT_IN_ANY_LAYER, "")]
        self._searched = [f"{name or ''} {type_ or ''}".lower() for name, type_ in self._names]
        # A model with very many layers remembers fewer inferences, so that memory has one bound for all models.
        size = max(2, min(REMEMBERED_LATENCIES, MOST_TIMES // self._rest))
        # Ring of times in µs, shape (inferences, places): an inference overwrites the oldest one.
        self._times = np.full((size, self._rest), np.nan)
        # Places that had a time in any inference.
        self._used = np.zeros(self._rest, np.bool_)
        self._window = LatencyWindow(size)
        # Places, durations and counters of the last records; fewer inferences than in the ring, as each is larger.
        self._counters: deque[tuple[NDArray[np.int64], NDArray[np.float64], Mapping[str, NDArray[np.float64]]]]
        self._counters = deque(maxlen=REMEMBERED_COUNTERS)
        self._made = None

    def _figures(self) -> _Made:
        if self._made is None:
            number, size = self._window.total, len(self._times)
            self._made = _made(
                self._times[np.arange(max(0, number - size), number) % size], self._used, self._window.latency.us
            )
        return self._made

    def _key(self, sort: Sort, made: _Made, baseline: Mapping[str, float]) -> Callable[[int], tuple[Any, ...]]:
        match sort:
            case Sort.MEDIAN:
                return lambda place: (-made.medians[place], place)
            case Sort.LAST:
                last = np.nan_to_num(made.times[-1] if len(made.times) else made.medians)
                return lambda place: (-last[place], place)
            case Sort.CHANGE:
                return lambda place: (-(self._change(place, made.medians, baseline) or 0.0), place)
            case Sort.NAME:
                return lambda place: (self._names[place][0] or "", place)
        return lambda place: (place,)

    def _line(
        self,
        place: int,
        made: _Made,
        counters: NDArray[np.float64] | None,
        baseline: Mapping[str, float],
        trend: tuple[float, ...],
    ) -> LayerLine:
        name, type_ = self._names[place]
        last = float(made.times[-1, place])
        return LayerLine(
            place,
            name,
            type_,
            self._is_cpu(place),
            None if np.isnan(last) else last,
            float(made.medians[place]),
            made.share(place),
            trend,
            self._bound(place, counters),
            self._change(place, made.medians, baseline),
        )

    def _recorded(self, made: _Made) -> int:
        index = made.used[made.used < self._rest] % (self._runs + 1)
        return int((np.unique(index) < self._runs).sum())

    def _is_cpu(self, place: int) -> bool:
        return self._runs < place < self._rest

    def _change(self, place: int, medians: NDArray[np.float64], baseline: Mapping[str, float]) -> float | None:
        before = baseline.get(self._names[place][0] or "")
        return float(medians[place]) / before - 1 if before else None

    def _mean_counters(self) -> NDArray[np.float64] | None:
        """Return means, shape (places, counters), over the last inferences; ratios weighted by time, NaN unknown."""
        if not self._counters:
            return None
        places = np.concatenate([each[0] for each in self._counters])
        times = np.concatenate([each[1] for each in self._counters])
        width = self._rest + 1
        whole, number = np.bincount(places, times, width), np.bincount(places, minlength=width)
        means = np.full((width, len(COUNTER_NAMES)), np.nan)
        with np.errstate(divide="ignore", invalid="ignore"):
            for column, name in enumerate(COUNTER_NAMES):
                values = [each[2].get(name) for each in self._counters]
                known = [value for value in values if value is not None]
                # A mean over only some of the records would be compared with means over all of them.
                if len(known) < len(values):
                    continue
                is_share = name in RATIOS
                weighted = np.concatenate(known) * (times if is_share else 1.0)
                means[:, column] = np.bincount(places, weighted, width) / (whole if is_share else number)
        return means

    def _bound(self, place: int, means: NDArray[np.float64] | None) -> str | None:
        return None if means is None else bound_in(self._family)(means[place, : len(RATIOS)])


class _Made(NamedTuple):
    """Figures of the remembered inferences by place; the last place is the time in no layer, NaN where not known."""

    times: NDArray[np.float64]
    medians: NDArray[np.float64]
    means: NDArray[np.float64]
    used: NDArray[np.int64]
    parts: Parts

    def share(self, place: int) -> float:
        """Return the share of a place in the mean latency, as a fraction."""
        return (self.parts.share(float(self.means[place])) or 0.0) / 100


def _made(times: NDArray[np.float64], used: NDArray[np.bool_], latencies: NDArray[np.float64]) -> _Made:
    """Return the figures of inferences; `times` has the shape (inferences, places), `used` marks places with times."""
    counts = (~np.isnan(times)).sum(axis=0)
    (places,) = (used & (counts > 0)).nonzero()
    medians, means = np.full((2, times.shape[1] + 1), np.nan)
    # np.nanmedian is slow, so that only places with gaps take it.
    gaps = counts[places] < len(times)
    medians[places[~gaps]] = np.median(times[:, places[~gaps]], axis=0) if len(times) else np.nan
    for place in places[gaps].tolist():
        medians[place] = np.nanmedian(times[:, place])
    means[places] = time_in_inference(np.nansum(times[:, places], axis=0), counts[places], len(times))
    known = ~np.isnan(latencies)
    parts = Parts(float(means[places].sum()), float(latencies[known].mean()) if known.any() else None)
    rest = np.full(len(times), np.nan)
    if parts.rest_us is not None:
        rest = latencies - completed(times[:, places]).sum(axis=1)
        medians[-1], means[-1] = float(np.median(rest[known])), parts.rest_us
        places = np.append(places, times.shape[1])
    return _Made(np.column_stack([times, rest]), medians, means, places, parts)


def _trends(times: NDArray[np.float64]) -> list[tuple[float, ...]]:
    if not len(times):
        return [()] * times.shape[1]
    known = ~np.isnan(times)
    starts = np.arange(min(TREND_POINTS, len(times))) * len(times) // min(TREND_POINTS, len(times))
    sums = np.add.reduceat(np.where(known, times, 0.0), starts)
    with np.errstate(invalid="ignore"):
        means = (sums / np.add.reduceat(known.astype(np.float64), starts)).T.tolist()
    return [tuple(each for each in row if each == each) for row in means]  # noqa: PLR0124 - NaN
