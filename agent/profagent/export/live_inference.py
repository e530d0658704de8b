"""An inference of which parts have come: its layers, its `.done`, what is odd about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from profagent.analyse.bound import bound_by
from profagent.formats.names import LogKind, display_text
from profagent.formats.records import RECORD_BYTES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from profagent.formats.done import Done
    from profagent.formats.names import LogName
    from profagent.ingest.changes import Entry

SLOWEST_LAYERS = 3


class Layer(NamedTuple):
    """The layer of a record and how long it took; None for what is not known.

    `ratios` are what its counters say, as of `analyse.bound`; None without a counter map.
    """

    name: str | None
    type: str | None
    duration_us: float | None
    ratios: NDArray[np.float64] | None = None

    def bound(self) -> dict[str, str | None]:
        """What bounds it, as an event tells it: nothing where no counter map is there to tell."""
        return {} if self.ratios is None else {"bound_by": bound_by(self.ratios)}


@dataclass(slots=True)
class OpenInference:
    """What has come of an inference. Times are microseconds."""

    name: LogName
    layers: list[Layer] = field(default_factory=list)
    aicpu_layers: list[Layer] = field(default_factory=list)
    entries: dict[str, Entry] = field(default_factory=dict)
    done: Done | None = None
    is_vouched: bool = False

    def of_unit(self, kind: LogKind) -> list[Layer]:
        """The records of one unit."""
        return self.aicpu_layers if kind is LogKind.AICPU else self.layers

    def is_whole(self, *, with_aicpu: bool) -> bool:
        """Whether its records are all here; `with_aicpu`: earlier inferences of its model had a part there."""
        if self.done is None:
            return False
        has_parts = bool(self.aicpu_layers) or not with_aicpu
        size = len(self.layers) * RECORD_BYTES[LogKind.AICORE]
        return self.is_vouched or (has_parts and 0 < self.done.file_len <= size)

    @property
    def size(self) -> int:
        """How many records have come."""
        return len(self.layers) + len(self.aicpu_layers)

    @property
    def has_records(self) -> bool:
        """Whether anything of it has come."""
        return bool(self.layers or self.aicpu_layers)

    def fields(self) -> dict[str, Any]:
        """Its figures, as an event tells them."""
        known = [layer for layer in self.layers if layer.duration_us is not None]
        aicore_us = sum(layer.duration_us or 0.0 for layer in known)
        aicpu_us = sum(layer.duration_us or 0.0 for layer in self.aicpu_layers)
        slowest = sorted(known, key=lambda layer: -(layer.duration_us or 0.0))[:SLOWEST_LAYERS]
        return {
            **model_fields(self.name),
            "start_us": (self.done.start_us or None) if self.done is not None else None,
            "end_us": (self.done.end_us or None) if self.done is not None else None,
            "total_us": rounded(aicore_us + aicpu_us) if known or self.aicpu_layers else None,
            "aicpu_us": rounded(aicpu_us),
            "records": len(self.layers),
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
            "ledger": [
                {"grade": entry.grade, "reason": entry.reason, "count": entry.count} for entry in self.entries.values()
            ],
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


def _share(part: float | None, whole: float) -> float | None:
    return None if part is None or not whole else round(part / whole, 4)
