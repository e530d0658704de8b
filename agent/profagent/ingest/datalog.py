"""One data log while it grows: bytes in, records with their segments and layers out, facts for the ledger.

A record may arrive in pieces: bytes of an unfinished one wait for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from profagent.formats.names import LogKind, LogName
from profagent.formats.records import AICORE_DTYPE, AICPU_DTYPE, API_DTYPE, RECORD_BYTES, api_magic_faults, view_records
from profagent.formats.segments import Split, Splitter
from profagent.ingest.assess import LogFacts, Places
from profagent.ingest.changes import ApiRecords, SegmentRecords

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from profagent.formats.countermap import CounterMap
    from profagent.formats.done import Done
    from profagent.formats.join import LayerJoin

_DTYPES = {LogKind.AICORE: AICORE_DTYPE, LogKind.AICPU: AICPU_DTYPE, LogKind.ACL_API: API_DTYPE}


class DataLog:
    """Decoding state of one log.

    `done` is what its `.done` says now, None before there is one. `settled`: the board vouched for its end.
    """

    def __init__(self, path: str, name: LogName, *, last_stretch_record: int | None = None) -> None:
        """`last_stretch_record`: where the last inference begins, when the `.done`'s length has shown it."""
        self.path = path
        self.name = name
        self.facts = LogFacts(RECORD_BYTES[name.kind])
        self.done: Done | None = None
        self.settled = False
        self.records = 0
        self.last_stretch_record = last_stretch_record
        self._pending = b""
        self._splitter = Splitter(last_stretch_record=last_stretch_record)
        self._ticks_before = 0
        self._ordinal = -1

    def append(
        self, data: bytes, join: LayerJoin | None, counter_map: CounterMap | None
    ) -> SegmentRecords | ApiRecords | None:
        """Take the log's next bytes; returns the records that they finish, None when there are none."""
        self.facts.size += len(data)
        self.settled = False
        data = self._pending + data
        records = view_records(data, _DTYPES[self.name.kind])
        self._pending = data[len(records) * self.facts.record_bytes :]
        if not len(records):
            return None
        first, self.records = self.records, self.records + len(records)
        if self.name.kind is LogKind.ACL_API:
            return self._calls(first, records)
        return self._segments(first, records, join, counter_map)

    @property
    def last_stretch(self) -> int:
        """The number of the inference that the log's end belongs to."""
        return max(self.facts.stretches - 1, 0)

    def announced_stretch_record(self) -> int | None:
        """Where the `.done` says that the last inference begins; None where it says nothing that can be used."""
        if self.done is None or self.done.file_len > self.facts.size or self.facts.size == 0:
            return None
        record, odd = divmod(self.facts.size - self.done.file_len, self.facts.record_bytes)
        return None if odd or self.done.file_len == 0 else record

    def _calls(self, first: int, records: NDArray[Any]) -> ApiRecords:
        faults = api_magic_faults(records)
        number = np.arange(first, first + len(records))
        if len(faults):
            self._note_places(self.facts.without_magic, first, faults)
            good = np.delete(np.arange(len(records)), faults)
            records, number = records[good], number[good]
        self._note_places(self.facts.begun_before, 0, number[np.flatnonzero(records["begin_us"] == 0)])
        return ApiRecords(self.path, self.name, number, records)

    def _segments(
        self, first: int, records: NDArray[Any], join: LayerJoin | None, counter_map: CounterMap | None
    ) -> SegmentRecords:
        split = self._splitter.feed(records["sequence"], records["net"])
        self._note_stretches(first, split.stretch)
        layer_index = self._layer_index(records, join)
        self._note_places(self.facts.nameless, first, (layer_index < 0).nonzero()[0])
        aicore = self.name.kind is LogKind.AICORE
        if aicore:
            self._note_gaps(first, split)
        return SegmentRecords(
            path=self.path,
            name=self.name,
            first_record=first,
            stretch=split.stretch,
            ordinal=split.segment,
            net=records["net"],
            sequence=records["sequence"],
            layer_index=layer_index,
            columns=self._ticks(records, split.segment) if aicore else _aicpu_columns(records),
            counters=counter_map.apply(records) if aicore and counter_map is not None else {},
        )

    def _layer_index(self, records: NDArray[Any], join: LayerJoin | None) -> NDArray[np.int32]:
        layer_index = np.full(len(records), -1, np.int32)
        if join is None:
            return layer_index
        nets, sequence = records["net"], records["sequence"]
        for net in set(nets.tolist()):
            chosen = nets == net
            layer_index[chosen] = self._layers_of_net(join, net, sequence[chosen])
        return layer_index

    def _layers_of_net(self, join: LayerJoin, net: int, sequence: NDArray[Any]) -> NDArray[np.int32]:
        if self.name.kind is LogKind.AICPU:
            return join.aicpu_layer_index(net, sequence)
        online = self.done.online_batch_num if self.done is not None else ()
        return join.layer_index(net, sequence, self.name.batch_num or 0, self.name.input_pic_num or 0, online)

    def _ticks(self, records: NDArray[Any], ordinal: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Ticks, and for each record the sum of those before it in its segment."""
        ticks = records["ticks"].astype(np.int64)
        before = np.cumsum(ticks) - ticks
        begins = _steps(self._ordinal, ordinal) != 0
        # A segment that goes on from earlier bytes carries their ticks on; one that begins here starts from 0.
        carried = np.concatenate(([self._ticks_before], -before[begins]))
        before += carried[np.cumsum(begins)]
        self._ordinal, self._ticks_before = int(ordinal[-1]), int(before[-1] + ticks[-1])
        return {"ticks": ticks, "ticks_before": before}

    def _note_stretches(self, first: int, stretch: NDArray[np.int64]) -> None:
        if int(stretch[-1]) < self.facts.stretches:
            return
        begins = np.flatnonzero(_steps(self.facts.stretches - 1, stretch))
        self.facts.last_stretch_start = (first + int(begins[-1])) * self.facts.record_bytes
        self.facts.stretches = int(stretch[-1]) + 1

    def _note_gaps(self, first: int, split: Split) -> None:
        gaps = zip(split.gap_at.tolist(), split.gap_missing.tolist(), split.is_gap_odd.tolist(), strict=True)
        for index, missing, odd in gaps:
            place = (first + index) * self.facts.record_bytes
            (self.facts.jumped if odd else self.facts.missing).add(place, place, missing)

    def _note_places(self, places: Places, first: int, indices: NDArray[Any]) -> None:
        if len(indices):
            size = self.facts.record_bytes
            places.add((first + int(indices[0])) * size, (first + int(indices[-1])) * size, len(indices))


def _steps(before: int, values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give the step to each value from the one before it."""
    # np.diff takes five times as long for the records of one file.
    steps = values.copy()
    steps[0] -= before
    steps[1:] -= values[:-1]
    return steps


def _aicpu_columns(records: NDArray[Any]) -> dict[str, NDArray[Any]]:
    return {name: records[name] for name in ("begin_us", "end_us", "segment_start_us", "segment_end_us")}
