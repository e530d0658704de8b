"""One data log while it grows: bytes in, records with their segments and layers out, facts for the ledger.

A record may arrive in pieces: bytes of an unfinished one wait for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import Struct, field

from profagent.formats.join import Joined, layers_of
from profagent.formats.names import LogKind, LogName
from profagent.formats.records import API_DTYPE, RECORD_BYTES, Progress, api_magic_faults, read_unit, view_records
from profagent.ingest import reasons
from profagent.ingest.changes import ApiRecords, SegmentRecords

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from profagent.formats.board_files import Done
    from profagent.formats.countermap import CounterMap
    from profagent.formats.join import LayerJoin
    from profagent.formats.records import Unit
    from profagent.ingest.changes import Entry


# What may be odd about records.
_OF_RECORDS = {
    reasons.SEQUENCE_GAP: "records missing from the sequence: the runtime's filter",
    reasons.SEQUENCE_JUMP: "records missing: more than the runtime's filter leaves out",
    reasons.NO_LAYER: "records without a known layer: shown without a name",
    reasons.BAD_RECORD: "expected 0x00005A5A at the record's start: bytes kept, record not decoded",
    reasons.BEGIN_UNKNOWN: "calls that began before profiling was started",
}


class LogFacts(Struct):
    """What decoding one data log has shown so far; `odd` is what is odd about records, by reason. Sizes are bytes."""

    record_bytes: int
    size: int = 0
    loads: int = 0
    last_load_start: int = 0
    odd: dict[str, Entry] = field(default_factory=dict)


def assess(
    facts: LogFacts, done: Done | None, *, settled: bool, ended: bool, is_done_empty: bool = False
) -> tuple[Entry, ...]:
    """Everything odd about a log. `settled`: the board says that it is complete; `ended`: its JOB has ended.

    `is_done_empty`: there is a `.done`, without a byte.
    """
    entries = [facts.odd[reason] for reason in _OF_RECORDS if reason in facts.odd]
    if settled or ended:
        entries += _of_size(facts, done)
    if ended and done is None:
        entries.append(_without_done(facts, is_done_empty=is_done_empty))
    return tuple(entries)


def orphan_done(file_len: int | None) -> Entry:
    """A `.done` whose data is not there."""
    if not file_len:
        return reasons.entry(
            reasons.DONE_WITHOUT_DATA, "a .done without data that announces no bytes", grade=reasons.NOTE
        )
    detail = f"the .done announces {file_len} bytes, there is no data: it could not be written or was removed"
    return reasons.entry(reasons.DONE_WITHOUT_DATA, detail, count=file_len)


def _without_done(facts: LogFacts, *, is_done_empty: bool) -> Entry:
    """Data of an ended JOB without a `.done`. The runtime begins one only where there were bytes to announce."""
    if is_done_empty:
        missing = "may miss its end" if facts.size else "has no bytes"
        return reasons.entry(
            reasons.MISSING_DATA, f"the .done is empty, this data {missing}: the disk may have been full"
        )
    if facts.size:
        return reasons.entry(reasons.NO_DONE, "no .done vouches for this data: it may miss its end")
    return reasons.entry(reasons.EMPTY, "the log is empty and has no .done: nothing was recorded in it")


def _of_size(facts: LogFacts, done: Done | None) -> Iterator[Entry]:
    torn = facts.size % facts.record_bytes
    if torn:
        start = facts.size - torn
        detail = f"the last record has {torn} of {facts.record_bytes} bytes"
        yield reasons.entry(reasons.TORN_RECORD, detail, start, facts.size)
    if done is None:
        return
    if done.file_len > facts.size:
        announced = f"the .done announces {done.file_len} bytes, the file has {facts.size}"
        if facts.size == 0:
            yield reasons.entry(reasons.MISSING_DATA, f"{announced}: it could not be written", count=done.file_len)
        else:
            detail = f"{announced}: a short read, or bytes counted for an earlier inference"
            yield reasons.entry(reasons.ANNOUNCED_LENGTH, detail, count=done.file_len - facts.size)
    if facts.loads > 1:
        detail = f"{facts.loads} inferences in one file: the model was loaded again"
        yield reasons.entry(reasons.APPENDED, detail, facts.last_load_start, facts.size, facts.loads)


class Oddity(NamedTuple):
    """Something odd about records of a log: where the first and the last are, in bytes of the log, and how many.

    `records` counts those that are odd, or that are missing.
    """

    reason: str
    first: int
    last: int
    records: int

    @property
    def entry(self) -> Entry:
        """The ledger's entry about it."""
        return reasons.entry(self.reason, _OF_RECORDS[self.reason], self.first, self.last, self.records)


def oddities(unit: Unit) -> dict[int, list[Oddity]]:
    """Return what is odd about records whose layers were looked up, by the index of their log in the unit."""
    found: dict[int, list[Oddity]] = {}
    is_odd, missing = unit.is_gap_odd, unit.gap_missing
    (unknown,) = (unit.columns["layer_index"] < 0).nonzero()
    for reason, at, counts in (
        (reasons.SEQUENCE_GAP, unit.gap_at[~is_odd], missing[~is_odd]),
        (reasons.SEQUENCE_JUMP, unit.gap_at[is_odd], missing[is_odd]),
        (reasons.NO_LAYER, unknown, np.ones(len(unknown), np.int64)),
    ):
        if len(at):
            for log, oddity in _by_log(unit, reason, at, counts):
                found.setdefault(log, []).append(oddity)
    return found


def _by_log(unit: Unit, reason: str, at: NDArray[np.intp], counts: NDArray[np.int64]) -> Iterator[tuple[int, Oddity]]:
    logs, begins, sizes = np.unique(unit.seg_log[unit.segment[at]], return_index=True, return_counts=True)
    places = (at - unit.first[logs].repeat(sizes) + unit.before.records[logs].repeat(sizes)) * RECORD_BYTES[unit.kind]
    numbers = (logs, places[begins], places[begins + sizes - 1], np.add.reduceat(counts, begins))
    for log, first, last, count in zip(*(each.tolist() for each in numbers), strict=True):
        yield log, Oddity(reason, first, last, count)


class DataLog:
    """Decoding state of one log.

    `done` is what its `.done` says now, None before there is one. `settled`: the board vouched for its end.
    """

    def __init__(self, path: str, name: LogName, *, last_load_record: int | None = None) -> None:
        """`last_load_record`: where the last inference begins, when the `.done`'s length has shown it."""
        self.path = path
        self.name = name
        self.facts = LogFacts(RECORD_BYTES[name.kind])
        self.done: Done | None = None
        self.settled = False
        self.records = 0
        self.last_load_record = last_load_record
        self._begins: set[int] = set()  # records at which a load begins
        self._pending = b""
        self._progress = Progress.new(1)

    @property
    def is_fresh(self) -> bool:
        """Whether nothing but the bytes that come decides how they are read."""
        return self.facts.size == 0 and self.last_load_record is None

    def append(
        self, data: bytes, join: LayerJoin | None, counter_map: CounterMap | None, read: Unit | None = None
    ) -> SegmentRecords | ApiRecords | None:
        """Take the log's next bytes; returns the records that they finish, None when there are none.

        `read` is how the first bytes of a fresh aicore log were read before.
        """
        self.facts.size += len(data)
        self.settled = False
        data = self._pending + data
        count = len(data) // self.facts.record_bytes
        self._pending = data[count * self.facts.record_bytes :]
        if not count:
            return None
        first, self.records = self.records, self.records + count
        if self.name.kind is LogKind.ACL_API:
            return self._calls(first, view_records(data, API_DTYPE))
        if read is None:
            last_loads = {} if self.last_load_record is None else {0: self.last_load_record}
            read = read_unit(self.name.kind, [data], self._progress, counter_map, last_loads)
        self._progress = read.after
        return self._in_segments(read, join)

    @property
    def last_load(self) -> int:
        """The number of the inference that the log's end belongs to."""
        return max(self.facts.loads - 1, 0)

    def announced_load_record(self) -> int | None:
        """Where the `.done` says that the last inference begins; None where it says nothing that can be used.

        One that would have it begin in the middle of an inference before the last one is an earlier load's: that of the
        last was not written, or counts bytes of another inference too (format page 1).
        """
        if self.done is None or self.done.file_len > self.facts.size or self.facts.size == 0:
            return None
        record, odd = divmod(self.facts.size - self.done.file_len, self.facts.record_bytes)
        is_earlier = record * self.facts.record_bytes < self.facts.last_load_start and record not in self._begins
        if self.last_load_record is None and is_earlier:
            return None
        return None if odd or self.done.file_len == 0 else record

    def judge(self) -> tuple[int, str]:
        """How many of its inferences are whole, once its `.done` and all of its bytes are here; what is wrong else.

        A `.done` counts the bytes of the last inference. Those before it had their own, which was written over.
        """
        assert self.done is not None, "without a .done nobody knows"
        there = self.facts.size - self.facts.last_load_start
        fault = ""
        if self.done.file_len > there:
            fault = f"the .done announces {self.done.file_len} bytes, {there} are there"
        elif self.facts.size % self.facts.record_bytes:
            fault = "the last one is torn"
        elif not self.records:
            fault = "there are none"
        return self.facts.loads - bool(fault and self.records), fault

    def _calls(self, first: int, records: NDArray[Any]) -> ApiRecords:
        faults = api_magic_faults(records)
        number = np.arange(first, first + len(records))
        if len(faults):
            self._note_places(reasons.BAD_RECORD, first, faults)
            good = np.delete(np.arange(len(records)), faults)
            records, number = records[good], number[good]
        self._note_places(reasons.BEGIN_UNKNOWN, 0, number[np.flatnonzero(records["begin_us"] == 0)])
        return ApiRecords(self.path, self.name, number, records)

    def _in_segments(self, unit: Unit, join: LayerJoin | None) -> SegmentRecords:
        self._note_loads(unit)
        online = self.done.online_batch_num if self.done is not None else ()
        joined = Joined(join, self.name.batch_num or 0, self.name.input_pic_num or 0, online)
        unit.columns["layer_index"] = layers_of(unit, [joined])
        for oddity in oddities(unit).get(0, ()):
            self._note(oddity)
        return SegmentRecords(self.path, self.name, unit)

    def _note_loads(self, unit: Unit) -> None:
        loads = int(unit.after.loads[0])
        if loads > self.facts.loads:
            begun = unit.seg_load.searchsorted(np.arange(self.facts.loads, loads))
            places = (unit.seg_first[begun] + unit.before.records[0]).tolist()
            self._begins.update(places)
            self.facts.last_load_start = places[-1] * self.facts.record_bytes
            self.facts.loads = loads

    def _note_places(self, reason: str, first: int, indices: NDArray[Any]) -> None:
        if len(indices):
            size = self.facts.record_bytes
            first, last = (first + int(indices[0])) * size, (first + int(indices[-1])) * size
            self._note(Oddity(reason, first, last, len(indices)))

    def _note(self, found: Oddity) -> None:
        """Add to what is known of the same reason; places come in ascending order."""
        known = self.facts.odd.get(found.reason)
        if known is not None:
            found = found._replace(first=known.first or 0, records=known.count + found.records)
        self.facts.odd[found.reason] = found.entry
