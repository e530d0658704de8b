"""Figures of durations, and which of a load's first are its warm-up. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from profagent.store.queries import LayerRow
    from profagent.store.series import JobSeries

UNKNOWN = "N/A"
UNITS = ("AA_CORE", "AA_CPU")
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
    """A JOB's records, the layers of its models, and how long a tick is (None: durations stay in ticks).

    `bound` gives the word for what bounds a layer, from its ratios.
    """

    series: JobSeries
    layers: Mapping[int, Mapping[int, LayerRow]]
    us_per_tick: float | None
    bound: Callable[[NDArray[np.float64]], str | None]

    def times(self) -> NDArray[np.float64]:
        """Each inference's time, the sum over its layers: on both units in µs, on the NPU alone in ticks."""
        count = len(self.series.inferences)
        times = sums(self.series.aicore.inference, self.series.aicore.duration, count) * (self.us_per_tick or 1.0)
        if self.us_per_tick is None:
            return times
        return times + sums(self.series.aicpu.inference, self.series.aicpu.duration, count)


class LeftOut(NamedTuple):
    """How many of a model's inferences are left out of the figures."""

    model: str
    inferences: int
    left_out: int


def left_out(job: JobRecords, skip: int | None) -> tuple[NDArray[np.bool_], list[LeftOut]]:
    """Which inferences the figures are of, and what is left out of each model: of each load `skip`, or its warm-up."""
    times, loads = job.times(), loads_of(job.series)
    keeps = np.ones(len(times), np.bool_)
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for place in loads:
        number = min(skip, len(place)) if skip is not None else warm_up(times[place])
        keeps[place[:number]] = False
        sums = counts[job.series.inferences[place[0]].model_name]
        sums[0] += len(place)
        sums[1] += number
    return keeps, [LeftOut(model, *sums) for model, sums in counts.items()]


def loads_of(series: JobSeries) -> list[NDArray[np.int64]]:
    """The places of each load's inferences, in the order they ran."""
    found: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for place, inference in enumerate(series.inferences):
        found[inference.model, inference.device_id, inference.load].append(place)
    return [np.array(places, np.int64) for places in found.values()]


def sums(places: NDArray[np.int64], values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """The sum of the values at each of `count` places."""
    return np.bincount(places, values, count).astype(np.float64)
