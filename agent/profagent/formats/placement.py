"""When the segments of an inference ran: the runtime stores no start for aicore ones (format page 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["AicoreSegment", "AicpuSegment", "place"]


@dataclass(frozen=True, slots=True)
class AicoreSegment:
    """An aicore segment; `ordinal` is its place in its file, `duration_us` the sum of its records' times."""

    net: int
    ordinal: int
    duration_us: float


@dataclass(frozen=True, slots=True)
class AicpuSegment:
    """An aicpu segment with the times that its own records carry."""

    net: int
    ordinal: int
    start_us: int
    end_us: int


def place(
    inference_start_us: int | None, aicore: Sequence[AicoreSegment], aicpu: Sequence[AicpuSegment]
) -> list[float | None]:
    """Give the start of each aicore segment, in the order given; None where nothing before it has a known end.

    Segments run in the order of their nets. `inference_start_us` is the launch of the first aicore segment, so the
    `start_time` of the aicore `.done`; each later one starts where the segment before it ended.
    """
    segments: list[AicoreSegment | AicpuSegment] = [*aicore, *aicpu]
    segments.sort(key=lambda segment: (segment.net, segment.ordinal))
    starts: dict[int, float | None] = {}
    now_us: float | None = None
    for segment in segments:
        if isinstance(segment, AicpuSegment):
            now_us = segment.end_us
            continue
        if not starts and inference_start_us is not None:
            now_us = inference_start_us
        starts[segment.ordinal] = now_us
        now_us = None if now_us is None else now_us + segment.duration_us
    return [starts[segment.ordinal] for segment in aicore]
