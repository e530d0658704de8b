"""Figures of inferences that a flight recorder has thinned, and their union with those of records."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.formats.durations import GROWTH, Distribution
from profagent.formats.names import LogKind
from profagent.stats.figures import UNITS, DurationFigures, LayerColumn, figures_in_place
from profagent.store.database import fetched
from profagent.store.incidents import has_recorders
from profagent.store.queries import layers_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from profagent.store.database import Running
    from profagent.store.queries import LayerRow, Scope

_UNIT_NAMES = {LogKind.AICORE.value: UNITS[0], LogKind.AICPU.value: UNITS[1]}
_MINUTES = (
    "SELECT f.model, m.name, f.device_id, f.subject, f.inferences,"
    " f.number, f.total, f.squares, f.least, f.most, f.bins"
    " FROM minute_figure f JOIN model m USING (model) WHERE f.session = ? AND m.job = ?"
)


class ThinnedFigures(NamedTuple):
    """Figures of the thinned inferences of a model on a device, by subject as `Thinnable.subjects` names them.

    `inferences` has by subject how many inferences have it; `table` the model's layers.
    """

    name: str
    device: int
    table: Mapping[int, LayerRow]
    subjects: Mapping[str, Distribution]
    inferences: Mapping[str, int]

    def of(self, subject: str) -> Distribution:
        """Return the distribution of a subject, empty where no inference has it."""
        return self.subjects.get(subject) or Distribution()

    def layers(self) -> Iterator[tuple[LayerColumn, Distribution, int]]:
        """Yield each layer of a segment with the durations of its records, and how many inferences have it."""
        for subject, found in self.subjects.items():
            parts = subject.split(" ")
            if len(parts) == len(LayerColumn._fields) and parts[0] in _UNIT_NAMES:
                column = LayerColumn(_UNIT_NAMES[parts[0]], int(parts[1]), int(parts[2]))
                yield column, found, self.inferences[subject]

    def segments(self) -> Iterator[tuple[LayerColumn, Distribution]]:
        """Yield each segment with its times; the column has no layer."""
        for subject, found in self.subjects.items():
            unit, _, net = subject.partition(" ")
            if unit in _UNIT_NAMES and net.isdecimal():
                yield LayerColumn(_UNIT_NAMES[unit], int(net), -1), found


async def thinned_of(connection: Running, scope: Scope) -> list[ThinnedFigures]:
    """Return the figures of a JOB's thinned inferences, as the session captured them."""
    asked = (scope.session.session, scope.job.job)
    rows = await fetched(connection, _MINUTES, asked) if await has_recorders(connection) else []
    found: dict[tuple[int, str, int], dict[str, Distribution]] = defaultdict(lambda: defaultdict(Distribution))
    inferences: dict[tuple[int, str, int], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for model, name, device, subject, count, *columns, bins in rows:
        found[model, name, device][subject].merge(Distribution.unpacked(columns, bins))
        inferences[model, name, device][subject] += count
    return [
        ThinnedFigures(name, device, await layers_of(connection, model), subjects, inferences[model, name, device])
        for (model, name, device), subjects in found.items()
    ]


async def is_thinned(connection: Running, session: int) -> bool:
    """Return True if a flight recorder has thinned inferences of a session."""
    query = "SELECT 1 FROM minute_figure WHERE session = ? LIMIT 1"
    return await has_recorders(connection) and bool(await fetched(connection, query, (session,)))


def merged(distributions: Sequence[Distribution]) -> Distribution | None:
    """Return one distribution of several; None without any value."""
    whole = Distribution()
    for each in distributions:
        whole.merge(each)
    return whole if whole.number else None


def figures_with(durations: NDArray[np.float64], thinned: Distribution | None) -> DurationFigures:
    """Return the figures of durations and of those in a distribution; the durations are overwritten.

    Number, sum, mean and maximum are exact; median, MAD and percentiles are within RESOLUTION of durations.py.
    """
    if thinned is None:
        return figures_in_place(durations)
    middles, counts = thinned.weighted()
    values = np.concatenate([durations, middles])
    weights = np.concatenate([np.ones(len(durations), np.int64), counts])
    number, total = len(durations) + thinned.number, float(durations.sum()) + thinned.total
    most = max(thinned.most, float(durations.max(initial=-np.inf)))
    # Middles alone would let the medians of alike sessions differ by a whole bin.
    median, p95, p99 = (min(each, most) for each in _quantiles(values, weights, (0.5, 0.95, 0.99), growth=GROWTH))
    (spread,) = _quantiles(np.abs(values - median), weights, (0.5,))
    return DurationFigures(number, total, total / number, median, spread, p95, p99, most)


def _quantiles(
    values: NDArray[np.float64], weights: NDArray[np.int64], shares: Sequence[float], *, growth: float = 1.0
) -> list[float]:
    """Return quantiles of values that stand for so many each, which are spread evenly over a bin that grows so much."""
    order = np.argsort(values)
    ends, counts = np.cumsum(weights[order]), weights[order]

    def at(place: float) -> float:
        found = int(np.searchsorted(ends, place, side="right"))
        within = (place + 0.5 - (ends[found] - counts[found])) / counts[found] - 0.5
        return float(values[order[found]] * growth**within)

    # Linear between two neighbours, as numpy's quantile is.
    found = []
    for share in shares:
        part, place = math.modf(share * (int(ends[-1]) - 1))
        found.append(at(place) * (1 - part) + at(place + (part > 0)) * part)
    return found
