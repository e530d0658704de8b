"""Layers of an inference by its records: their names, times and places. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.formats.countermap import RATIOS
from profagent.formats.names import LogKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from profagent.formats.model_info import LayerTable


class RecordColumns(NamedTuple):
    """Records of an inference on one unit as columns, in the order in which they came.

    `layer_index` is -1 where no layer is known; `duration` is in ticks, on the CPU in µs. `counters` are the values of
    a counter map by name, none without one. `segment_times` are begin and end in µs of each record's segment on the
    CPU.
    """

    unit: LogKind
    segment: NDArray[Any]
    sequence: NDArray[Any]
    layer_index: NDArray[np.int32]
    duration: NDArray[np.float64]
    counters: Mapping[str, NDArray[np.float64]]
    segment_times: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def cut(self, begin: int, end: int) -> RecordColumns:
        """Return the records from `begin` to before `end`."""
        return RecordColumns(
            self.unit,
            self.segment[begin:end],
            self.sequence[begin:end],
            self.layer_index[begin:end],
            self.duration[begin:end],
            {name: column[begin:end] for name, column in self.counters.items()},
            self.segment_times and (self.segment_times[0][begin:end], self.segment_times[1][begin:end]),
        )

    def durations_us(self, us_per_tick: float | None) -> NDArray[np.float64] | None:
        """Return the duration of each record in µs; None where the clock is unknown."""
        if self.unit is LogKind.AICPU:
            return self.duration
        return None if us_per_tick is None else self.duration * us_per_tick

    def ratios(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return the ratios of some records, shape (rows, ratios), NaN where unknown."""
        unknown = np.full(len(rows), np.nan)
        return np.stack([self.counters[name][rows] if name in self.counters else unknown for name in RATIOS], axis=1)


@dataclass(frozen=True)
class LayerTimes:
    """Records of an inference, the table that names their layers, and the length of a tick; None is unknown.

    `family` is that of the JOB, None for an SS928's. A layer's place is its index in the table; on the CPU the places
    follow those on the NPU. Behind the layers of each unit there is one place for records of unknown layers.
    """

    columns: tuple[RecordColumns, ...]
    us_per_tick: float | None
    table: LayerTable | None
    family: str | None = None

    @property
    def of_layers(self) -> int | None:
        """Number of the model's layers; None without a table."""
        return None if self.table is None else len(self.table.runs)

    def places(self, columns: RecordColumns) -> NDArray[np.int64]:
        """Return the place of each record's layer."""
        known = self.of_layers or 0
        index = columns.layer_index
        places = np.where((index >= 0) & (index < known), index, known).astype(np.int64)
        return places + (known + 1 if columns.unit is LogKind.AICPU else 0)

    @cached_property
    def by_place(self) -> NDArray[np.float64]:
        """Time of each layer in µs, by its place; NaN where it has no record, or the clock is unknown."""
        width = 2 * ((self.of_layers or 0) + 1)
        # A layer with a time of 0 is recorded: a mask tells it from a layer without a record.
        times, has_record = np.zeros(width), np.zeros(width, np.bool_)
        for columns in self.columns:
            durations = columns.durations_us(self.us_per_tick)
            if durations is not None:
                places = self.places(columns)
                has_record[places] = True
                times += np.bincount(places, durations, width)
        times[~has_record] = np.nan
        return times

    @property
    def recorded(self) -> int:
        """Number of layers that were recorded; without a table, number of records."""
        if self.table is None:
            return sum(len(each.duration) for each in self.columns)
        # The last place of each unit is that of records of unknown layers, which are no layers of the table.
        return int((~np.isnan(self.by_place.reshape(2, -1)[:, :-1])).sum())


def rounded(value: float | None, digits: int = 3) -> float | None:
    """Return a figure rounded for people; None for None and NaN."""
    return None if value is None or value != value else round(float(value), digits)  # noqa: PLR0124 - NaN
