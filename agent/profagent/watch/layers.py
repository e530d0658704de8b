"""The layers of one model over its last inferences, in columns, and what can be seen of them. Pure."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.formats.countermap import COUNTER_NAMES, RATIOS, bound_of
from profagent.formats.names import LogKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from profagent.formats.model_info import LayerTable
    from profagent.ingest.live_inference import LayerTimes

# Inferences of which all times are kept; fewer of a model with very many layers.
KEPT_INFERENCES = 240
MOST_TIMES = 2_000_000
# Inferences whose counters are kept: what bounds a layer is a mean over these.
KEPT_COUNTERS = 32
TREND_POINTS = 12
US_PER_S = 1_000_000


class Sort(Enum):
    """By what layers are sorted."""

    MEDIAN = "median"
    LAST = "last"
    CHANGE = "change"
    NAME = "name"
    ORDER = "network order"


class LayerQuery(NamedTuple):
    """Which layers are wanted: those whose name or type has a text, sorted, so many from the first on."""

    sort: Sort = Sort.MEDIAN
    text: str = ""
    first: int = 0
    number: int = 1_000


class LayerLine(NamedTuple):
    """A layer's figures; None is not known. `share` is of all layers' medians, `change` against the baseline's."""

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
    """The wanted lines, of how many that match, of how many layers; over so many inferences."""

    lines: tuple[LayerLine, ...]
    matching: int
    layers: int
    inferences: int
    has_counters: bool


class InferencesView(NamedTuple):
    """Times of the last inferences in µs, oldest first, how many there were in all, and how many come in a second."""

    times_us: NDArray[np.float64]
    total: int
    per_s: float | None


class LayerDetail(NamedTuple):
    """One layer: its times in the last inferences in µs, oldest first, and the means of its counters."""

    name: str | None
    type: str | None
    is_cpu: bool
    times_us: NDArray[np.float64]
    share: float
    counters: dict[str, float]
    bound: str | None
    baseline_us: float | None


class ModelLayers:
    """The last inferences of one model. A layer's place is its index in the model's table, further back on the CPU."""

    def __init__(self) -> None:
        self.total = 0
        self._table: LayerTable | None = None
        self._us_per_tick: float | None = None
        # What is worked out once for a state: medians by place, and the places that were used.
        self._made: tuple[NDArray[np.float64], NDArray[np.int64]] | None = None
        self._begin(None)

    def take(self, layers: LayerTimes, total_us: float, end_us: int | None) -> None:
        """An inference whose figures are final."""
        if layers.table is not self._table:
            self._begin(layers.table)
        self._made, self._us_per_tick = None, layers.us_per_tick
        at = self._rows % len(self._times)
        row = self._times[at]
        row[:] = np.nan
        for columns in layers.columns:
            durations = columns.durations_us(layers.us_per_tick)
            if durations is None:
                continue
            is_cpu = columns.unit is LogKind.AICPU
            known = (columns.layer_index >= 0) & (columns.layer_index < self._runs)
            places = np.where(known, columns.layer_index, self._runs) + (self._runs + 1 if is_cpu else 0)
            row[places] = 0.0
            row += np.bincount(places, durations, len(row))
            self._used[places] = True
            if columns.counters:
                self._counters.append((places, durations, columns.counters))
        self._totals[at], self._ends_us[at] = total_us, end_us or 0
        self._rows += 1
        self.total += 1

    def inferences(self) -> InferencesView:
        """The time of each."""
        order = self._order()
        ends_us = self._ends_us[order]
        took_us = int(ends_us[-1] - ends_us[0]) if len(order) > 1 and ends_us.min() > 0 else 0
        per_s = (len(order) - 1) * US_PER_S / took_us if took_us > 0 else None
        return InferencesView(self._totals[order], self.total, per_s)

    def places(self, query: LayerQuery, baseline: Mapping[str, float] | None = None) -> list[int]:
        """The places of all layers that match, sorted."""
        medians, used = self._medians()
        wanted = query.text.lower()
        found = [place for place in used.tolist() if not wanted or wanted in self._searched[place]]
        return sorted(found, key=self._key(query.sort, medians, baseline or {}))

    def view(self, query: LayerQuery, baseline: Mapping[str, float] | None = None) -> LayersView:
        """The wanted layers; of the others nothing is worked out but the median."""
        baseline = baseline or {}
        medians, used = self._medians()
        places = self.places(query, baseline)
        shown = places[query.first : query.first + query.number]
        whole = float(np.nansum(medians[used])) if len(used) else 0.0
        means = self._mean_counters() if shown else None
        trends = self._trends(shown)
        lines = tuple(
            self._line(place, medians, whole, means, baseline, trend)
            for place, trend in zip(shown, trends, strict=True)
        )
        return LayersView(lines, len(places), len(used), len(self._order()), bool(self._counters))

    def detail(self, place: int, baseline: Mapping[str, float] | None = None) -> LayerDetail | None:
        """A layer; None where the model has it no longer."""
        if place >= len(self._used) or not self._used[place]:
            return None
        times = self._times[self._order(), place]
        medians, used = self._medians()
        name, type_ = self._names[place]
        means = self._mean_counters()
        counters = {} if means is None else dict(zip(COUNTER_NAMES, means[place].tolist(), strict=True))
        return LayerDetail(
            name,
            type_,
            place > self._runs,
            times[~np.isnan(times)],
            float(medians[place] / np.nansum(medians[used])),
            {counter: value for counter, value in counters.items() if value == value},  # noqa: PLR0124 - NaN
            self._bound(place, means),
            (baseline or {}).get(name or ""),
        )

    def _begin(self, table: LayerTable | None) -> None:
        """Another table: what was kept has other layers."""
        runs = () if table is None else table.runs
        self._table, self._runs = table, len(runs)
        names: list[tuple[str | None, str | None]] = [*((run.name, run.type) for run in runs), (None, None)]
        self._names = names * 2
        self._searched = [f"{name or ''} {type_ or ''}".lower() for name, type_ in self._names]
        width = len(self._names)
        kept = max(2, min(KEPT_INFERENCES, MOST_TIMES // width))
        self._times = np.full((kept, width), np.nan)
        self._totals, self._ends_us = np.zeros(kept), np.zeros(kept, np.int64)
        self._used = np.zeros(width, np.bool_)
        self._rows = 0
        self._counters: deque[tuple[NDArray[np.int64], NDArray[np.float64], Mapping[str, NDArray[np.float64]]]]
        self._counters = deque(maxlen=KEPT_COUNTERS)
        self._made = None

    def _order(self) -> NDArray[np.int64]:
        """Rows of kept inferences, oldest first."""
        kept = len(self._times)
        return np.arange(max(0, self._rows - kept), self._rows) % kept

    def _medians(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The median of each place, NaN where it was not used; and the places that were."""
        if self._made is None:
            medians, (used,) = np.full(len(self._used), np.nan), self._used.nonzero()
            order = self._order()
            if len(order):
                times = self._times[order][:, used]
                gaps = np.isnan(times).any(axis=0)
                medians[used[~gaps]] = np.median(times[:, ~gaps], axis=0)
                for place in np.flatnonzero(gaps).tolist():
                    known = times[~np.isnan(times[:, place]), place]
                    medians[used[place]] = np.median(known) if len(known) else np.nan
            self._made = medians, used[~np.isnan(medians[used])]
        return self._made

    def _key(
        self, sort: Sort, medians: NDArray[np.float64], baseline: Mapping[str, float]
    ) -> Callable[[int], tuple[Any, ...]]:
        last = np.nan_to_num(self._times[self._order()[-1]] if self._rows else medians)
        match sort:
            case Sort.MEDIAN:
                return lambda place: (-medians[place], place)
            case Sort.LAST:
                return lambda place: (-last[place], place)
            case Sort.CHANGE:
                return lambda place: (-(self._change(place, medians, baseline) or 0.0), place)
            case Sort.NAME:
                return lambda place: (self._names[place][0] or "", place)
        return lambda place: (place,)

    def _line(
        self,
        place: int,
        medians: NDArray[np.float64],
        whole: float,
        means: NDArray[np.float64] | None,
        baseline: Mapping[str, float],
        trend: tuple[float, ...],
    ) -> LayerLine:
        name, type_ = self._names[place]
        last = float(self._times[(self._rows - 1) % len(self._times), place])
        median = float(medians[place])
        return LayerLine(
            place,
            name,
            type_,
            place > self._runs,
            None if np.isnan(last) else last,
            median,
            median / whole if whole else 0.0,
            trend,
            self._bound(place, means),
            self._change(place, medians, baseline),
        )

    def _trends(self, places: list[int]) -> list[tuple[float, ...]]:
        """For each place means of stretches of the kept inferences, oldest first, without those that had it not."""
        order = self._order()
        if not len(order):
            return [()] * len(places)
        times = self._times[order][:, places]
        known = ~np.isnan(times)
        starts = np.arange(min(TREND_POINTS, len(order))) * len(order) // min(TREND_POINTS, len(order))
        sums = np.add.reduceat(np.where(known, times, 0.0), starts)
        with np.errstate(invalid="ignore"):
            means = (sums / np.add.reduceat(known.astype(np.float64), starts)).T.tolist()
        return [tuple(each for each in row if each == each) for row in means]  # noqa: PLR0124 - NaN

    def _change(self, place: int, medians: NDArray[np.float64], baseline: Mapping[str, float]) -> float | None:
        before = baseline.get(self._names[place][0] or "")
        return float(medians[place]) / before - 1 if before else None

    def _mean_counters(self) -> NDArray[np.float64] | None:
        """Means over the last inferences by place and counter, shares weighted by time; NaN where not known."""
        if not self._counters:
            return None
        places = np.concatenate([each[0] for each in self._counters])
        times = np.concatenate([each[1] for each in self._counters])
        width = len(self._used)
        whole, number = np.bincount(places, times, width), np.bincount(places, minlength=width)
        means = np.full((width, len(COUNTER_NAMES)), np.nan)
        with np.errstate(divide="ignore", invalid="ignore"):
            for column, name in enumerate(COUNTER_NAMES):
                values = [each[2].get(name) for each in self._counters]
                known = [value for value in values if value is not None]
                if len(known) < len(values):
                    continue
                is_share = name in RATIOS
                weighted = np.concatenate(known) * (times if is_share else 1.0)
                means[:, column] = np.bincount(places, weighted, width) / (whole if is_share else number)
        return means

    def _bound(self, place: int, means: NDArray[np.float64] | None) -> str | None:
        return None if means is None else bound_of(means[place, : len(RATIOS)], self._us_per_tick)
