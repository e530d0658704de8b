"""An inference of which parts have come: its layers, what is odd about it, and its figures once they are known."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from heapq import nlargest
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np

from profagent.formats.figure_states import FigureState
from profagent.formats.inference_layers import LayerTimes, RecordColumns, rounded
from profagent.formats.inference_times import Parts
from profagent.formats.names import LogKind, display_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from profagent.formats.board_files import Done
    from profagent.formats.figure_states import Verdict
    from profagent.formats.names import LogName
    from profagent.ingest.changes import Entry
    from profagent.ingest.live_latency import InferenceTimes

SLOWEST_LAYERS = 3


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


def _share(parts: Parts, us: float) -> float | None:
    share = parts.share(us)
    return None if share is None else round(share / 100, 4)
