"""The layers of an inference by its records: their names and times, and which place each has. Pure."""

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
    """Records of an inference on one unit as columns, in the order in which they came; a row each.

    `layer_index` is -1 where no layer is known, `duration` is in ticks, on the CPU in µs. `counters` are the values of
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
        """Some consecutive rows."""
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
        """How long each took; None where the clock is not known."""
        if self.unit is LogKind.AICPU:
            return self.duration
        return None if us_per_tick is None else self.duration * us_per_tick

    def ratios(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """The ratios of some rows, shape (rows, ratios), NaN where they are not known."""
        unknown = np.full(len(rows), np.nan)
        return np.stack([self.counters[name][rows] if name in self.counters else unknown for name in RATIOS], axis=1)


@dataclass(frozen=True)
class LayerTimes:
    """All records of an inference, the table that names their layers, and how long a tick is; None: not known.

    `family` is that of the JOB, None for an SS928's. A layer's place is its index in the table, further back on the
    CPU; behind the table's layers there is a place for records of layers that are not known.
    """

    columns: tuple[RecordColumns, ...]
    us_per_tick: float | None
    table: LayerTable | None
    family: str | None = None

    @property
    def of_layers(self) -> int | None:
        """The number of the model's layers; None without a table."""
        return None if self.table is None else len(self.table.runs)

    def places(self, columns: RecordColumns) -> NDArray[np.int64]:
        """The place of each record's layer."""
        known = self.of_layers or 0
        index = columns.layer_index
        places = np.where((index >= 0) & (index < known), index, known).astype(np.int64)
        return places + (known + 1 if columns.unit is LogKind.AICPU else 0)

    @cached_property
    def by_place(self) -> NDArray[np.float64]:
        """The time of each layer in µs, by its place; NaN where it has no record, or a time is not known."""
        width = 2 * ((self.of_layers or 0) + 1)
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
        """The number of layers that were recorded; without a table, that of records."""
        if self.table is None:
            return sum(len(each.duration) for each in self.columns)
        return int((~np.isnan(self.by_place.reshape(2, -1)[:, :-1])).sum())


def rounded(value: float | None, digits: int = 3) -> float | None:
    """A figure for people; None for what is no number."""
    return None if value is None or value != value else round(float(value), digits)  # noqa: PLR0124 - NaN
