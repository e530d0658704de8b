"""One data log while it grows: bytes in, records with their segments and layers out, facts for the ledger.

A record may arrive in pieces: bytes of an unfinished one wait for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field

from profagent.formats.names import LogKind, LogName
from profagent.formats.records import (
    AICPU_DTYPE,
    API_DTYPE,
    RECORD_BYTES,
    AicoreFile,
    Splitter,
    api_magic_faults,
    read_together,
    view_records,
)
from profagent.ingest import reasons
from profagent.ingest.changes import ApiRecords, SegmentRecords

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from profagent.formats.board_files import Done
    from profagent.formats.countermap import CounterMap
    from profagent.formats.join import LayerJoin
    from profagent.formats.records import AicoreRecords, Split
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


_DTYPES = {LogKind.AICPU: AICPU_DTYPE, LogKind.ACL_API: API_DTYPE}


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
        self._file = AicoreFile(Splitter(last_load_record))

    @property
    def is_fresh(self) -> bool:
        """Whether nothing but the bytes that come decides how they are read."""
        return self.facts.size == 0 and self.last_load_record is None

    def append(
        self,
        data: bytes,
        join: LayerJoin | None,
        counter_map: CounterMap | None,
        read: tuple[AicoreFile, AicoreRecords] | None = None,
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
        if self.name.kind is LogKind.AICORE:
            self._file, found = read or (self._file, read_together([self._file], [data], counter_map)[0])
            return self._aicore(first, found, join)
        records = view_records(data, _DTYPES[self.name.kind])
        return self._calls(first, records) if self.name.kind is LogKind.ACL_API else self._aicpu(first, records, join)

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

    def _aicore(self, first: int, read: AicoreRecords, join: LayerJoin | None) -> SegmentRecords:
        self._note_gaps(first, read.split)
        columns = {"ticks": read.ticks, "ticks_before": read.ticks_before}
        return self._in_segments(first, read.split, read.net, read.sequence, join, columns, read.counters)

    def _aicpu(self, first: int, records: NDArray[Any], join: LayerJoin | None) -> SegmentRecords:
        net, sequence = records["net"], records["sequence"]
        columns = {name: records[name] for name in ("begin_us", "end_us", "segment_start_us", "segment_end_us")}
        return self._in_segments(first, self._file.splitter.feed(sequence, net), net, sequence, join, columns, {})

    def _in_segments(
        self,
        first: int,
        split: Split,
        net: NDArray[Any],
        sequence: NDArray[Any],
        join: LayerJoin | None,
        columns: Mapping[str, NDArray[Any]],
        counters: Mapping[str, NDArray[np.float64]],
    ) -> SegmentRecords:
        self._note_loads(first, split.load)
        layer_index = self._layer_index(net, sequence, join, is_one_net=split.segment[0] == split.segment[-1])
        self._note_places(reasons.NO_LAYER, first, (layer_index < 0).nonzero()[0])
        return SegmentRecords(
            path=self.path,
            name=self.name,
            first_record=first,
            load=split.load,
            ordinal=split.segment,
            net=net,
            sequence=sequence,
            layer_index=layer_index,
            columns=columns,
            counters=counters,
        )

    def _layer_index(
        self, nets: NDArray[Any], sequence: NDArray[Any], join: LayerJoin | None, *, is_one_net: bool
    ) -> NDArray[np.int32]:
        if join is not None and is_one_net:
            return self._layers_of_net(join, int(nets[0]), sequence)
        layer_index = np.full(len(nets), -1, np.int32)
        if join is not None:
            for net in set(nets.tolist()):
                chosen = nets == net
                layer_index[chosen] = self._layers_of_net(join, net, sequence[chosen])
        return layer_index

    def _layers_of_net(self, join: LayerJoin, net: int, sequence: NDArray[Any]) -> NDArray[np.int32]:
        if self.name.kind is LogKind.AICPU:
            return join.aicpu_layer_index(net, sequence)
        online = self.done.online_batch_num if self.done is not None else ()
        return join.layer_index(net, sequence, self.name.batch_num or 0, self.name.input_pic_num or 0, online)

    def _note_loads(self, first: int, load: NDArray[np.int64]) -> None:
        last = int(load[-1])
        if last == self.facts.loads == int(load[0]):
            # All of these are the next one's, as in most files.
            self._begins.add(first)
            self.facts.last_load_start = first * self.facts.record_bytes
            self.facts.loads += 1
        elif last >= self.facts.loads:
            begun = np.arange(self.facts.loads, last + 1)
            self._begins.update((first + load.searchsorted(begun)).tolist())
            self.facts.last_load_start = (first + int(load.searchsorted(last))) * self.facts.record_bytes
            self.facts.loads = last + 1

    def _note_gaps(self, first: int, split: Split) -> None:
        gaps = zip(split.gap_at.tolist(), split.gap_missing.tolist(), split.is_gap_odd.tolist(), strict=True)
        for index, missing, odd in gaps:
            place = (first + index) * self.facts.record_bytes
            self._note(reasons.SEQUENCE_JUMP if odd else reasons.SEQUENCE_GAP, place, place, missing)

    def _note_places(self, reason: str, first: int, indices: NDArray[Any]) -> None:
        if len(indices):
            size = self.facts.record_bytes
            self._note(reason, (first + int(indices[0])) * size, (first + int(indices[-1])) * size, len(indices))

    def _note(self, reason: str, first: int, last: int, count: int) -> None:
        """So many finds between two byte offsets; places come in ascending order."""
        known = self.facts.odd.get(reason)
        if known is not None:
            first, count = known.first or 0, known.count + count
        self.facts.odd[reason] = reasons.entry(reason, _OF_RECORDS[reason], first, last, count)
