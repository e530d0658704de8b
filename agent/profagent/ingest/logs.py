"""Data logs of a JOB while they grow: bytes in, records with their segments and layers out, facts for the ledger.

`DataLog` decodes one log. `LogStates` says what is still to come of a log, and to which bytes its `.done` belongs.
`DataLogs` holds the decoding states that are in use; the state of any other log is built again from the bytes of the
log.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from cachetools import LRUCache
from msgspec import Struct, field

from profagent import ledger
from profagent.errors import FormatError
from profagent.formats.board_files import parse_done
from profagent.formats.join import Joined, layers_of
from profagent.formats.names import DONE_SUFFIX, LogKind, LogName, parse_log_name
from profagent.formats.records import API_DTYPE, RECORD_BYTES, LogProgress, api_magic_faults, read_unit, view_records
from profagent.ingest.changes import ApiRecords, InferenceTimed, LogJudged, Redecoded, SegmentRecords
from profagent.ingest.decoder import check_size, small_file
from profagent.limits import CALLS_BLOCK_BYTES, OPEN_LOGS

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from numpy.typing import NDArray

    from profagent.formats.board_files import Done
    from profagent.formats.countermap import CounterMap
    from profagent.formats.join import LayerJoin
    from profagent.formats.records import Unit
    from profagent.ingest.changes import Change
    from profagent.ingest.decode import Joins
    from profagent.ingest.decoder import JobFiles
    from profagent.ledger import Entry

# What the ledger says of a log

_OF_RECORDS = {
    ledger.SEQUENCE_GAP: "records missing from the sequence: the runtime's filter",
    ledger.SEQUENCE_JUMP: "records missing: more than the runtime's filter leaves out",
    ledger.NO_LAYER: "records without a known layer: shown without a name",
    ledger.BAD_RECORD: "expected 0x00005A5A at the record's start: bytes kept, record not decoded",
    ledger.BEGIN_UNKNOWN: "calls that began before profiling was started",
}


class LogFacts(Struct):
    """Facts that decoding one data log has shown so far.

    Attributes:
        record_bytes: Size of a record.
        size: Bytes of the log.
        loads: Inferences in the log: more than one where the model was loaded again.
        last_load_start: Byte at which the last one begins.
        odd: Entries of the ledger about records, by reason.
    """

    record_bytes: int
    size: int = 0
    loads: int = 0
    last_load_start: int = 0
    odd: dict[str, Entry] = field(default_factory=dict)


def assess(
    facts: LogFacts, done: Done | None, *, settled: bool, ended: bool, is_done_empty: bool = False
) -> tuple[Entry, ...]:
    """Return the ledger's entries about a log.

    `settled`: the board has confirmed that the log is complete. `ended`: its JOB has ended. `is_done_empty`: its
    `.done` exists and is empty.
    """
    entries = [facts.odd[reason] for reason in _OF_RECORDS if reason in facts.odd]
    if settled or ended:
        entries += _of_size(facts, done)
    if ended and done is None:
        entries.append(_without_done(facts, is_done_empty=is_done_empty))
    return tuple(entries)


def orphan_done(file_len: int | None) -> Entry:
    """Return the ledger's entry about a `.done` without data, which announces `file_len` bytes."""
    if not file_len:
        return ledger.entry(ledger.DONE_WITHOUT_DATA, "a .done without data that announces no bytes", grade=ledger.NOTE)
    detail = f"the .done announces {file_len} bytes, there is no data: it could not be written or was removed"
    return ledger.entry(ledger.DONE_WITHOUT_DATA, detail, count=file_len)


def _without_done(facts: LogFacts, *, is_done_empty: bool) -> Entry:
    # The runtime creates a .done only where there were bytes to announce.
    if is_done_empty:
        missing = "may miss its end" if facts.size else "has no bytes"
        return ledger.entry(
            ledger.MISSING_DATA, f"the .done is empty, this data {missing}: the disk may have been full"
        )
    if facts.size:
        return ledger.entry(ledger.NO_DONE, "no .done vouches for this data: it may miss its end")
    return ledger.entry(ledger.EMPTY, "the log is empty and has no .done: nothing was recorded in it")


def _of_size(facts: LogFacts, done: Done | None) -> Iterator[Entry]:
    torn = facts.size % facts.record_bytes
    if torn:
        start = facts.size - torn
        detail = f"the last record has {torn} of {facts.record_bytes} bytes"
        yield ledger.entry(ledger.TORN_RECORD, detail, start, facts.size)
    if done is None:
        return
    if done.file_len > facts.size:
        announced = f"the .done announces {done.file_len} bytes, the file has {facts.size}"
        if facts.size == 0:
            yield ledger.entry(ledger.MISSING_DATA, f"{announced}: it could not be written", count=done.file_len)
        else:
            detail = f"{announced}: a short read, or bytes counted for an earlier inference"
            yield ledger.entry(ledger.ANNOUNCED_LENGTH, detail, count=done.file_len - facts.size)
    if facts.loads > 1:
        detail = f"{facts.loads} inferences in one file: the model was loaded again"
        yield ledger.entry(ledger.APPENDED, detail, facts.last_load_start, facts.size, facts.loads)


class Oddity(NamedTuple):
    """Odd records of a log, for one reason.

    Attributes:
        reason: Name of the reason in the ledger.
        first: Byte of the log at which the first of them begins.
        last: Byte of the log at which the last of them begins.
        records: Number of odd or missing records.
    """

    reason: str
    first: int
    last: int
    records: int

    @property
    def entry(self) -> Entry:
        """Entry of the ledger about these records."""
        return ledger.entry(self.reason, _OF_RECORDS[self.reason], self.first, self.last, self.records)


def oddities(unit: Unit) -> dict[int, list[Oddity]]:
    """Return the odd records of a unit with layers, by the index of their log in the unit."""
    found: dict[int, list[Oddity]] = {}
    is_odd, missing = unit.is_gap_odd, unit.gap_missing
    (unknown,) = (unit.columns["layer_index"] < 0).nonzero()
    for reason, at, counts in (
        (ledger.SEQUENCE_GAP, unit.gap_at[~is_odd], missing[~is_odd]),
        (ledger.SEQUENCE_JUMP, unit.gap_at[is_odd], missing[is_odd]),
        (ledger.NO_LAYER, unknown, np.ones(len(unknown), np.int64)),
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


# One log


class DataLog:
    """Decoding state of one log. A record may arrive in pieces: bytes of an unfinished one wait for the rest."""

    def __init__(self, path: str, name: LogName, *, last_load_record: int | None = None) -> None:
        """Set the log; `last_load_record` is the first record of its last inference, if the `.done` has shown it."""
        self.path = path
        self.name = name
        self.facts = LogFacts(RECORD_BYTES[name.kind])
        # Content of its newest `.done`; None before there is a readable one.
        self.done: Done | None = None
        # Number of complete records so far.
        self.records = 0
        self.last_load_record = last_load_record
        # Records at which a load begins.
        self._begins: set[int] = set()
        # Bytes of a record whose rest has not come.
        self._pending = b""
        # State of the segmentation behind the last record.
        self._progress = LogProgress.new(1)

    def append(
        self, data: bytes, join: LayerJoin | None, counter_map: CounterMap | None
    ) -> SegmentRecords | ApiRecords | None:
        """Take the log's next bytes; return the records that they complete, None if there are none."""
        self.facts.size += len(data)
        data = self._pending + data
        count = len(data) // self.facts.record_bytes
        self._pending = data[count * self.facts.record_bytes :]
        if not count:
            return None
        first, self.records = self.records, self.records + count
        if self.name.kind is LogKind.ACL_API:
            return self._calls(first, view_records(data, API_DTYPE))
        last_loads = {} if self.last_load_record is None else {0: self.last_load_record}
        unit = read_unit(self.name.kind, [data], self._progress, counter_map, last_loads)
        self._progress = unit.after
        return self._in_segments(unit, join)

    @property
    def last_load(self) -> int:
        """Number of the inference to which the log's end belongs."""
        return max(self.facts.loads - 1, 0)

    def announced_load_record(self) -> int | None:
        """Return the first record of the last inference by the `.done`; None if it is not usable.

        A `.done` by which the last inference would begin in the middle of an earlier one belongs to an earlier load:
        that of the last load was not written, or counts bytes of another inference too (the-format.md 1).
        """
        if self.done is None or self.done.file_len > self.facts.size or self.facts.size == 0:
            return None
        record, odd = divmod(self.facts.size - self.done.file_len, self.facts.record_bytes)
        is_earlier = record * self.facts.record_bytes < self.facts.last_load_start and record not in self._begins
        if self.last_load_record is None and is_earlier:
            return None
        return None if odd or self.done.file_len == 0 else record

    def judge(self) -> tuple[int, str]:
        """Return the number of complete inferences, and the fault at the end of the log, empty for none.

        All bytes of the log and its `.done` are here. A `.done` counts the bytes of the last inference. Earlier
        inferences had `.done` files of their own, which were overwritten.
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
            self._note_places(ledger.BAD_RECORD, first, faults)
            good = np.delete(np.arange(len(records)), faults)
            records, number = records[good], number[good]
        self._note_places(ledger.BEGIN_UNKNOWN, 0, number[np.flatnonzero(records["begin_us"] == 0)])
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
        # Bytes come in ascending order, so the first place of a reason never changes.
        known = self.facts.odd.get(found.reason)
        if known is not None:
            found = found._replace(first=known.first or 0, records=known.count + found.records)
        self.facts.odd[found.reason] = found.entry


# States of a log


class DataLogState(Enum):
    """State of a data log: more bytes may be to come, and its `.done` may belong to other bytes than those here."""

    # No bytes are to come, and the `.done` belongs to those that are here. Any log without a noted state rests.
    RESTING = "resting"
    # The `.done` came in this stream, but has not been used to judge the log: its data is not here, or the `.done` is
    # damaged.
    FRESH = "fresh"
    # The `.done` may belong to an earlier inference, until it comes again or the board confirms it.
    STALE = "stale"
    # As the three above, while bytes are to come.
    GROWING = "growing"
    GROWING_FRESH = "growing, fresh"
    GROWING_STALE = "growing, stale"
    # The board has confirmed the bytes that are here, and the `.done` announces others that are still to come.
    EARLY = "early"

    # The hash of Enum is slow, and these are looked up for each event of a log.
    __hash__ = object.__hash__

    @property
    def is_growing(self) -> bool:
        """True if bytes are to come, and the board has not confirmed those that are here."""
        return self in _GROWING

    @property
    def is_stale(self) -> bool:
        """True if the `.done` has to come again or to be confirmed."""
        return self in _STALE

    @property
    def is_open(self) -> bool:
        """True if the log cannot be judged: bytes or its `.done` are to come."""
        return self in _OPEN


class LogEvent(Enum):
    """Event in the life of a data log."""

    ANNOUNCED = "announced"  # the board has more of the log than is stored
    BEGUN = "begun"  # the first bytes of its first generation follow
    WENT_ON = "went on"  # bytes follow behind others, or of a later generation
    COMPLETED = "completed"  # the board has confirmed size and digest
    DONE_CAME = "done came"  # the `.done` came for the first time, or the board confirmed the stored one
    DONE_REWRITTEN = "done rewritten"  # the `.done` came with another content
    JUDGED = "judged"  # the log was judged by its `.done`
    STREAM_BEGUN = "stream begun"  # announcements of the stream before may be out of date
    SETTLED = "settled"  # nothing more comes of the log or of its `.done`
    CAME_WHOLE = "came whole"  # the log and its `.done` came in one batch

    __hash__ = object.__hash__


RESTING, FRESH, STALE, GROWING, GROWING_FRESH, GROWING_STALE, EARLY = DataLogState
_GROWING = frozenset({GROWING, GROWING_FRESH, GROWING_STALE})
_STALE = frozenset({STALE, GROWING_STALE})
_OPEN = _GROWING | _STALE | {EARLY}

# By event, the next state for each state in the order of DataLogState; None where the event cannot happen. A model that
# is loaded again adds to its log, and then writes the `.done` again (the-format.md 2.2). So bytes behind a complete log
# make its `.done` stale, and so does an announcement, unless the `.done` came in this stream. A `.done` that is
# rewritten while its log is complete is early: it belongs to bytes that are still to come.
_TRANSITIONS: Mapping[LogEvent, tuple[DataLogState | None, ...]] = {
    LogEvent.ANNOUNCED: (
        *(GROWING_STALE, GROWING_FRESH, GROWING_STALE, GROWING_STALE, GROWING_FRESH, GROWING_STALE),
        GROWING_FRESH,
    ),
    LogEvent.BEGUN: (GROWING, GROWING_FRESH, GROWING_STALE, GROWING, GROWING_FRESH, GROWING_STALE, GROWING_FRESH),
    LogEvent.WENT_ON: (
        *(GROWING_STALE, GROWING_STALE, GROWING_STALE, GROWING, GROWING_FRESH, GROWING_STALE),
        GROWING_FRESH,
    ),
    LogEvent.COMPLETED: (RESTING, FRESH, STALE, RESTING, FRESH, STALE, FRESH),
    LogEvent.DONE_CAME: (FRESH, FRESH, FRESH, GROWING_FRESH, GROWING_FRESH, GROWING_FRESH, EARLY),
    LogEvent.DONE_REWRITTEN: (EARLY, EARLY, FRESH, GROWING_FRESH, GROWING_FRESH, GROWING_FRESH, EARLY),
    LogEvent.JUDGED: (RESTING, RESTING, None, None, None, None, None),
    LogEvent.STREAM_BEGUN: (RESTING, RESTING, STALE, GROWING, GROWING, GROWING_STALE, EARLY),
    LogEvent.SETTLED: (RESTING, FRESH, RESTING, RESTING, FRESH, RESTING, FRESH),
    LogEvent.CAME_WHOLE: (RESTING, RESTING, RESTING, RESTING, RESTING, RESTING, RESTING),
}
_NEXT = {event: dict(zip(DataLogState, after, strict=True)) for event, after in _TRANSITIONS.items()}


class LogStates:
    """States of a JOB's logs, which cannot be found again in bytes, and so outlive decoding states.

    At most `most` logs are not at rest. Beyond that, the one noted first counts as resting: it is judged by the `.done`
    that is here, and again when bytes or another `.done` come.
    """

    def __init__(self, most: int = OPEN_LOGS) -> None:
        self._most = most
        # Logs that are not at rest, the one noted first in front.
        self._states: OrderedDict[str, DataLogState] = OrderedDict()

    def of(self, path: str) -> DataLogState:
        """Return the state of a log."""
        return self._states.get(path, RESTING)

    def note(self, path: str, event: LogEvent) -> DataLogState:
        """Move a log to its next state; return the state that it had."""
        before = self.of(path)
        after = _NEXT[event][before]
        assert after is not None, f"{event.value} while {before.value}"
        if after is RESTING:
            self._states.pop(path, None)
        elif after is not before:
            self._states[path] = after
            if len(self._states) > self._most:
                self._states.popitem(last=False)
        return before

    def begin_stream(self) -> None:
        """Note for all logs that a stream begins."""
        for path in [*self._states]:
            self.note(path, LogEvent.STREAM_BEGUN)


# The logs of a JOB


class DataLogs:
    """Decoding states of a JOB's logs: at most `most` of segments' logs, and as many of calls'.

    Those of calls are bounded apart: they are few, grow as long as their model is loaded, and are large. Methods that
    yield changes return the log's state, which may be a new object.
    """

    def __init__(self, files: JobFiles, joins: Joins, counter_map: CounterMap | None, most: int) -> None:
        self.joins = joins
        self.counter_map = counter_map
        # Outlives the decoding states below, which are caches.
        self.states = LogStates()
        self._files = files
        # Decoding states by path: of aicore and aicpu logs, and of acl_api logs.
        self._logs: LRUCache[str, DataLog] = LRUCache(most)
        self._calls: LRUCache[str, DataLog] = LRUCache(most)

    def known(self, path: str) -> DataLog | None:
        """Return the decoding state of a log; None where it is not in use."""
        return self._logs.get(path) or self._calls.get(path)

    def forget(self, path: str) -> None:
        """Drop the decoding state of a log whose bytes are void."""
        self._logs.pop(path, None)
        self._calls.pop(path, None)

    def at(self, path: str, name: LogName, offset: int | None) -> Generator[Change, None, DataLog]:
        """Return the log's state at `offset`, or at its end if that is None.

        The rows of a log that is not in use are written again, because it is unknown with which tables they were
        decoded. Raises StoreError.
        """
        log = self.known(path)
        if log is None or offset not in (None, log.facts.size):
            log = DataLog(path, name)
            log.done = done_of(self._files, path)
            if name.kind is LogKind.ACL_API:
                self._recount(log, offset)
            elif offset != 0:
                yield from self._decoded(log, self._bytes(path, offset))
            self._remember(log)
        return log

    def at_end(self, path: str, name: LogName) -> Generator[Change, None, DataLog]:
        """Return the log's state at its end, split as its `.done` announces."""
        log = self.known(path)
        if log is None:
            log = yield from self.at(path, name, None)
            log = yield from self.split_as_announced(log)
        return log

    def grow(self, log: DataLog, data: bytes) -> Iterator[Change]:
        """Yield the changes for the log's next bytes."""
        had_records, load = log.records > 0, log.last_load
        records = log.append(data, self.joins.of(log.name), self.counter_map)
        if records is None:
            return
        yield records
        if log.done is not None and had_records and load != log.last_load and log.name.kind is LogKind.AICORE:
            yield InferenceTimed(log.name, load, None)

    def redecode(self, log: DataLog, *, last_load_record: int | None = None) -> Generator[Change, None, DataLog]:
        """Yield all rows of a log again; return the log's new state."""
        anew = DataLog(log.path, log.name, last_load_record=last_load_record)
        anew.done = log.done
        yield from self._decoded(anew, self._bytes(log.path, log.facts.size))
        self._remember(anew)
        return anew

    def split_as_announced(self, log: DataLog) -> Generator[Change, None, DataLog]:
        """Split a log again if its `.done` shows another start of the last inference than the rule found."""
        record = log.announced_load_record()
        if log.name.kind is LogKind.ACL_API or record == log.last_load_record:
            return log
        if log.last_load_record is not None:
            log = yield from self.redecode(log)
            record = log.announced_load_record()
        if record not in (None, log.facts.last_load_start // log.facts.record_bytes):
            log = yield from self.redecode(log, last_load_record=record)
        return log

    def timed(self, log: DataLog) -> Iterator[Change]:
        """Yield the times of a log's last inference; while the log is open, it is unknown which one that is."""
        is_open = log.done is not None and self.states.of(log.path).is_open
        if log.name.kind is LogKind.AICORE and log.records and not is_open:
            yield InferenceTimed(log.name, log.last_load, log.done)

    def judged(self, log: DataLog) -> Generator[Change, None, DataLog]:
        """Yield which inferences of a log are complete, and their times, once its bytes and its `.done` are here."""
        is_open = self.states.of(log.path).is_open
        if is_open or log.done is None or log.name.kind is LogKind.ACL_API or not self._has_data(log):
            return log
        self.states.note(log.path, LogEvent.JUDGED)
        log = yield from self.split_as_announced(log)
        yield from self.timed(log)
        yield LogJudged(log.path, *log.judge())
        return log

    def is_complete(self, log: DataLog) -> bool:
        """Return True if all bytes of a log are here; False for a `.done` without data."""
        return not self.states.of(log.path).is_growing and self._has_data(log)

    def _has_data(self, log: DataLog) -> bool:
        return log.facts.size > 0 or self._files.read(log.path, 0) is not None

    def _decoded(self, log: DataLog, data: bytes) -> Iterator[Change]:
        if not data:
            return
        records = log.append(data, self.joins.of(log.name), self.counter_map)
        assert records is None or isinstance(records, SegmentRecords), "calls have no segments"
        yield Redecoded(log.path, records)
        yield from self.timed(log)

    def _recount(self, log: DataLog, size: int | None) -> None:
        while size is None or log.facts.size < size:
            left = CALLS_BLOCK_BYTES if size is None else min(CALLS_BLOCK_BYTES, size - log.facts.size)
            data = self._files.read(log.path, left, start=log.facts.size)
            if not data:
                break
            log.append(data, None, None)
        check_size(log.path, log.facts.size, size)

    def _bytes(self, path: str, size: int | None) -> bytes:
        data = self._files.read(path, size) or b""
        check_size(path, len(data), size)
        return data

    def _remember(self, log: DataLog) -> None:
        alike = self._calls if log.name.kind is LogKind.ACL_API else self._logs
        alike[log.path] = log


def done_of(files: JobFiles, data_path: str) -> Done | None:
    """Return the content of a data log's `.done`; None where there is no readable one."""
    path = data_path + DONE_SUFFIX
    name, data = parse_log_name(path), small_file(files, path)
    if name is None or data is None:
        return None
    try:
        return parse_done(data, name.kind, path)
    except FormatError:
        return None
