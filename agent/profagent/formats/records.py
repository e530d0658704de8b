"""Binary records of aicore, aicpu and acl_api logs as numpy arrays (docs/internals/the-format.md, 3.1 to 3.3)."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from profagent.formats.names import LogKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from profagent.formats.countermap import CounterMap


CYCLES_PER_TICK = 100
# The year 2015: an earlier time comes from a clock that was never set, or that counts from the start of its host.
FIRST_WALL_US = 1_420_070_400_000_000

# Model name for operators that another tool saw called one by one.
SINGLE_OPERATORS = "single-op"
# Other tools' name of the processor beside the cores.
AI_CPU = "AI_CPU"


def is_on_ai_cpu(layer_type: str) -> bool:
    """Return True if a layer ran on the AI CPU by another tool: its type is that, or ends with it."""
    return layer_type.endswith(f"({AI_CPU})") or layer_type == AI_CPU


@overload
def ticks_to_us(ticks: int, frequency_mhz: int) -> float: ...
@overload
def ticks_to_us(ticks: npt.NDArray[Any], frequency_mhz: int) -> npt.NDArray[np.float64]: ...
def ticks_to_us(ticks: int | npt.NDArray[Any], frequency_mhz: int) -> float | npt.NDArray[np.float64]:
    """Return ticks × 100 / MHz, the runtime's own formula: one value, or an array of the same shape in float64."""
    if isinstance(ticks, np.ndarray):
        return ticks.astype(np.float64) * CYCLES_PER_TICK / frequency_mhz
    return ticks * CYCLES_PER_TICK / frequency_mhz


API_MAGIC = 0x5A5A

# `words` is the whole record again: counter maps read the hardware's words between ticks and net from it.
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
    """Return a view of the complete records of `data` without a copy; bytes of a partial last one are left out."""
    # numpy refuses an empty buffer, so an empty array is made apart.
    count = len(data) // dtype.itemsize
    return np.frombuffer(data, dtype=dtype, count=count) if count else np.empty(0, dtype=dtype)


def api_magic_faults(records: Records) -> npt.NDArray[np.intp]:
    """Return the indices of acl_api records without the magic number, for a reader that skips them."""
    return np.flatnonzero(records["magic"] != API_MAGIC)


def api_name(api: int) -> str:
    """Return the name of the function of an acl_api record."""
    return API_NAMES.get(api, f"unknown({api})")


class SegmentColumns(Struct, frozen=True):
    """Segments of inferences on both units, in any order, with all segments of each inference; shape (segments,).

    Attributes:
        inference: Key that tells inferences apart.
        is_aicore: True for aicore, False for aicpu.
        net: Net of the segment's records.
        ordinal: Number of the segment in its log.
        duration_us: Sum of the times of an aicore segment's records.
        end_us: End of an aicpu segment by its own records.
        launch_us: Launch of the inference's first aicore segment, the `start_time` of the aicore `.done`; NaN where
            unknown.
        is_whole: False where an earlier segment of the inference may be missing.
    """

    inference: npt.NDArray[np.int64]
    is_aicore: npt.NDArray[np.bool_]
    net: npt.NDArray[np.int64]
    ordinal: npt.NDArray[np.int64]
    duration_us: npt.NDArray[np.float64]
    end_us: npt.NDArray[np.float64]
    launch_us: npt.NDArray[np.float64]
    is_whole: npt.NDArray[np.bool_]


def place(segments: SegmentColumns) -> list[float | None]:
    """Return the start of each aicore segment in µs, None for others and where nothing before it has a known end.

    Segments run in the order of their nets. Each aicore segment but the first starts where the one before it ended.
    """
    # The last key is the primary one: by inference, net, ordinal, and an NPU segment before a CPU segment.
    order = np.lexsort((~segments.is_aicore, segments.ordinal, segments.net, segments.inference))
    columns = (segments.inference, segments.is_aicore, segments.duration_us, segments.end_us, segments.launch_us)
    starts: list[float | None] = [None] * len(order)
    latest, now_us, is_first = None, np.nan, True
    rows = zip(order.tolist(), *(column[order].tolist() for column in columns), strict=True)
    for at, inference, is_aicore, duration_us, end_us, launch_us in rows:
        if inference != latest:
            latest, now_us, is_first = inference, np.nan, True
        if not is_aicore:
            now_us = end_us
            continue
        if is_first and launch_us == launch_us:  # noqa: PLR0124 - NaN
            now_us = launch_us
        is_first = False
        if segments.is_whole[at] and now_us == now_us:  # noqa: PLR0124 - NaN
            starts[at] = now_us
        # NaN while no time is known, and stays NaN by this sum.
        now_us += duration_us
    return starts


# The runtime drops a record whose sequence number is farther than this from the last one that it wrote.
FILTER_STEP_MAX = 10


Integers = npt.NDArray[np.int64]


class LogProgress(Struct, frozen=True):
    """Progress of reading logs of a unit; arrays of shape (logs,).

    Attributes:
        records: Number of records.
        segments: Number of segments that began.
        loads: Number of loads that began. A load is one inference of a model that was loaded more than once.
        net: Net of the last record; -1 for a log without one.
        sequence: Sequence number of the last record.
        ticks: Sum of the ticks of the last segment's records; 0 for aicpu.
    """

    records: Integers
    segments: Integers
    loads: Integers
    net: Integers
    sequence: Integers
    ticks: Integers

    @classmethod
    def new(cls, logs: int) -> LogProgress:
        """Return the progress of `logs` logs of which nothing was read."""
        zeros = np.zeros(logs, np.int64)
        return cls(zeros, zeros, zeros, zeros - 1, zeros, zeros)

    def one(self, log: int) -> LogProgress:
        """Return the progress of one log."""
        return LogProgress(*(getattr(self, name)[log : log + 1] for name in self.__struct_fields__))


class Unit(Struct, frozen=True):
    """Records of one unit from many logs, those of each log behind one another, as columns.

    A segment is a part of a log: it begins where the net changes or the sequence goes back. The first segment of a log
    that is read on may be one that began in its earlier bytes. The records of a log have at least one segment.

    Attributes:
        kind: Unit that ran the layers, AICORE or AICPU.
        before: Progress before these records.
        after: Progress with these records.
        records: Number of records of each log, shape (logs,).
        first: Index of the first record of each log, shape (logs,).
        segment: Index of the segment of each record, shape (records,).
        seg_log: Index of the log of each segment, shape (segments,).
        seg_first: Index of the first record of each segment, shape (segments,).
        seg_ordinal: Number of each segment in its log, from 0, shape (segments,).
        seg_load: Number of the load of each segment in its log, from 0, shape (segments,).
        columns: Values of the records by name, each of shape (records,): `sequence`, `net`; for aicore `ticks` and
            `ticks_before`, the ticks of the records before it in its segment; for aicpu `begin_us`, `end_us`,
            `segment_start_us`, `segment_end_us`. `layer_index`, once it was looked up, is -1 where no layer is known.
        counters: Values of the counter map by name, each of shape (records,); empty without a map.
        gap_at: Indices of aicore records before which sequence numbers are missing in their segment.
        gap_missing: How many numbers are missing there.
        is_gap_odd: True where the runtime's own filter cannot have left the gap: the bytes are not what it wrote.
    """

    kind: LogKind
    before: LogProgress
    after: LogProgress
    records: npt.NDArray[np.intp]
    first: npt.NDArray[np.intp]
    segment: npt.NDArray[np.intp]
    seg_log: npt.NDArray[np.intp]
    seg_first: npt.NDArray[np.intp]
    seg_ordinal: Integers
    seg_load: Integers
    columns: dict[str, npt.NDArray[Any]]
    counters: Mapping[str, npt.NDArray[np.float64]]
    gap_at: npt.NDArray[np.intp]
    gap_missing: Integers
    is_gap_odd: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.segment)

    def one(self, log: int) -> Unit:
        """Return the records of one log as a unit of their own."""
        start = int(self.first[log])
        end = start + int(self.records[log])
        from_segment, to_segment = self.seg_log.searchsorted((log, log + 1)).tolist()
        from_gap, to_gap = self.gap_at.searchsorted((start, end)).tolist()
        return Unit(
            kind=self.kind,
            before=self.before.one(log),
            after=self.after.one(log),
            records=self.records[log : log + 1],
            first=np.zeros(1, np.intp),
            segment=self.segment[start:end] - from_segment,
            seg_log=np.zeros(to_segment - from_segment, np.intp),
            seg_first=self.seg_first[from_segment:to_segment] - start,
            seg_ordinal=self.seg_ordinal[from_segment:to_segment],
            seg_load=self.seg_load[from_segment:to_segment],
            columns={name: values[start:end] for name, values in self.columns.items()},
            counters={name: values[start:end] for name, values in self.counters.items()},
            gap_at=self.gap_at[from_gap:to_gap] - start,
            gap_missing=self.gap_missing[from_gap:to_gap],
            is_gap_odd=self.is_gap_odd[from_gap:to_gap],
        )


_DTYPES = {LogKind.AICORE: AICORE_DTYPE, LogKind.AICPU: AICPU_DTYPE}
_COLUMNS = {
    LogKind.AICORE: ("sequence", "net", "ticks"),
    LogKind.AICPU: ("sequence", "net", "begin_us", "end_us", "segment_start_us", "segment_end_us"),
}
# Bytes of records that are decoded in one pass, so that they stay in the processor's cache.
PASS_BYTES = 512 << 10


def read_unit(
    kind: LogKind,
    pieces: Sequence[bytes],
    before: LogProgress,
    counter_map: CounterMap | None = None,
    last_loads: Mapping[int, int] = MappingProxyType({}),
) -> Unit:
    """Return the records in the next bytes of many logs of a unit; each log has at least one complete record.

    Many logs are read at once because a call of numpy costs more than the records of a small file.

    A load begins where the net goes back, or the sequence does in the same net. That is a heuristic: a load of one
    record for each segment leaves no such trace, and a loop looks the same. Where the length in a `.done` shows where
    the last load of a log begins, `last_loads` has that record's number by the index of the log, and no load begins
    behind it. Bytes of a partial last record are left out.
    """
    size = RECORD_BYTES[kind]
    records = np.array([len(piece) // size for piece in pieces], np.intp)
    ends = records.cumsum()
    first = ends - records
    columns, counters = _read_columns(kind, pieces, counter_map)
    sequence, net = columns["sequence"].astype(np.int64), columns["net"].astype(np.int64)
    step = _steps(sequence, first, before.sequence)
    # Steps are computed over all logs at once; those across the border of two logs are replaced by the step from
    # `before`.
    begins, begins_load = _begins(step, _steps(net, first, before.net), first, ends, before, last_loads)

    # The first record of each log begins a segment here, even if the segment itself began in earlier bytes.
    is_start = begins.copy()
    is_start[first] = True
    segment = is_start.cumsum() - 1
    (seg_first,) = is_start.nonzero()
    seg_log = first.searchsorted(seg_first, side="right") - 1
    seg_ordinal = _numbered(begins, first, seg_first, before.segments[seg_log], seg_log)
    seg_load = _numbered(begins_load, first, seg_first, before.loads[seg_log], seg_log)
    gaps = _NO_GAPS
    ticks = np.zeros(len(records), np.int64)
    if kind is LogKind.AICORE:
        gaps = _gaps(sequence, step, begins)
        columns["ticks_before"] = _ticks_before(columns["ticks"], begins, first, segment, seg_first, before.ticks)
        ticks = (columns["ticks_before"] + columns["ticks"])[ends - 1]
    last = segment[ends - 1]
    after = LogProgress(
        before.records + records, seg_ordinal[last] + 1, seg_load[last] + 1, net[ends - 1], sequence[ends - 1], ticks
    )
    segments = (segment, seg_log, seg_first, seg_ordinal, seg_load)
    return Unit(kind, before, after, records, first, *segments, columns, counters, *gaps)


def _read_columns(
    kind: LogKind, pieces: Sequence[bytes], counter_map: CounterMap | None
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, npt.NDArray[np.float64]]]:
    """Return the columns of the whole records of all pieces, and their counters if there is a map."""
    size, names = RECORD_BYTES[kind], _COLUMNS[kind]
    found: list[list[npt.NDArray[Any]]] = []
    counted: list[Mapping[str, npt.NDArray[np.float64]]] = []
    for several in _passes(pieces):
        whole = [piece[: len(piece) - len(piece) % size] for piece in several]
        records = view_records(b"".join(whole), _DTYPES[kind])
        # Sums of ticks do not fit into their 32 bits.
        found.append([records[name].astype(np.int64 if name == "ticks" else records.dtype[name]) for name in names])
        if counter_map is not None and kind is LogKind.AICORE:
            counted.append(counter_map.apply(records))
    columns = dict(zip(names, map(_joined, zip(*found, strict=True)), strict=True))
    counters = {name: _joined([each[name] for each in counted]) for name in (counted[0] if counted else ())}
    return columns, counters


def _joined(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _passes(pieces: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Yield the pieces in runs of about PASS_BYTES, which are joined and decoded at once."""
    begin = size = 0
    for number, piece in enumerate(pieces, 1):
        size += len(piece)
        if size >= PASS_BYTES or number == len(pieces):
            yield pieces[begin:number]
            begin, size = number, 0


def _begins(
    step: Integers,
    net_step: Integers,
    first: npt.NDArray[np.intp],
    ends: npt.NDArray[np.intp],
    before: LogProgress,
    last_loads: Mapping[int, int],
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    segment = (net_step != 0) | (step < 0)
    load = (net_step < 0) | ((net_step == 0) & (step < 0))
    for log, record in last_loads.items():
        _begin_last_load(segment, load, slice(first[log], ends[log]), record - int(before.records[log]))
    fresh = first[before.records == 0]
    segment[fresh] = load[fresh] = True
    return segment, load


def _begin_last_load(
    begins: npt.NDArray[np.bool_], begins_load: npt.NDArray[np.bool_], log: slice, record: int
) -> None:
    count = log.stop - log.start
    begins_load[log.start + max(record, 0) : log.stop] = False
    if 0 <= record < count:
        begins[log.start + record] = begins_load[log.start + record] = True


def _steps(values: Integers, first: npt.NDArray[np.intp], before: Integers) -> Integers:
    steps = values.copy()
    steps[1:] -= values[:-1]
    # The first value of a log follows the last one of its earlier bytes, not of the log before it in the array.
    steps[first] = values[first] - before
    return steps


def _numbered(
    begins: npt.NDArray[np.bool_],
    first: npt.NDArray[np.intp],
    seg_first: npt.NDArray[np.intp],
    before: Integers,
    seg_log: npt.NDArray[np.intp],
) -> Integers:
    begun = begins.cumsum()
    base = begun[first] - begins[first]
    numbers: Integers = begun[seg_first] - base[seg_log] + before - 1
    return numbers


_NO_GAPS = (np.empty(0, np.intp), np.empty(0, np.int64), np.empty(0, np.bool_))


def _gaps(
    sequence: Integers, step: Integers, begins: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.intp], Integers, npt.NDArray[np.bool_]]:
    # The filter's previous number is 0 at the start of each segment, and number 0 itself may be missing.
    missing = np.where(begins, sequence, np.maximum(step - 1, 0))
    (at,) = missing.nonzero()
    return at, missing[at], np.where(begins[at], sequence[at], step[at]) > FILTER_STEP_MAX


def _ticks_before(
    ticks: Integers,
    begins: npt.NDArray[np.bool_],
    first: npt.NDArray[np.intp],
    segment: npt.NDArray[np.intp],
    seg_first: npt.NDArray[np.intp],
    carried: Integers,
) -> Integers:
    before = ticks.cumsum() - ticks
    # The sum runs over all logs, so what came before a segment is subtracted.
    shift = -before[seg_first]
    # A segment that continues from earlier bytes adds their ticks.
    shift[segment[first]] += np.where(begins[first], 0, carried)
    before += shift[segment]
    return before
