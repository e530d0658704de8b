"""An inference of which parts have come: its layers, what is odd about it, and its figures once they are known."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from heapq import nlargest
from math import nan
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.formats.countermap import RATIOS, bound_of, mean_ratios
from profagent.formats.figure_states import FigureState
from profagent.formats.inference_times import Parts
from profagent.formats.names import LogKind, display_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from profagent.formats.board_files import Done
    from profagent.formats.figure_states import Verdict
    from profagent.formats.model_info import LayerTable
    from profagent.formats.names import LogName
    from profagent.ingest.changes import Entry
    from profagent.ingest.live_latency import InferenceTimes

SLOWEST_LAYERS = 3


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

    def layer(self, row: int, us_per_tick: float | None, table: LayerTable | None) -> Layer:
        """A record's layer and time, as far as clock and table are known."""
        name, type_ = _named(table, int(self.layer_index[row]))
        durations = self.durations_us(us_per_tick)
        duration_us = None if durations is None else float(durations[row])
        ratios = self.ratios(np.array([row])) if self.counters else None
        return Layer(name, type_, self.unit, duration_us, None if ratios is None else ratios[0], us_per_tick)

    def ratios(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """The ratios of some rows, shape (rows, ratios), NaN where they are not known."""
        unknown = np.full(len(rows), np.nan)
        return np.stack([self.counters[name][rows] if name in self.counters else unknown for name in RATIOS], axis=1)


def _named(table: LayerTable | None, index: int) -> tuple[str | None, str | None]:
    """Return the name and type of a layer; None where the table has none at this index."""
    if table is None or not 0 <= index < len(table.runs):
        return None, None
    return table.runs[index].name, table.runs[index].type


@dataclass(frozen=True)
class LayerTimes:
    """All records of an inference, the table that names their layers, and how long a tick is; None: not known.

    A layer's place is its index in the table, further back on the CPU; behind the table's layers there is a place for
    records of layers that are not known.
    """

    columns: tuple[RecordColumns, ...]
    us_per_tick: float | None
    table: LayerTable | None

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

    def layer(self, place: int, duration_us: float) -> Layer:
        """The layer with this place."""
        is_cpu, index = divmod(place, (self.of_layers or 0) + 1)
        unit = LogKind.AICPU if is_cpu else LogKind.AICORE
        name, type_ = _named(self.table, index)
        found: list[NDArray[np.float64]] = []
        ticks: list[NDArray[np.float64]] = []
        for columns in self.columns:
            if columns.unit is unit and columns.counters:
                (rows,) = (self.places(columns) == place).nonzero()
                found.append(columns.ratios(rows))
                ticks.append(columns.duration[rows])
        ratios = mean_ratios(np.concatenate(found), np.concatenate(ticks)) if found else None
        return Layer(name, type_, unit, duration_us, ratios, self.us_per_tick)


class ToldInference(NamedTuple):
    """All that is known of an inference that another tool told: its kernels, and the table that names them."""

    job: str
    name: LogName
    records: RecordColumns
    table: LayerTable
    done: Done


class Layer(NamedTuple):
    """The layer of a record and how long it took; None for what is not known."""

    name: str | None
    type: str | None
    unit: LogKind
    duration_us: float | None
    ratios: NDArray[np.float64] | None = None
    us_per_tick: float | None = None

    def bound(self) -> dict[str, str | None]:
        """What bounds it, as an event tells it: nothing where no counter map is there to tell."""
        return {} if self.ratios is None else {"bound_by": bound_of(self.ratios, self.us_per_tick)}


@dataclass(slots=True)
class OpenInference:
    """What has come of an inference. `since_s`: when the first of it came, by the clock of whoever watches."""

    name: LogName
    since_s: float
    columns: list[RecordColumns] = field(default_factory=list)
    entries: dict[str, Entry] = field(default_factory=dict)
    done: Done | None = None
    # The state in which it was told last; None before it was.
    shown: FigureState | None = None
    # What of it is counted, None before it is, and how many of its records were told one by one.
    counted: Counter[LogKind] | None = None
    shown_records: int = 0

    @property
    def records(self) -> int:
        """How many have come, on both units."""
        return sum(len(each.duration) for each in self.columns)

    def records_of_units(self) -> Counter[LogKind]:
        """How many have come on each."""
        found: Counter[LogKind] = Counter()
        for each in self.columns:
            found[each.unit] += len(each.duration)
        return found

    def drop_unit(self, kind: LogKind) -> None:
        """The records of a unit come anew."""
        shown = 0
        for columns in self.columns_from(0, self.shown_records):
            shown += 0 if columns.unit is kind else len(columns.duration)
        self.shown_records = shown
        self.columns = [each for each in self.columns if each.unit is not kind]

    def columns_from(self, first: int, end: int | None = None) -> Iterator[RecordColumns]:
        """The records with these numbers, in the order in which they came."""
        for columns in self.columns:
            count = len(columns.duration)
            if first < count and (end is None or end > 0):
                yield columns.cut(max(first, 0), count if end is None else min(end, count))
            first, end = first - count, None if end is None else end - count

    @property
    def span(self) -> tuple[float, float]:
        """Its first begin and last end on both processors in µs; NaN where one is not known, or none was used."""
        begins: list[float] = []
        ends: list[float] = []
        if self.done is not None or any(each.unit is LogKind.AICORE for each in self.columns):
            begins.append((self.done and self.done.start_us) or nan)
            ends.append((self.done and self.done.end_us) or nan)
        for each in self.columns:
            if each.segment_times is not None:
                begins.append(float(each.segment_times[0].min()) or nan)
                ends.append(float(each.segment_times[1].max()))
        is_known = bool(begins) and all(each == each for each in (*begins, *ends))  # noqa: PLR0124 - NaN
        return (min(begins), max(ends)) if is_known else (nan, nan)

    def fields(
        self, verdict: Verdict, layers: LayerTimes, times: InferenceTimes, *, slowest: int = SLOWEST_LAYERS
    ) -> dict[str, Any]:
        """Its figures, as an event tells them: null, with the reason, where they are not final."""
        is_final = verdict.state is FigureState.FINAL
        return {
            **model_fields(self.name),
            "start_us": (self.done.start_us or None) if is_final and self.done is not None else None,
            "end_us": (self.done.end_us or None) if is_final and self.done is not None else None,
            **(_times(layers, times, slowest) if is_final else _UNKNOWN_TIMES),
            "of_layers": layers.of_layers,
            "records": self.records,
            "figures": verdict.state.value,
            "why": verdict.why,
            "ledger": [
                {"grade": entry.grade, "reason": entry.reason, "count": entry.count} for entry in self.entries.values()
            ],
        }


_UNKNOWN_TIMES: Mapping[str, Any] = {
    "latency_us": None,
    "latency_from": None,
    "layers_us": None,
    "aicpu_us": None,
    "slowest": [],
    "recorded": None,
}


def _times(layers: LayerTimes, inference: InferenceTimes, slowest: int) -> dict[str, Any]:
    """The times of an inference whose figures are final: its latency, its layers, and the slowest of these."""
    times = layers.by_place
    (places,) = (~np.isnan(times)).nonzero()
    latency_us, origin = inference.latency
    parts = Parts(float(times[places].sum()), latency_us)
    return {
        "latency_us": rounded(latency_us),
        "latency_from": origin,
        "layers_us": rounded(parts.layers_us),
        "aicpu_us": rounded(float(times[places[places >= len(times) // 2]].sum())),
        "slowest": [
            {
                "layer_name": layer.name,
                "layer_type": layer.type,
                "unit": layer.unit.value,
                "duration_us": rounded(layer.duration_us),
                "share": _share(parts, float(times[place])),
                **layer.bound(),
            }
            for place in nlargest(slowest, places.tolist(), times.__getitem__)
            for layer in [layers.layer(place, float(times[place]))]
        ],
        "recorded": layers.recorded,
    }


def model_fields(name: LogName) -> dict[str, Any]:
    """What a file's name says of an inference."""
    return {
        "model": display_text(name.model or ""),
        "model_id": name.model_id,
        "device_id": name.device,
        "stream_id": name.stream,
        "batch_num": name.batch_num,
        "input_pic_num": name.input_pic_num,
        "current_pic_count": name.current_pic_count,
    }


def rounded(value: float | None, digits: int = 3) -> float | None:
    """A figure for people; None for what is no number."""
    return None if value is None or value != value else round(float(value), digits)  # noqa: PLR0124 - NaN


def _share(parts: Parts, us: float) -> float | None:
    share = parts.share(us)
    return None if share is None else round(share / 100, 4)
