"""Times of inferences and of their slowest layers, computed from columns for many inferences at once.

A layer's time is summed in the order of the log, so that the same records give the same figures to the last bit.
"""

from __future__ import annotations

from itertools import islice, repeat
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.formats.countermap import bound_in, means_of_groups
from profagent.formats.figure_states import FigureState
from profagent.formats.inference_layers import LayerTimes
from profagent.formats.records import ticks_to_us
from profagent.limits import TIMES_TOGETHER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from profagent.store.inference_columns import InferenceColumns

    Floats = NDArray[np.float64]

SLOWEST_LAYERS = 3


class SlowLayer(NamedTuple):
    """A slow layer: its place as in LayerTimes, its time in µs, and `bound_by`, empty without a counter map."""

    place: int
    us: float
    bound: dict[str, str | None]


class Figures(NamedTuple):
    """Times of an inference in µs: of its recorded layers, of those on the CPU, and of the slowest.

    `recorded` is the number of recorded layers.
    """

    layers_us: float
    aicpu_us: float
    recorded: int
    slowest: tuple[SlowLayer, ...]


def figures_of(columns: InferenceColumns, slowest: int = SLOWEST_LAYERS) -> list[Figures | None]:
    """Return the figures of each inference; None where they are not final."""
    found: list[Figures | None] = [None] * len(columns.rows)
    # Inferences of one model, clock and family are computed together.
    alike: dict[tuple[int, int | None, str | None], list[int]] = {}
    for place, row in enumerate(columns.rows):
        if row.figures == FigureState.FINAL:
            alike.setdefault((row.model, row.frequency_mhz, row.family), []).append(place)
    for (model, mhz, family), places in alike.items():
        units = tuple(unit.records for unit in columns.units)
        layers = LayerTimes(units, us_per_tick(mhz), columns.tables.get(model), family)
        model_times = _FigureComputation(columns, layers, slowest)
        # Bounds the array of times, which has `width` cells for each inference.
        together = max(1, TIMES_TOGETHER // model_times.width)
        for begin in range(0, len(places), together):
            some = places[begin : begin + together]
            for place, figures in zip(some, model_times.figures(some), strict=True):
                found[place] = figures
    return found


def us_per_tick(frequency_mhz: int | None) -> float | None:
    """Return the length of a tick in µs; None while the clock is unknown."""
    return None if frequency_mhz is None else ticks_to_us(1, frequency_mhz)


class _FigureComputation:
    """Computation of the figures of inferences of one model, many at once.

    Times lie in one array: for each inference a row of `width` cells, first the layers on the NPU, then those on the
    CPU, with one cell behind each for records without a known layer.
    """

    def __init__(self, columns: InferenceColumns, layers: LayerTimes, slowest: int) -> None:
        """Set the model's columns; `layers` has the records of all inferences, as if they were one."""
        self._columns, self._layers, self._slowest = columns, layers, slowest
        # Number of layers of the model, None where its table is missing.
        self._known = self._layers.of_layers
        # Cells of an inference: layers of both units, and a cell of unknown layers for each.
        self.width = 2 * ((self._known or 0) + 1)

    def figures(self, places: Sequence[int]) -> Iterator[Figures]:
        """Return the figures of the inferences at these places."""
        columns = self._columns
        row_of = np.full(len(columns.rows), -1)
        row_of[places] = np.arange(len(places))
        size = len(places) * self.width
        times, has_record = np.zeros(size), np.zeros(size, np.bool_)
        cells = []
        for unit in columns.units:
            at = row_of[unit.inference]
            cell = np.where(at >= 0, at * self.width + self._layers.places(unit.records), -1)
            durations = unit.records.durations_us(self._layers.us_per_tick)
            if durations is not None:
                ours = cell >= 0
                has_record[cell[ours]] = True
                times += np.bincount(cell[ours], durations[ours], size)
            cells.append(cell)
        by_place = times.reshape(-1, self.width)
        is_known = has_record.reshape(len(places), 2, -1)
        if self._known is None:
            recorded = sum(unit.counts(len(columns.rows))[places] for unit in columns.units)
        else:
            recorded = is_known[:, :, :-1].sum(axis=(1, 2))
        totals = (
            by_place.sum(axis=1).tolist(),
            by_place[:, self.width // 2 :].sum(axis=1).tolist(),
            np.asarray(recorded).tolist(),
        )
        return map(Figures, *totals, self._slow(np.where(has_record, times, -np.inf), cells[0]))

    def _slow(self, times: Floats, aicore_cell: NDArray[np.int64]) -> list[tuple[SlowLayer, ...]]:
        by_place = times.reshape(-1, self.width)
        if not self._slowest:
            return [()] * len(by_place)
        rows = np.arange(len(by_place))
        slow_at = np.zeros((len(rows), self._slowest), np.int64)
        slow_us = np.zeros((len(rows), self._slowest))
        for number in range(self._slowest):
            place = by_place.argmax(axis=1)
            slow_at[:, number], slow_us[:, number] = place, by_place[rows, place]
            # Taken: the next round finds the next slowest.
            by_place[rows, place] = -np.inf
        is_there = slow_us > -np.inf  # an inference may have fewer
        cells = np.where(is_there, rows[:, np.newaxis] * self.width + slow_at, times.size)
        bounds = iter(self._bounds(cells.ravel(), times.size, aicore_cell))
        slow = zip(slow_at.tolist(), slow_us.tolist(), is_there.sum(axis=1).tolist(), strict=True)
        return [
            tuple(map(SlowLayer, places, durations, islice(bounds, self._slowest)))[:number]
            for places, durations, number in slow
        ]

    def _bounds(
        self, cells: NDArray[np.int64], size: int, aicore_cell: NDArray[np.int64]
    ) -> Iterable[dict[str, str | None]]:
        """Return what bounds the layers in these cells, by the means of their counters' ratios.

        The cell `size` stands for no layer.
        """
        records = self._columns.aicore.records
        if not records.counters:
            return repeat({})
        # One cell more: `size` as an index stands for no layer, and must not name a group.
        group_of = np.full(size + 1, -1)
        group_of[cells] = np.arange(len(cells))
        group_of[size] = -1  # as the records of other inferences have it
        group = group_of[aicore_cell]
        (chosen,) = (group >= 0).nonzero()
        means = means_of_groups(records.ratios(chosen), records.duration[chosen], group[chosen], len(cells))
        is_aicore = (cells % self.width < self.width // 2).tolist()
        bound = bound_in(self._layers.family)
        return (
            {"bound_by": bound(ratios)} if is_ours else {}
            for ratios, is_ours in zip(means.tolist(), is_aicore, strict=True)
        )
