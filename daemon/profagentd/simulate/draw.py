"""The simulated hardware's data of an inference, drawn ahead of time so that running costs little. No I/O."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from profagentd.simulate.network import (
    AICORE,
    CompiledModel,
    FusedRun,
    SimulatedLayer,
    UnitSegment,
    read_toml,
    run_order,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from random import Random


MAP_FILE = Path(__file__).with_name("counter-map.toml")

WORDS_OFFSET_BYTES = 0x08
# The hardware's words of a record lie between the duration and the segment's number (the-format.md 3.1).
WORDS_BYTES = 0xFC - WORDS_OFFSET_BYTES

CYCLES_PER_TICK = 100

_FORMATS = {"u16": "<H", "u32": "<I", "u64": "<Q"}


@dataclass(frozen=True)
class CounterWord:
    """Place and scale of a counter: value = word x scale / denominator."""

    name: str
    offset: int
    form: str
    scale: float
    denominator: str


def load_counters() -> tuple[CounterWord, ...]:
    """Return the counters of the package's own map."""
    tables = read_toml(MAP_FILE)["counters"]
    return tuple(
        CounterWord(name, table["offset"], _FORMATS[table["type"]], table["scale"], table["denominator"])
        for name, table in tables.items()
    )


def pack_words(counters: tuple[CounterWord, ...], values: Mapping[str, float], ticks: int, rest: bytes) -> bytes:
    """Return the hardware's words of a record: `rest`, with each counter's nearest word that its type can hold."""
    words = bytearray(rest)
    per_value = {"ticks": ticks, "cycles": ticks * CYCLES_PER_TICK, "none": 1}
    for counter in counters:
        limit = 256 ** struct.calcsize(counter.form) - 1
        word = min(round(values[counter.name] * per_value[counter.denominator] / counter.scale), limit)
        struct.pack_into(counter.form, words, counter.offset - WORDS_OFFSET_BYTES, word)
    return bytes(words)


AICORE_BYTES = 256

API_LOAD, API_UNLOAD, API_EXECUTE, API_AICPU = 0, 1, 2, 5  # API ids of acl_api records (the-format.md 3.3)

_API_MAGIC = 0x5A5A

# The encoding bits of a TLV tag (the-format.md 2.4).
_U8, _U16, _BYTES8, BYTES16, BYTES32 = 0x2000, 0x4000, 0x8000, 0xA000, 0xC000

_FORMS = {_U8: "<HB", _U16: "<HH", _BYTES8: "<HB", BYTES16: "<HH", BYTES32: "<HI"}

# The library omits the first four bytes of net.info: the first container's tag and 16-bit length (the-format.md 2.4).
_CUT_HEAD_BYTES = 4
# The end of a text and a number, which some compilers put before the containers (the-format.md 2.4).
_CUT_ITEM = b"nfo\0" + struct.pack("<HB", _U8 | 0x00B, 2)


def aicore_record(sequence: int, ticks: int, words: bytes, segment: int) -> bytes:
    """Return a 256-byte aicore record (the-format.md 3.1); `words` are the hardware's bytes from 0x08 on."""
    return struct.pack("<II244sI", sequence, ticks, words, segment)


def aicpu_record(sequence: int, layer_us: tuple[int, int], segment_us: tuple[int, int], segment: int) -> bytes:
    """Return a 128-byte aicpu record (the-format.md 3.2); times are (begin, end) in microseconds since the epoch."""
    return struct.pack("<I4xQQQQ84xI", sequence, *layer_us, *segment_us, segment)


def api_record(api: int, begin_us: int, end_us: int, pid: int, tid: int) -> bytes:
    """Return a 32-byte acl_api record (the-format.md 3.3)."""
    return struct.pack("<IIQQII", _API_MAGIC, api, begin_us, end_us, pid, tid)


def info_json(frequency_mhz: int) -> bytes:
    """Return the text of `info.json.<dev>`: the clock is a string, and no newline ends the file (the-format.md 2.2)."""
    return b'{"DeviceInfo": [{"aic_frequency": "%d"}]}' % frequency_mhz


def done_text(file_len: int, span_us: tuple[int, int], **more: int) -> bytes:
    """Return the text of a `.done` (the-format.md 2.2); `more` are further lines after the times."""
    lines = {"file_len": file_len, "start_time": span_us[0], "end_time": span_us[1], **more}
    return "".join(f"{key}:{value}\n" for key, value in lines.items()).encode("ascii")


def online_batch_num(sizes: Sequence[int]) -> bytes:
    """Return the last line of an aicore `.done` with batches chosen at run time; it has no newline."""
    return b"online_batch_num:" + ",".join(map(str, sizes)).encode("ascii") if sizes else b""


def layer_info(network: CompiledModel, *, form: int = BYTES32, with_nul: bool = True) -> bytes:
    """Return `.layer.info`: a container for each output of each layer (the-format.md 2.4).

    `form` is the encoding of the containers' length. With `with_nul` a NUL ends each name and counts in its length.
    """
    layer_id = 0
    containers = []
    for number, segment in enumerate(network.segments):
        for profile_id, run in enumerate(segment.runs):
            for layer in run.layers:
                nul = b"\0" * with_nul
                numbers = (layer_id, profile_id, number, int(run.is_batch))
                items = [_layer(layer, numbers, output, nul) for output in range(layer.outputs)]
                containers += [_bytes(form, 0x111, each) for each in items]
                layer_id += 1
    return b"".join(containers)


def net_info(network: CompiledModel, start: str = "items") -> bytes:
    """Return `.net.info`: a container for each segment (the-format.md 2.4).

    The file starts four bytes into the first container, at its `items` or at the rest of its 32-bit `length`; or with
    the whole `container`; or `elsewhere`, in the middle of another item.
    """
    nets = [_bytes(BYTES16, 0x040, _net(number, segment)) for number, segment in enumerate(network.segments)]
    if start == "length":
        nets[0] = _bytes(BYTES32, 0x040, _net(0, network.segments[0]))
    if start == "elsewhere":
        return _CUT_ITEM + b"".join(nets)
    return b"".join(nets)[0 if start == "container" else _CUT_HEAD_BYTES :]


def _layer(layer: SimulatedLayer, numbers: tuple[int, int, int, int], output: int, nul: bytes) -> bytes:
    layer_id, profile_id, segment, is_batch = numbers
    items = (
        _number(_U16, 0x112, layer_id),
        _bytes(_BYTES8, 0x114, layer.name.encode() + nul),
        _number(_U8, 0x121, is_batch),
        _bytes(_BYTES8, 0x152, layer.type.encode() + nul),
        _number(_U16, 0x157, profile_id),
        _number(_U16, 0x14B, segment),
        _number(_U16, 0x15B, output),
    )
    return b"".join(items)


def _net(number: int, segment: UnitSegment) -> bytes:
    layers = sum(layer.outputs for run in segment.runs for layer in run.layers)
    items = (
        _number(_U16, 0x041, number),
        _number(_U8, 0x042, 1),
        _number(_U16, 0x207, layers),
        _number(_U16, 0x20C, len(segment.runs)),
        _number(_U16, 0x20D, sum(run.is_batch for run in segment.runs)),
        _number(_U16, 0x20E, segment.loops),
    )
    return b"".join(items)


def _number(form: int, item_id: int, value: int) -> bytes:
    return struct.pack(_FORMS[form], form | item_id, value)


def _bytes(form: int, item_id: int, value: bytes) -> bytes:
    return struct.pack(_FORMS[form], form | item_id, len(value)) + value


def numbered_order(
    is_batch: Sequence[bool], sizes: Sequence[int], loops: int, facts: Mapping[str, str]
) -> list[tuple[int, int, int]]:
    """Return the runs of a segment in order of execution: (index, pictures it works on, sequence number)."""
    numbering = facts["batch-number"]
    batches = [run_order(is_batch, size) for size in sizes]
    if numbering == "once":
        batches = [[(index, size) for size in sizes for index in range(len(is_batch))]]
    elif numbering == "on":
        batches = [[record for batch in batches for record in batch]]
    one_pass = [
        (index, pictures, index if numbering == "each-picture" else number)
        for batch in batches
        for number, (index, pictures) in enumerate(batch)
    ]
    further = len(one_pass) if facts["loop-number"] == "on" else 0
    return [(index, pictures, number + each * further) for each in range(loops) for index, pictures, number in one_pass]


FREQUENCY_MHZ = 700  # the constant that the SS928 driver reports (the-format.md 2.2)

# Ticks of a record's time per microsecond, by the unit of the tick.
TICKS_PER_US = {"100-cycles": FREQUENCY_MHZ / 100, "cycle": float(FREQUENCY_MHZ), "10-ns": 100.0, "us": 1.0}

MAX_JUMP = 10  # the library drops a record whose sequence number is further on than this (the-format.md 3.1)

LAUNCH_US = 12  # time before each segment; invented

_TIME_JITTER, _COUNTER_JITTER = 0.02, 0.01
_DISTURBED = 1 / 400
_STALE_BY, _FAR_BY = 3, 50
_NOISE_OFFSET_BYTES = 0x34 - 0x08
_NOISE_BYTES = 0x74 - 0x34
_CACHE_PER_RECORD = (110.0, 3.0)

_MAX_VARIANTS, _MIN_VARIANTS = 16, 2
_RECORDS_DRAWN = 20_000

HardwareRecord = tuple[int, int, bytes]  # sequence number, ticks, and the hardware's words from 0x08 on


class Executed(NamedTuple):
    """Executed run of an aicore segment, as a subscriber receives it; times are from the segment's start."""

    sequence: int
    ticks: int
    layer: SimulatedLayer
    begin_us: int
    end_us: int


@dataclass(frozen=True)
class SegmentDraw:
    """Execution of a segment.

    `data` holds an aicore segment's records that pass the filter, `executed` all its runs; `layers_us` are an aicpu
    segment's layers as (begin, end) from its start.
    """

    number: int
    unit: str
    duration_us: int
    data: bytes = b""
    layers_us: tuple[tuple[int, int], ...] = ()
    executed: tuple[Executed, ...] = ()

    def bytes_at(self, start_us: int) -> bytes:
        """Return the segment's records for a start at this time (microseconds since the epoch)."""
        if self.unit == AICORE:
            return self.data
        span_us = (start_us, start_us + self.duration_us)
        return b"".join(
            aicpu_record(sequence, (start_us + begin_us, start_us + end_us), span_us, self.number)
            for sequence, (begin_us, end_us) in enumerate(self.layers_us)
        )


@dataclass(frozen=True)
class InferenceDraw:
    """Inference: its segments in order, and the instruction cache's (hits, misses)."""

    segments: tuple[SegmentDraw, ...]
    cache: tuple[int, int]

    @property
    def duration_us(self) -> int:
        """Time from the first launch to the end of the last segment."""
        return sum(LAUNCH_US + segment.duration_us for segment in self.segments)

    @property
    def aicore_records(self) -> int:
        """Number of records that the aicore segments leave."""
        return sum(len(segment.data) for segment in self.segments) // AICORE_BYTES

    def placed(self, start_us: int) -> Iterator[tuple[int, SegmentDraw]]:
        """Yield each segment with its start, for an inference that starts at this time."""
        for segment in self.segments:
            start_us += LAUNCH_US
            yield start_us, segment
            start_us += segment.duration_us


class Drawing:
    """Source of random inferences of one network for a fixed number of pictures.

    Without `gaps` the hardware makes no record that the library would drop.
    """

    def __init__(
        self,
        network: CompiledModel,
        pictures: int,
        counters: tuple[CounterWord, ...],
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
        # Factor for the time of the network's longest run.
        self._stall = 1.0

    def stalled(self, factor: float) -> InferenceDraw:
        """Return an inference whose longest run takes this many times as long as usual."""
        self._stall = factor
        found = self._inference()
        self._stall = 1.0
        return found

    def variants(self) -> tuple[InferenceDraw, ...]:
        """Return different inferences: enough to look alive, and few enough to be drawn quickly."""
        records = sum(len(segment.runs) * segment.loops for segment in self._network.segments) * self._pictures
        count = min(max(_RECORDS_DRAWN // records, _MIN_VARIANTS), _MAX_VARIANTS)
        return tuple(self._inference() for _ in range(count))

    def _inference(self) -> InferenceDraw:
        segments = tuple(
            self._aicore(number, segment) if segment.unit == AICORE else self._aicpu(number, segment)
            for number, segment in enumerate(self._network.segments)
        )
        records = sum(len(segment.data) for segment in segments) // AICORE_BYTES
        hits, misses = (round(each * records * self._factor(_TIME_JITTER)) for each in _CACHE_PER_RECORD)
        return InferenceDraw(segments, (hits, misses))

    def _aicore(self, number: int, segment: UnitSegment) -> SegmentDraw:
        order = numbered_order([run.is_batch for run in segment.runs], self._sizes, segment.loops, self._facts)
        records = [self._record(segment.runs[index], pictures) for index, pictures, _ in order]
        numbered = [(self._sequence(number), *record) for (_, _, number), record in zip(order, records)]
        data = b"".join(aicore_record(*record, number) for record in filtered(numbered))
        ends = list(accumulate(ticks for ticks, _ in records))
        ends_us = [int(ticks / self._ticks_per_us) for ticks in ends]
        executed = tuple(
            Executed(sequence, ticks, segment.runs[index].layers[0], begin_us, end_us)
            for (index, _, sequence), (ticks, _), begin_us, end_us in zip(order, records, [0, *ends_us], ends_us)
        )
        # Rounded up, so that the segment's end is not before that of its last run.
        duration_us = math.ceil(ends[-1] / self._ticks_per_us)
        return SegmentDraw(number, segment.unit, duration_us, data=data, executed=executed)

    def _aicpu(self, number: int, segment: UnitSegment) -> SegmentDraw:
        # The AICPU executes its layers once for each picture.
        runs = segment.runs * (self._pictures * segment.loops)
        ends_us = list(accumulate(round(self._time_us(run, 1)) for run in runs))
        begins_us = [0, *ends_us[:-1]]
        return SegmentDraw(number, segment.unit, ends_us[-1], layers_us=tuple(zip(begins_us, ends_us)))

    def _record(self, run: FusedRun, pictures: int) -> tuple[int, bytes]:
        ticks = max(round(self._time_us(run, pictures) * self._ticks_per_us), 0 if self._gaps else 1)
        return ticks, pack_words(self._counters, self._values(run, ticks), ticks, self._noise())

    def _values(self, run: FusedRun, ticks: int) -> Mapping[str, float]:
        values = {}
        for counter in self._counters:
            name = counter.name
            drawn = run.counters.get(name, 0.0) * self._factor(_COUNTER_JITTER)
            # Bytes grow with the run's time; the other counters are fractions of it.
            values[name] = drawn * ticks / self._ticks_per_us if name.endswith("_bytes") else min(drawn, 1.0)
        for unit in ("mac", "vec"):
            values[f"{unit}_ppen"] = min(values[f"{unit}_ppen"], values[f"{unit}_busy"])
        return values

    def _noise(self) -> bytes:
        """Return random words beside the counters: a calibration must not find a map where there is none."""
        noise = self._rng.getrandbits(8 * _NOISE_BYTES).to_bytes(_NOISE_BYTES, "little")
        return (bytes(_NOISE_OFFSET_BYTES) + noise).ljust(WORDS_BYTES, b"\0")

    def _sequence(self, number: int) -> int:
        """Return the record's number; at times a stale one or one far ahead, which the library drops."""
        if not self._gaps or number < _STALE_BY or self._rng.random() >= _DISTURBED:
            return number
        return number - _STALE_BY if self._rng.random() < 1 / 2 else number + _FAR_BY

    def _time_us(self, run: FusedRun, pictures: int) -> float:
        stall = self._stall if run is self._longest else 1.0
        return run.time_us * pictures * self._factor(_TIME_JITTER) * stall

    @property
    def _longest(self) -> FusedRun:
        runs = [run for segment in self._network.segments if segment.unit == AICORE for run in segment.runs]
        return max(runs, key=lambda run: run.time_us)

    def _factor(self, spread: float) -> float:
        return 1 + spread * max(-4.0, min(4.0, self._rng.gauss(0.0, 1.0)))


def filtered(records: Iterable[HardwareRecord]) -> list[HardwareRecord]:
    """Return the records of a segment that pass the library's filter (the-format.md 3.1).

    It drops records without ticks, with a number below the last one that passed, or more than MAX_JUMP above it; that
    number begins at 0.
    """
    passed: list[HardwareRecord] = []
    previous = 0
    for record in records:
        sequence, ticks, _ = record
        if ticks and previous <= sequence <= previous + MAX_JUMP:
            passed.append(record)
            previous = sequence
    return passed
