"""An inference of which parts have come: its layers, what is odd about it, and its figures once they are known."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from heapq import nlargest
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.formats.countermap import RATIOS, bound_of
from profagent.formats.figure_states import FigureState
from profagent.formats.names import LogKind, display_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from profagent.formats.board_files import Done
    from profagent.formats.figure_states import Verdict
    from profagent.formats.model_info import LayerTable
    from profagent.formats.names import LogName
    from profagent.ingest.changes import Entry

SLOWEST_LAYERS = 3


class RecordColumns(NamedTuple):
    """Records of an inference on one unit as columns, in the order in which they came; a row each.

    `layer_index` is -1 where no layer is known, `duration` is in ticks, on the CPU in µs. `counters` are the values of
    a counter map by name, none without one.
    """

    unit: LogKind
    segment: NDArray[Any]
    sequence: NDArray[Any]
    layer_index: NDArray[np.int32]
    duration: NDArray[np.float64]
    counters: Mapping[str, NDArray[np.float64]]

    def cut(self, begin: int, end: int) -> RecordColumns:
        """Some consecutive rows."""
        return RecordColumns(
            self.unit,
            self.segment[begin:end],
            self.sequence[begin:end],
            self.layer_index[begin:end],
            self.duration[begin:end],
            {name: column[begin:end] for name, column in self.counters.items()},
        )

    def durations_us(self, us_per_tick: float | None) -> NDArray[np.float64] | None:
        """How long each took; None where the clock is not known."""
        if self.unit is LogKind.AICPU:
            return self.duration
        return None if us_per_tick is None else self.duration * us_per_tick

    def layer(self, row: int, us_per_tick: float | None, table: LayerTable | None) -> Layer:
        """A record's layer and time, as far as clock and table are known."""
        index = int(self.layer_index[row])
        run = table.runs[index] if table and 0 <= index < len(table.runs) else None
        name, type_ = (None, None) if run is None else (run.name, run.type)
        durations = self.durations_us(us_per_tick)
        duration_us = None if durations is None else float(durations[row])
        return Layer(name, type_, duration_us, self._ratios(row), us_per_tick)

    def _ratios(self, row: int) -> NDArray[np.float64] | None:
        if not self.counters:
            return None
        return np.array([self.counters[name][row] if name in self.counters else np.nan for name in RATIOS])


class LayerTimes(NamedTuple):
    """All records of an inference, the table that names their layers, and how long a tick is; None: not known."""

    columns: tuple[RecordColumns, ...]
    us_per_tick: float | None
    table: LayerTable | None


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

    def fields(
        self, verdict: Verdict, us_per_tick: float | None, table: LayerTable | None, *, slowest: int = SLOWEST_LAYERS
    ) -> dict[str, Any]:
        """Its figures, as an event tells them: null, with the reason, where they are not final."""
        is_final = verdict.state is FigureState.FINAL
        unknown: dict[str, Any] = {"total_us": None, "aicpu_us": None, "slowest": []}
        times = self._times(us_per_tick, table, slowest) if is_final else unknown
        return {
            **model_fields(self.name),
            "start_us": (self.done.start_us or None) if is_final and self.done is not None else None,
            "end_us": (self.done.end_us or None) if is_final and self.done is not None else None,
            **times,
            "records": self.records_of_units()[LogKind.AICORE],
            "figures": verdict.state.value,
            "why": verdict.why,
            "ledger": [
                {"grade": entry.grade, "reason": entry.reason, "count": entry.count} for entry in self.entries.values()
            ],
        }

    def _times(self, us_per_tick: float | None, table: LayerTable | None, slowest: int) -> dict[str, Any]:
        aicore = [each for each in self.columns if each.unit is LogKind.AICORE]
        durations: list[float] = []
        for each in aicore:
            known = each.durations_us(us_per_tick)
            durations += [0.0] * len(each.duration) if known is None else known.tolist()
        aicore_us = sum(durations)
        aicpu_us = sum(sum(each.duration.tolist()) for each in self.columns if each.unit is LogKind.AICPU)
        return {
            "total_us": rounded(aicore_us + aicpu_us),
            "aicpu_us": rounded(aicpu_us),
            "slowest": [
                {
                    "layer_name": layer.name,
                    "layer_type": layer.type,
                    "duration_us": rounded(layer.duration_us),
                    "share": _share(layer.duration_us, aicore_us),
                    **layer.bound(),
                }
                for place in nlargest(slowest, range(len(durations)), durations.__getitem__)
                for layer in [_record_at(aicore, place).layer(0, us_per_tick, table)]
            ],
        }


def _record_at(columns: Iterable[RecordColumns], place: int) -> RecordColumns:
    """One record of several columns, by its number in all of them."""
    for each in columns:
        if place < len(each.duration):
            return each.cut(place, place + 1)
        place -= len(each.duration)
    raise AssertionError("it is one of them")


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


def _share(part: float | None, whole: float) -> float | None:
    return None if part is None or not whole else round(part / whole, 4)
