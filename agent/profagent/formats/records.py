"""The binary records of aicore, aicpu and acl_api logs as numpy arrays (format page 3.1 to 3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from profagent.formats.names import LogKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from profagent.formats.countermap import CounterMap


US_PER_MS = 1000.0
CYCLES_PER_TICK = 100
# With such a clock a tick is a nanosecond: durations that another tool told in time, and not in ticks.
NANOSECOND_CLOCK_MHZ = 100_000
# 2015: what is before it was told by a clock that nobody has set, or that counts from the start of its host.
FIRST_WALL_US = 1_420_070_400_000_000


def shown_mhz(frequency_mhz: int | None) -> int | None:
    """The NPU's clock; None where it is not known, or where another tool told durations."""
    return None if frequency_mhz == NANOSECOND_CLOCK_MHZ else frequency_mhz


# The model of operators that another tool saw called one by one.
SINGLE_OPERATORS = "single-op"
# As other tools call the processor beside the cores.
AI_CPU = "AI_CPU"


def is_on_ai_cpu(layer_type: str) -> bool:
    """Whether another tool told that a layer ran on the AI CPU: as its type, or behind it."""
    return layer_type.endswith(f"({AI_CPU})") or layer_type == AI_CPU


@overload
def ticks_to_us(ticks: int, frequency_mhz: int) -> float: ...
@overload
def ticks_to_us(ticks: npt.NDArray[Any], frequency_mhz: int) -> npt.NDArray[np.float64]: ...
def ticks_to_us(ticks: int | npt.NDArray[Any], frequency_mhz: int) -> float | npt.NDArray[np.float64]:
    """Give ticks × 100 / MHz, the runtime's own formula; one value, or an array of the same shape in float64."""
    if isinstance(ticks, np.ndarray):
        return ticks.astype(np.float64) * CYCLES_PER_TICK / frequency_mhz
    return ticks * CYCLES_PER_TICK / frequency_mhz


API_MAGIC = 0x5A5A

# `words` is the whole record again: what the hardware wrote between ticks and net is for counter maps to read.
AICORE_DTYPE = np.dtype(
    {
        "names": ["sequence", "ticks", "net", "words"],
        "formats": ["<u4", "<u4", "<u4", ("<u4", 64)],
        "offsets": [0x00, 0x04, 0xFC, 0x00],
        "itemsize": 256,
    }
)
AICPU_DTYPE = np.dtype(
    {
        "names": ["sequence", "begin_us", "end_us", "segment_start_us", "segment_end_us", "net"],
        "formats": ["<u4", "<u8", "<u8", "<u8", "<u8", "<u4"],
        "offsets": [0x00, 0x08, 0x10, 0x18, 0x20, 0x7C],
        "itemsize": 128,
    }
)
API_DTYPE = np.dtype(
    [("magic", "<u4"), ("api", "<u4"), ("begin_us", "<u8"), ("end_us", "<u8"), ("pid", "<u4"), ("tid", "<u4")]
)
RECORD_BYTES = {
    LogKind.AICORE: AICORE_DTYPE.itemsize,
    LogKind.AICPU: AICPU_DTYPE.itemsize,
    LogKind.ACL_API: API_DTYPE.itemsize,
}

API_NAMES = {
    0: "svp_acl_mdl_load_from_mem",
    1: "svp_acl_mdl_unload",
    2: "svp_acl_mdl_execute",
    3: "svp_acl_mdl_execute_async",
    4: "svp_acl_rt_synchronize_stream",
    5: "svp_acl_ext_process_aicpu_task",
}

Buffer = bytes | bytearray | memoryview
Records = np.ndarray[Any, np.dtype[np.void]]


def view_records(data: Buffer, dtype: np.dtype[Any]) -> Records:
    """View the whole records of `data` without a copy; bytes of a last, partial one are left out."""
    count = len(data) // dtype.itemsize
    return np.frombuffer(data, dtype=dtype, count=count) if count else np.empty(0, dtype=dtype)


def api_magic_faults(records: Records) -> npt.NDArray[np.intp]:
    """Indices of acl_api records without the magic number, for a reader that goes on with the others."""
    return np.flatnonzero(records["magic"] != API_MAGIC)


def api_name(api: int) -> str:
    """Name of the function that an acl_api record is about."""
    return API_NAMES.get(api, f"unknown({api})")


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


# The runtime drops a record whose sequence number is farther than this from the one written before it.
FILTER_STEP_MAX = 10


class Split(Struct, frozen=True):
    """How records fall apart; arrays of one value for each record unless said otherwise.

    `segment` and `load` count from 0 over the whole file; `begins` is True where a segment begins. `gap_at` holds
    the indices of the records before which sequence numbers are missing in their segment, `gap_missing` how many;
    `is_gap_odd` is True where the runtime's own filter cannot have left the gap, so that the bytes are not what it
    wrote.
    """

    segment: npt.NDArray[np.int64]
    load: npt.NDArray[np.int64]
    begins: npt.NDArray[np.bool_]
    gap_at: npt.NDArray[np.intp]
    gap_missing: npt.NDArray[np.int64]
    is_gap_odd: npt.NDArray[np.bool_]

    def cut(self, starts: npt.NDArray[np.intp]) -> list[Split]:
        """The split of each of the files that were split together; `gap_at` is in the file's records then."""
        gap_starts = self.gap_at.searchsorted(starts)
        gap_ends = np.append(gap_starts[1:], len(self.gap_at))
        gap_at = self.gap_at - starts.repeat(gap_ends - gap_starts)
        firsts, gap_firsts = starts.tolist(), gap_starts.tolist()
        bounds = zip(firsts, [*firsts[1:], len(self.segment)], gap_firsts, gap_ends.tolist(), strict=True)
        return [
            Split(
                self.segment[start:end],
                self.load[start:end],
                self.begins[start:end],
                gap_at[gap_start:gap_end],
                self.gap_missing[gap_start:gap_end],
                self.is_gap_odd[gap_start:gap_end],
            )
            for start, end, gap_start, gap_end in bounds
        ]


_NONE = np.empty(0, np.int64)
_NOTHING = Split(_NONE, _NONE, np.empty(0, np.bool_), np.empty(0, np.intp), _NONE, np.empty(0, np.bool_))


class Splitter:
    """Splits the records of one file as they come, in parts of any size.

    A segment begins where the net changes or the sequence goes back. A load, which is one inference of a model
    that was loaded more than once, begins where the net goes back, or its sequence does in the same net. Neither need
    be so: a load of one record for each segment leaves no such trace, and a loop looks the same. Where the `.done`
    tells the length of the last load, `last_load_record` is where it begins, and none begins after it.
    """

    def __init__(self, last_load_record: int | None = None) -> None:
        self.last_load_record = last_load_record
        self.records = 0
        self.segments = 0
        self.loads = 0
        self.net = -1
        self.sequence = 0

    def feed(self, sequence: npt.NDArray[Any], net: npt.NDArray[Any]) -> Split:
        """Split the next records, given their words 0x00 and 0xFC (aicpu: 0x7C), both of shape (records,)."""
        return split_together([self], sequence, net, np.zeros(1, np.intp)) if len(sequence) else _NOTHING

    def begin_as_announced(self, is_segment: npt.NDArray[np.bool_], begins_load: npt.NDArray[np.bool_]) -> None:
        """Correct where segments and loads of the next records begin by what is known of the file."""
        if self.last_load_record is not None:
            number = np.arange(self.records, self.records + len(is_segment))
            is_last = number == self.last_load_record
            is_segment |= is_last
            begins_load &= number < self.last_load_record
            begins_load |= is_last
        if not self.records:
            is_segment[0] = begins_load[0] = True


def split_together(
    splitters: Sequence[Splitter], sequence: npt.NDArray[Any], net: npt.NDArray[Any], starts: npt.NDArray[np.intp]
) -> Split:
    """Split the next records of several files: those of each, at least one, follow one another from `starts[i]` on.

    It is what each splitter's `feed` does, in one pass: numpy's calls cost more than the records of a small file.
    """
    sequences, nets = sequence.astype(np.int64), net.astype(np.int64)
    step = _steps(sequences, starts, [file.sequence for file in splitters])
    net_step = _steps(nets, starts, [file.net for file in splitters])
    is_segment = (net_step != 0) | (step < 0)
    begins_load = (net_step < 0) | ((net_step == 0) & (step < 0))
    ends = np.append(starts[1:], len(sequences))
    for file, start, end in zip(splitters, starts.tolist(), ends.tolist(), strict=True):
        file.begin_as_announced(is_segment[start:end], begins_load[start:end])
    segment = _numbered(is_segment, starts, ends, [file.segments for file in splitters])
    load = _numbered(begins_load, starts, ends, [file.loads for file in splitters])
    latest = (values.tolist() for values in (sequences[ends - 1], nets[ends - 1], segment[ends - 1], load[ends - 1]))
    _advance(splitters, zip((ends - starts).tolist(), *latest, strict=True))
    return Split(segment, load, is_segment, *_gaps(sequences, step, is_segment))


def _steps(values: npt.NDArray[np.int64], starts: npt.NDArray[np.intp], before: Sequence[int]) -> npt.NDArray[np.int64]:
    """Give the step to each value from the one before it in its file."""
    steps = values.copy()
    steps[1:] -= values[:-1]
    steps[starts] = values[starts] - before
    return steps


def _numbered(
    begins: npt.NDArray[np.bool_], starts: npt.NDArray[np.intp], ends: npt.NDArray[np.intp], before: Sequence[int]
) -> npt.NDArray[np.int64]:
    """Give the number of what each record is in, by where they begin and how many each file had `before`."""
    numbers = begins.cumsum()
    base = begins[starts] - numbers[starts] + before - 1
    numbers += base.repeat(ends - starts)
    return numbers


def _advance(splitters: Sequence[Splitter], latest: Iterable[Sequence[int]]) -> None:
    for file, (records, sequence, net, segment, load) in zip(splitters, latest, strict=True):
        file.records += records
        file.sequence, file.net, file.segments, file.loads = sequence, net, segment + 1, load + 1


def _gaps(
    sequence: npt.NDArray[np.int64], step: npt.NDArray[np.int64], is_segment: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    # The filter's previous number is 0 at the start of each segment, and number 0 itself may be missing.
    missing = np.where(is_segment, sequence, np.maximum(step - 1, 0))
    jump = np.where(is_segment, sequence, step)
    at = missing.nonzero()[0]
    return at, missing[at], jump[at] > FILTER_STEP_MAX


RECORD = AICORE_DTYPE.itemsize


class AicoreFile(Struct):
    """What the records of a file that were read mean for the next: where they fall, the ticks of the last segment."""

    splitter: Splitter = field(default_factory=Splitter)
    ticks: int = 0


class AicoreRecords(Struct, frozen=True):
    """Consecutive records of one file; all arrays have one entry a record.

    `ticks_before` is the sum of the ticks of those before it in its segment. `counters` is empty without a map.
    """

    sequence: npt.NDArray[np.uint32]
    net: npt.NDArray[np.uint32]
    ticks: npt.NDArray[np.int64]
    ticks_before: npt.NDArray[np.int64]
    split: Split
    counters: Mapping[str, npt.NDArray[np.float64]]


def read_together(
    files: Sequence[AicoreFile], pieces: Sequence[bytes], counter_map: CounterMap | None
) -> list[AicoreRecords]:
    """Read the whole records, of which there is at least one, of each file's next bytes.

    One pass over all of them: numpy's calls cost more than the records of a small file.
    """
    sizes = [len(piece) // RECORD for piece in pieces]
    whole = [piece[: size * RECORD] for piece, size in zip(pieces, sizes, strict=True)]
    records = view_records(b"".join(whole), AICORE_DTYPE)
    ends = np.cumsum(sizes, dtype=np.intp)
    starts = ends - np.array(sizes, np.intp)
    sequence, net, ticks = records["sequence"], records["net"], records["ticks"].astype(np.int64)
    split = split_together([file.splitter for file in files], sequence, net, starts)
    before = _ticks_before(ticks, split, starts, [file.ticks for file in files])
    for file, last in zip(files, (before[ends - 1] + ticks[ends - 1]).tolist(), strict=True):
        file.ticks = last
    counters = {} if counter_map is None else counter_map.apply(records)
    return [
        AicoreRecords(
            sequence[start:end],
            net[start:end],
            ticks[start:end],
            before[start:end],
            part,
            {name: values[start:end] for name, values in counters.items()},
        )
        for part, start, end in zip(split.cut(starts), starts.tolist(), ends.tolist(), strict=True)
    ]


def _ticks_before(
    ticks: npt.NDArray[np.int64], split: Split, starts: npt.NDArray[np.intp], carried: Sequence[int]
) -> npt.NDArray[np.int64]:
    before = ticks.cumsum() - ticks
    is_first = split.begins.copy()
    is_first[starts] = True
    run = is_first.cumsum() - 1
    shift = -before[is_first]
    # A segment that goes on from earlier bytes carries their ticks on; one that begins here starts from 0.
    shift[run[starts]] += np.where(split.begins[starts], 0, carried)
    before += shift[run]
    return before
