"""What the pretend hardware produces for one inference, drawn ahead of time so that running costs little. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from profagentd.simulate import encode
from profagentd.simulate.encode import WORDS_BYTES, Counter, pack_words
from profagentd.simulate.network import AICORE, Network, Run, Segment, run_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from random import Random


def numbered_order(
    is_batch: Sequence[bool], sizes: Sequence[int], loops: int, facts: Mapping[str, str]
) -> list[tuple[int, int, int]]:
    """The runs of a segment as they are executed: (index, pictures it works on, sequence number)."""
    way = facts["batch-number"]
    batches = [run_order(is_batch, size) for size in sizes]
    if way == "once":
        batches = [[(index, size) for size in sizes for index in range(len(is_batch))]]
    elif way == "on":
        batches = [[record for batch in batches for record in batch]]
    one_pass = [
        (index, pictures, index if way == "each-picture" else number)
        for batch in batches
        for number, (index, pictures) in enumerate(batch)
    ]
    further = len(one_pass) if facts["loop-number"] == "on" else 0
    return [(index, pictures, number + each * further) for each in range(loops) for index, pictures, number in one_pass]


FREQUENCY_MHZ = 700
"""The constant that the SS928 driver reports (format page 2.2)."""

TICKS_PER_US = {"100-cycles": FREQUENCY_MHZ / 100, "cycle": float(FREQUENCY_MHZ), "10-ns": 100.0, "us": 1.0}
"""How fast the counter of a record's time runs, by what it counts."""

MAX_JUMP = 10
"""The library drops a record whose sequence number is further on than this (format page 3.1)."""

LAUNCH_US = 12
"""Time before each segment; invented."""

_TIME_JITTER, _COUNTER_JITTER = 0.02, 0.01
_DISTURBED = 1 / 400
_STALE_BY, _FAR_BY = 3, 50
_NOISE_OFFSET_BYTES = 0x34 - 0x08
_NOISE_BYTES = 0x74 - 0x34
_CACHE_PER_RECORD = (110.0, 3.0)

_MAX_VARIANTS, _MIN_VARIANTS = 16, 2
_RECORDS_DRAWN = 20_000

HardwareRecord = tuple[int, int, bytes]
"""Sequence number, ticks, and the hardware's words from 0x08 on."""


@dataclass(frozen=True)
class SegmentDraw:
    """One execution of one segment.

    `data` holds an aicore segment's kept records; `layers_us` an aicpu segment's layers as (begin, end) from its start.
    """

    number: int
    unit: str
    duration_us: int
    data: bytes = b""
    layers_us: tuple[tuple[int, int], ...] = ()

    def bytes_at(self, start_us: int) -> bytes:
        """The segment's records when it starts at this time (microseconds since the epoch)."""
        if self.unit == AICORE:
            return self.data
        span_us = (start_us, start_us + self.duration_us)
        return b"".join(
            encode.aicpu_record(sequence, (start_us + begin_us, start_us + end_us), span_us, self.number)
            for sequence, (begin_us, end_us) in enumerate(self.layers_us)
        )


@dataclass(frozen=True)
class InferenceDraw:
    """One inference: its segments in order, and the instruction cache's (hits, misses)."""

    segments: tuple[SegmentDraw, ...]
    cache: tuple[int, int]

    @property
    def duration_us(self) -> int:
        """From the first launch to the end of the last segment."""
        return sum(LAUNCH_US + segment.duration_us for segment in self.segments)

    @property
    def aicore_records(self) -> int:
        """Records that its aicore segments leave."""
        return sum(len(segment.data) for segment in self.segments) // encode.AICORE_BYTES

    def placed(self, start_us: int) -> Iterator[tuple[int, SegmentDraw]]:
        """Each segment with its own start when the inference starts at this time."""
        for segment in self.segments:
            start_us += LAUNCH_US
            yield start_us, segment
            start_us += segment.duration_us


class Drawing:
    """Draws inferences of one network for a fixed number of pictures.

    Without `gaps` the hardware makes no record that the library would drop.
    """

    def __init__(
        self,
        network: Network,
        pictures: int,
        counters: tuple[Counter, ...],
        rng: Random,
        facts: Mapping[str, str],
        *,
        gaps: bool = True,
    ) -> None:
        self._network = network
        self._pictures = pictures
        self._sizes = network.batch_sizes(pictures)
        self._counters = counters
        self._rng = rng
        self._facts = facts
        self._ticks_per_us = TICKS_PER_US[facts["tick-unit"]]
        self._gaps = gaps

    def variants(self) -> tuple[InferenceDraw, ...]:
        """So many different inferences that a steady state looks alive, and so few that drawing them is quick."""
        records = sum(len(segment.runs) * segment.loops for segment in self._network.segments) * self._pictures
        count = min(max(_RECORDS_DRAWN // records, _MIN_VARIANTS), _MAX_VARIANTS)
        return tuple(self._inference() for _ in range(count))

    def _inference(self) -> InferenceDraw:
        segments = tuple(
            self._aicore(number, segment) if segment.unit == AICORE else self._aicpu(number, segment)
            for number, segment in enumerate(self._network.segments)
        )
        records = sum(len(segment.data) for segment in segments) // encode.AICORE_BYTES
        hits, misses = (round(each * records * self._factor(_TIME_JITTER)) for each in _CACHE_PER_RECORD)
        return InferenceDraw(segments, (hits, misses))

    def _aicore(self, number: int, segment: Segment) -> SegmentDraw:
        order = numbered_order([run.is_batch for run in segment.runs], self._sizes, segment.loops, self._facts)
        records = [self._record(segment.runs[index], pictures) for index, pictures, _ in order]
        numbered = [(self._sequence(number), *record) for (_, _, number), record in zip(order, records)]
        data = b"".join(encode.aicore_record(*record, number) for record in kept(numbered))
        ticks = sum(ticks for ticks, _ in records)
        return SegmentDraw(number, segment.unit, math.ceil(ticks / self._ticks_per_us), data=data)

    def _aicpu(self, number: int, segment: Segment) -> SegmentDraw:
        # An AICPU goes through its layers once for each picture.
        runs = segment.runs * (self._pictures * segment.loops)
        ends_us = list(accumulate(round(self._time_us(run, 1)) for run in runs))
        begins_us = [0, *ends_us[:-1]]
        return SegmentDraw(number, segment.unit, ends_us[-1], layers_us=tuple(zip(begins_us, ends_us)))

    def _record(self, run: Run, pictures: int) -> tuple[int, bytes]:
        ticks = max(round(self._time_us(run, pictures) * self._ticks_per_us), 0 if self._gaps else 1)
        return ticks, pack_words(self._counters, self._values(run, ticks), ticks, self._noise())

    def _values(self, run: Run, ticks: int) -> Mapping[str, float]:
        values = {}
        for counter in self._counters:
            name = counter.name
            drawn = run.counters.get(name, 0.0) * self._factor(_COUNTER_JITTER)
            values[name] = drawn * ticks / self._ticks_per_us if name.endswith("_bytes") else min(drawn, 1.0)
        for unit in ("mac", "vec"):
            values[f"{unit}_ppen"] = min(values[f"{unit}_ppen"], values[f"{unit}_busy"])
        return values

    def _noise(self) -> bytes:
        """Words beside the counters, which mean nothing: a map must not be found where none is."""
        noise = self._rng.getrandbits(8 * _NOISE_BYTES).to_bytes(_NOISE_BYTES, "little")
        return (bytes(_NOISE_OFFSET_BYTES) + noise).ljust(WORDS_BYTES, b"\0")

    def _sequence(self, number: int) -> int:
        """The record's own number, now and then a stale one or one far ahead, which the library drops."""
        if not self._gaps or number < _STALE_BY or self._rng.random() >= _DISTURBED:
            return number
        return number - _STALE_BY if self._rng.random() < 1 / 2 else number + _FAR_BY

    def _time_us(self, run: Run, pictures: int) -> float:
        return run.time_us * pictures * self._factor(_TIME_JITTER)

    def _factor(self, spread: float) -> float:
        """A factor near 1, never beyond four times the spread."""
        return 1 + spread * max(-4.0, min(4.0, self._rng.gauss(0.0, 1.0)))


def kept(records: Iterable[HardwareRecord]) -> list[HardwareRecord]:
    """What the library's filter leaves of one segment's records (format page 3.1).

    Dropped: no ticks, a number below the last one kept, a jump of more than 10 from it; that number begins at 0.
    """
    left: list[HardwareRecord] = []
    previous = 0
    for record in records:
        sequence, ticks, _ = record
        if ticks and previous <= sequence <= previous + MAX_JUMP:
            left.append(record)
            previous = sequence
    return left
