"""An inference of which parts have come: its layers, what is odd about it, and its figures once they are known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from profagent.formats.countermap import bound_by
from profagent.formats.figure_states import FigureState
from profagent.formats.names import LogKind, display_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from profagent.formats.board_files import Done
    from profagent.formats.figure_states import Verdict
    from profagent.formats.model_info import LayerTable
    from profagent.formats.names import LogName
    from profagent.ingest.changes import Entry

SLOWEST_LAYERS = 3


class LiveRecord(NamedTuple):
    """A record: its segment and number in that, its layer's index (-1: none), its ticks, or its time in µs on the CPU.

    `counters` are the values of a counter map by name, `ratios` what they say, as of `analyse.bound`.
    """

    unit: LogKind
    segment: int
    sequence: int
    layer_index: int
    duration: float
    counters: dict[str, float]
    ratios: NDArray[np.float64] | None = None


class Layer(NamedTuple):
    """The layer of a record and how long it took; None for what is not known."""

    name: str | None
    type: str | None
    duration_us: float | None
    ratios: NDArray[np.float64] | None = None

    def bound(self) -> dict[str, str | None]:
        """What bounds it, as an event tells it: nothing where no counter map is there to tell."""
        return {} if self.ratios is None else {"bound_by": bound_by(self.ratios)}


@dataclass(slots=True)
class OpenInference:
    """What has come of an inference. `since_s`: when the first of it came, by the clock of whoever watches."""

    name: LogName
    since_s: float
    records: list[LiveRecord] = field(default_factory=list)
    entries: dict[str, Entry] = field(default_factory=dict)
    done: Done | None = None
    # The state in which it was told last; None before it was.
    shown: FigureState | None = None
    # Whether it is counted, and how many of its records were told: what was partial may become final.
    is_counted: bool = False
    shown_records: int = 0

    def drop_unit(self, kind: LogKind) -> None:
        """The records of a unit come anew."""
        self.shown_records = sum(record.unit is not kind for record in self.records[: self.shown_records])
        self.records = [record for record in self.records if record.unit is not kind]

    def fields(self, verdict: Verdict, us_per_tick: float | None, table: LayerTable | None) -> dict[str, Any]:
        """Its figures, as an event tells them: null, with the reason, where they are not final."""
        is_final = verdict.state is FigureState.FINAL
        times = self._times(us_per_tick, table) if is_final else {"total_us": None, "aicpu_us": None, "slowest": []}
        return {
            **model_fields(self.name),
            "start_us": (self.done.start_us or None) if is_final and self.done is not None else None,
            "end_us": (self.done.end_us or None) if is_final and self.done is not None else None,
            **times,
            "records": sum(record.unit is LogKind.AICORE for record in self.records),
            "figures": verdict.state.value,
            "why": verdict.why,
            "ledger": [
                {"grade": entry.grade, "reason": entry.reason, "count": entry.count} for entry in self.entries.values()
            ],
        }

    def _times(self, us_per_tick: float | None, table: LayerTable | None) -> dict[str, Any]:
        layers = [layer_of(record, us_per_tick, table) for record in self.records if record.unit is LogKind.AICORE]
        aicore_us = sum(layer.duration_us or 0.0 for layer in layers)
        aicpu_us = sum(record.duration for record in self.records if record.unit is LogKind.AICPU)
        slowest = sorted(layers, key=lambda layer: -(layer.duration_us or 0.0))[:SLOWEST_LAYERS]
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
                for layer in slowest
            ],
        }


def layer_of(record: LiveRecord, us_per_tick: float | None, table: LayerTable | None) -> Layer:
    """A record's layer and time, as far as clock and table are known."""
    run = table.runs[record.layer_index] if table and 0 <= record.layer_index < len(table.runs) else None
    name, type_ = (None, None) if run is None else (run.name, run.type)
    if record.unit is LogKind.AICPU:
        return Layer(name, type_, record.duration, record.ratios)
    return Layer(name, type_, None if us_per_tick is None else record.duration * us_per_tick, record.ratios)


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
