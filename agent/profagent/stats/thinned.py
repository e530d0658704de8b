"""Figures of inferences that a flight recorder has thinned, and their union with those of records."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.errors import UsageError
from profagent.formats.durations import RESOLUTION, Distribution, WeightedDurations
from profagent.formats.inference_times import Latency, LatencyFrom, latency_of
from profagent.formats.names import LogKind
from profagent.stats.figures import UNITS, DurationFigures, LayerColumn, figures_in_place
from profagent.store.database import fetched
from profagent.store.incidents import has_recorders
from profagent.store.queries import layers_of
from profagent.store.thinning import BEGIN, CALL, CALL_REST, LAYERS, RAN, WHOLE, WHOLE_REST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from profagent.formats.inference_times import Spans
    from profagent.store.database import Running
    from profagent.store.queries import LayerRow, Scope

_UNIT_NAMES = {LogKind.AICORE.value: UNITS[0], LogKind.AICPU.value: UNITS[1]}
# The subject of a latency, and that of what no layer explains of it.
LATENCY = {LatencyFrom.CALL: CALL, LatencyFrom.RECORDS: WHOLE, None: WHOLE}
REST = {LatencyFrom.CALL: CALL_REST, LatencyFrom.RECORDS: WHOLE_REST, None: WHOLE_REST}
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

    @property
    def all_inferences(self) -> int:
        """Number of the inferences."""
        return self.of(WHOLE).number

    @property
    def lacking(self) -> int:
        """How many of the inferences lack the record of a layer that most have."""
        return self.of(LAYERS).number - self.inferences.get(LAYERS, 0)

    def without_layers(self) -> ThinnedFigures:
        """Return the figures of latencies alone."""
        kept = {name: found for name, found in self.subjects.items() if name in (CALL, WHOLE, BEGIN, RAN)}
        return self._replace(subjects=kept)

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


def refuse_skip(skip: int | None, thinned: Sequence[ThinnedFigures]) -> None:
    """Raise UsageError if inferences that a flight recorder has thinned are to be left out."""
    if skip and thinned:
        raise UsageError(
            "--skip does not go with a session of a flight recorder",
            hint="its figures are of all inferences, with the warm-up: leave it out",
        )


def merged(distributions: Sequence[Distribution]) -> Distribution | None:
    """Return one distribution of several; None without any value."""
    whole = Distribution()
    for each in distributions:
        whole.merge(each)
    return whole if whole.number else None


def latency_with(whole: Spans, calls: Spans, thinned: Sequence[ThinnedFigures]) -> Latency:
    """Return the latency of inferences, by the rule of `latency_of` over them and those that were thinned."""
    if not thinned:
        return latency_of(whole, calls)
    by_call, by_records = (
        int((~np.isnan(spans.us)).sum()) + sum(each.of(subject).number for each in thinned)
        for spans, subject in ((calls, CALL), (whole, WHOLE))
    )
    if by_call and 2 * by_call >= by_records:
        return Latency(calls, LatencyFrom.CALL)
    return Latency(whole, LatencyFrom.RECORDS if by_records else None)


class WholePace(NamedTuple):
    """Number of inferences that ran from the first begin to the last, and that time."""

    steps: float
    us: float


def whole_pace(
    loads: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]], thinned: Sequence[ThinnedFigures]
) -> WholePace | None:
    """Return the pace of inferences that were kept or thinned; None for several loads, whose counts begin anew.

    `loads` have the begin of each kept inference, and how many ran before it.
    """
    if len(thinned) != 1 or len(loads) > 1:
        return None
    begins, ran = (thinned[0].of(subject) for subject in (BEGIN, RAN))
    ends = np.array([(begins.least, ran.least), (begins.most, ran.most)])
    for begin_us, ran_before in loads:
        known = ~np.isnan(begin_us)
        ends = np.concatenate([ends, np.stack([begin_us[known], ran_before[known]], axis=1)])
    us, steps = np.ptp(ends, axis=0).tolist()
    return WholePace(steps, us) if us > 0 else None


def figures_with(durations: NDArray[np.float64], thinned: Distribution | None) -> DurationFigures:
    """Return the figures of durations and of those in a distribution; the durations are overwritten.

    Number, sum, mean and maximum are exact; median, MAD and percentiles are within RESOLUTION of the median or
    percentile. A MAD below that is None, because bins do not show it.
    """
    if thinned is None:
        return figures_in_place(durations)
    values, weights = found = WeightedDurations.of(durations, thinned)
    number, total = len(durations) + thinned.number, float(durations.sum()) + thinned.total
    most = max(thinned.most, float(durations.max(initial=-np.inf)))
    median, p95, p99 = (min(each, most) for each in found.quantiles((0.5, 0.95, 0.99)))
    (spread,) = WeightedDurations(np.abs(values - median), weights).quantiles((0.5,), growth=1.0)
    mad = spread if spread >= RESOLUTION * abs(median) else None
    return DurationFigures(number, total, total / number, median, mad, p95, p99, most)
