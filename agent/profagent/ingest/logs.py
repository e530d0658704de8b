"""Data logs of a JOB while they grow: bytes in, records with their segments and layers out, facts for the ledger.

`DataLog` decodes one log. `LogState` says what is still to come of a log, and which `.done` speaks of it. `DataLogs`
keeps the decoding states that are in use; the state of any other log is built again from the bytes of the log.
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
        odd: The ledger's entries about records, by reason.
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

    `settled`: the board says that the log is complete. `ended`: its JOB has ended. `is_done_empty`: its `.done` is
    there and has no byte.
    """
    entries = [facts.odd[reason] for reason in _OF_RECORDS if reason in facts.odd]
    if settled or ended:
        entries += _of_size(facts, done)
    if ended and done is None:
        entries.append(_without_done(facts, is_done_empty=is_done_empty))
    return tuple(entries)


def orphan_done(file_len: int | None) -> Entry:
    """Return the ledger's entry about a `.done` without data, which announces so many bytes."""
    if not file_len:
        return ledger.entry(ledger.DONE_WITHOUT_DATA, "a .done without data that announces no bytes", grade=ledger.NOTE)
    detail = f"the .done announces {file_len} bytes, there is no data: it could not be written or was removed"
    return ledger.entry(ledger.DONE_WITHOUT_DATA, detail, count=file_len)


def _without_done(facts: LogFacts, *, is_done_empty: bool) -> Entry:
    # The runtime begins a .done only where there were bytes to announce.
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
        reason: Why they are odd, as the ledger names it.
        first: Where the first of them is, in bytes of the log.
        last: Where the last of them is, in bytes of the log.
        records: How many are odd, or are missing.
    """

    reason: str
    first: int
    last: int
    records: int

    @property
    def entry(self) -> Entry:
        """The ledger's entry about these records."""
        return ledger.entry(self.reason, _OF_RECORDS[self.reason], self.first, self.last, self.records)


def oddities(unit: Unit) -> dict[int, list[Oddity]]:
    """Return what is odd about records whose layers were looked up, by the index of their log in the unit."""
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
        """`last_load_record` is where the last inference begins, if the `.done`'s length has shown it."""
        self.path = path
        self.name = name
        self.facts = LogFacts(RECORD_BYTES[name.kind])
        self.done: Done | None = None  # what its `.done` says now; None before there is one that can be read
        self.records = 0
        self.last_load_record = last_load_record
        self._begins: set[int] = set()  # records at which a load begins
        self._pending = b""
        self._progress = LogProgress.new(1)

    def append(
        self, data: bytes, join: LayerJoin | None, counter_map: CounterMap | None
    ) -> SegmentRecords | ApiRecords | None:
        """Take the log's next bytes; returns the records that they finish, None when there are none."""
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
        """The number of the inference that the log's end belongs to."""
        return max(self.facts.loads - 1, 0)

    def announced_load_record(self) -> int | None:
        """Return the record at which the last inference begins by the `.done`; None where it says nothing usable.

        A `.done` that would have it begin in the middle of an inference before the last one is an earlier load's: that
        of the last was not written, or counts bytes of another inference too (format page 1).
        """
        if self.done is None or self.done.file_len > self.facts.size or self.facts.size == 0:
            return None
        record, odd = divmod(self.facts.size - self.done.file_len, self.facts.record_bytes)
        is_earlier = record * self.facts.record_bytes < self.facts.last_load_start and record not in self._begins
        if self.last_load_record is None and is_earlier:
            return None
        return None if odd or self.done.file_len == 0 else record

    def judge(self) -> tuple[int, str]:
        """Return how many of its inferences are whole and what is wrong with its end, empty for nothing.

        All of its bytes and its `.done` are here. A `.done` counts the bytes of the last inference. Those before it had
        `.done` files of their own, which were written over.
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
        # Places come in ascending order.
        known = self.facts.odd.get(found.reason)
        if known is not None:
            found = found._replace(first=known.first or 0, records=known.count + found.records)
        self.facts.odd[found.reason] = found.entry


# The life of a log


class DataLogState(Enum):
    """Where a data log stands: whether bytes are to come, and whether the `.done` that is there speaks of them."""

    # No bytes are to come, and a `.done` speaks of those that are here. Any log of which nothing is noted is here.
    RESTING = "resting"
    # The `.done` came in this stream, and the log was not judged by it yet: its data is not here, or it is damaged.
    FRESH = "fresh"
    # The `.done` may be of an earlier inference, until it comes anew or is confirmed.
    STALE = "stale"
    # These three differ in the same way, and bytes are to come.
    GROWING = "growing"
    GROWING_FRESH = "growing, fresh"
    GROWING_STALE = "growing, stale"
    # The board vouched for the bytes that are here, and the `.done` speaks of others that are still to come.
    EARLY = "early"

    __hash__ = object.__hash__  # that of Enum is slow

    @property
    def is_growing(self) -> bool:
        """True if bytes are to come, and the board did not vouch for those that are here."""
        return self in _GROWING

    @property
    def is_stale(self) -> bool:
        """True if the `.done` is to come anew, or to be confirmed."""
        return self in _STALE

    @property
    def is_open(self) -> bool:
        """True if the log cannot be judged: bytes are to come, or its `.done` anew."""
        return self in _OPEN


class LogEvent(Enum):
    """What happens to a data log."""

    ANNOUNCED = "announced"  # the board has more of it than is held
    BEGUN = "begun"  # the first bytes of its first generation follow
    WENT_ON = "went on"  # bytes follow behind others, or of a later generation
    COMPLETED = "completed"  # the board vouches for its end
    DONE_CAME = "done came"  # for the first time, or it was confirmed to be as it was
    DONE_REWRITTEN = "done rewritten"  # it came and says something else than before
    JUDGED = "judged"  # by its `.done`
    STREAM_BEGUN = "stream begun"  # what was told in the stream before may have changed
    SETTLED = "settled"  # nothing more comes of the log or of its `.done`
    CAME_WHOLE = "came whole"  # with its `.done` in one batch

    __hash__ = object.__hash__


RESTING, FRESH, STALE, GROWING, GROWING_FRESH, GROWING_STALE, EARLY = DataLogState
_GROWING = frozenset({GROWING, GROWING_FRESH, GROWING_STALE})
_STALE = frozenset({STALE, GROWING_STALE})
_OPEN = _GROWING | _STALE | {EARLY}

# By event, the state that follows on each state in the order of LogState; None where the event cannot happen.
#
# A model that is loaded again adds to its log, and then writes the `.done` anew (format page 2.2). So bytes behind a
# complete log make its `.done` stale, and so does an announcement, unless the `.done` came in this stream. A `.done`
# that is rewritten while its log is complete is early: it speaks of bytes that are still to come.
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
    """States of a JOB's logs. They outlive decoding states, which are built again from bytes; these are not.

    At most `most` logs are not at rest. Of more, the one that was noted first counts as resting: it is judged by the
    `.done` that is there, and once more when bytes or another `.done` come.
    """

    def __init__(self, most: int = OPEN_LOGS) -> None:
        self._most = most
        self._states: OrderedDict[str, DataLogState] = OrderedDict()  # those at rest are left out

    def of(self, path: str) -> DataLogState:
        """Return the state of a log."""
        return self._states.get(path, RESTING)

    def note(self, path: str, event: LogEvent) -> DataLogState:
        """Move a log to its next state; returns the state that it had."""
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

    Those of calls are kept apart: they are few, go on as long as their model is loaded, and grow without bound.
    Methods that yield changes return the log's state, which may be a new object.
    """

    def __init__(self, files: JobFiles, joins: Joins, counter_map: CounterMap | None, most: int) -> None:
        self.joins = joins
        self.counter_map = counter_map
        self.states = LogStates()
        self._files = files
        self._logs: LRUCache[str, DataLog] = LRUCache(most)
        self._calls: LRUCache[str, DataLog] = LRUCache(most)

    def known(self, path: str) -> DataLog | None:
        """Return the decoding state of a log; None where it is not in use."""
        return self._logs.get(path) or self._calls.get(path)

    def forget(self, path: str) -> None:
        """Drop the decoding state of a log, whose bytes are void."""
        self._logs.pop(path, None)
        self._calls.pop(path, None)

    def at(self, path: str, name: LogName, offset: int | None) -> Generator[Change, None, DataLog]:
        """Return the log's state at `offset`, or at its end where that is None.

        The rows of a log that is not in use are written again: with which tables they were decoded is not known.
        Raises StoreError.
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
        """Take the log's next bytes."""
        had_records, load = log.records > 0, log.last_load
        records = log.append(data, self.joins.of(log.name), self.counter_map)
        if records is None:
            return
        yield records
        if log.done is not None and had_records and load != log.last_load and log.name.kind is LogKind.AICORE:
            yield InferenceTimed(log.name, load, None)

    def redecode(self, log: DataLog, *, last_load_record: int | None = None) -> Generator[Change, None, DataLog]:
        """Write all rows of a log once more."""
        anew = DataLog(log.path, log.name, last_load_record=last_load_record)
        anew.done = log.done
        yield from self._decoded(anew, self._bytes(log.path, log.facts.size))
        self._remember(anew)
        return anew

    def split_as_announced(self, log: DataLog) -> Generator[Change, None, DataLog]:
        """Split a log where its `.done`'s length shows another start of the last inference than the rule found."""
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
        """Tell when the last inference of a log ran; while the log is open, nobody knows which one that is."""
        is_open = log.done is not None and self.states.of(log.path).is_open
        if log.name.kind is LogKind.AICORE and log.records and not is_open:
            yield InferenceTimed(log.name, log.last_load, log.done)

    def judged(self, log: DataLog) -> Generator[Change, None, DataLog]:
        """Tell which inferences of a log are whole, and when they ran, if all of it and its `.done` are here."""
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
        """Decode all bytes of a log whose rows, if any, were written before."""
        if not data:
            return
        records = log.append(data, self.joins.of(log.name), self.counter_map)
        assert records is None or isinstance(records, SegmentRecords), "calls have no segments"
        yield Redecoded(log.path, records)
        yield from self.timed(log)

    def _recount(self, log: DataLog, size: int | None) -> None:
        """Find again what the bytes of a log of calls have shown; its rows are always the same."""
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
    """Return what the `.done` of a data log says; None where there is none that can be read."""
    path = data_path + DONE_SUFFIX
    name, data = parse_log_name(path), small_file(files, path)
    if name is None or data is None:
        return None
    try:
        return parse_done(data, name.kind, path)
    except FormatError:
        return None
