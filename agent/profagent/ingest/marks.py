"""Marks, spans, ranges and steps of programs: 256 bytes, as `profagent_app.marks` writes them, and a row each."""

from __future__ import annotations

import enum
import json
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.ingest import reasons
from profagent.ingest.changes import ContentLedger
from profagent.ingest.spools import RecordReader, SpoolDecoder, rows_of, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from profagent.ingest.changes import Change, Entry
    from profagent.ingest.decoder import JobFiles

RECORD_BYTES = 256
_MAGIC, _VERSION = 0x4B52414D, 1
_TEXT_BYTES = 208
_LARGEST = 2**63
_FIELDS = np.dtype(
    [
        ("magic", "<u4"),
        ("version", "u1"),
        ("kind", "u1"),
        ("text_bytes", "<u2"),
        ("pid", "<u4"),
        ("tid", "<u4"),
        ("begin_ns", "<u8"),
        ("end_ns", "<u8"),
        ("number", "<u8"),
        ("lane", "<u4"),
        ("attribute_bytes", "<u2"),
        ("writer", "<u2"),
        ("text", f"V{_TEXT_BYTES}"),
    ]
)


class MarkKind(enum.Enum):
    """What a record marks; the order is that of the numbers in records."""

    MARK = "mark"
    SPAN = "span"
    RANGE = "range"
    STEP = "step"


_KINDS = list(MarkKind)


class Mark(NamedTuple):
    """A moment or a time of a program. Times are nanoseconds since 1970 by the board's clock."""

    kind: MarkKind
    text: str
    attributes: dict[str, Any]
    pid: int
    tid: int
    begin_ns: int
    end_ns: int
    number: int  # counts the marks of a writer in its process, those that were dropped as well
    lane: int  # an asyncio task, or a range's id; 0 for the thread's own
    writer: int  # tells those apart that number marks in one process


def decode(data: bytes) -> tuple[list[Mark], int]:
    """The marks of whole records, and how many records are none."""
    found, good = _records(data)
    return [_mark(row) for row in found[good]], int(len(found) - good.sum())


def numbers(data: bytes, pid: int, writer: int) -> list[int]:
    """The numbers of a writer's marks in whole records, in the order in which they came."""
    found, good = _records(data)
    return [int(number) for number in found[good & (found["pid"] == pid) & (found["writer"] == writer)]["number"]]


def _records(data: bytes) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Whole records, and which of them are marks."""
    found = np.frombuffer(data, _FIELDS, count=len(data) // RECORD_BYTES)
    good = (
        (found["magic"] == _MAGIC)
        & (found["version"] == _VERSION)
        & (found["kind"] < len(_KINDS))
        & (found["text_bytes"].astype(int) + found["attribute_bytes"] <= _TEXT_BYTES)
        & (found["begin_ns"] < _LARGEST)
        & (found["end_ns"] < _LARGEST)
        & (found["number"] < _LARGEST)
    )
    return found, good


def _mark(row: np.void) -> Mark:
    size, more, raw = int(row["text_bytes"]), int(row["attribute_bytes"]), bytes(row["text"])
    return Mark(
        _KINDS[row["kind"]],
        raw[:size].decode("utf-8", "replace"),
        _attributes(raw[size : size + more]),
        *(int(row[name]) for name in ("pid", "tid", "begin_ns", "end_ns", "number", "lane", "writer")),
    )


def _attributes(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw, parse_constant=_nothing) if raw else {}
        if b"\\u" in raw:  # an escape may be half of a character, which no file of ours can hold
            found = json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _nothing(_constant: str) -> None:
    """`NaN` and `Infinity`, which Python writes, are no JSON."""


_Writer = tuple[int, int]  # a process, and who numbers marks in it


class _MarkReader(RecordReader):
    """Counts the numbers that are missing as well.

    What is missing before a writer's first mark is counted once it is known what earlier segments have.
    """

    def __init__(self, before: Callable[[_Writer], Iterator[_Numbers | None]]) -> None:
        super().__init__("range", RECORD_BYTES, self._rows_of)
        self.writers: dict[_Writer, _Numbers] = {}
        self.told = 0  # what was dropped as far as it was told
        self._before = before
        # Of writers whose marks in earlier segments are not known, what is asked for these, and the numbers here.
        self._unsettled: dict[_Writer, tuple[Iterator[_Numbers | None], list[int]]] = {}

    @property
    def dropped(self) -> int:
        """How many numbers are missing."""
        return sum(each.dropped for each in self.writers.values())

    @property
    def is_settled(self) -> bool:
        """Whether earlier segments tell no more."""
        return not self._unsettled

    def settle(self) -> None:
        """Count from where earlier segments end, of writers of which that is known by now."""
        for writer, (before, came) in [*self._unsettled.items()]:
            known = next(before)
            if known is not None:
                for number in came:
                    known.take(number)
                self.writers[writer] = known
                del self._unsettled[writer]

    def take_back(self, writer: _Writer, number: int) -> None:
        """A number that was missing here comes in the next segment."""
        is_missing = writer in self.writers and self.writers[writer].take_back(number)
        if is_missing and writer in self._unsettled:
            self._unsettled[writer][1].append(number)

    def forget(self) -> None:
        """Count from here on, and nothing that came before."""
        self._unsettled.clear()
        for each in self.writers.values():
            each.forget()

    def _rows_of(self, data: bytes) -> tuple[list[tuple[object, ...]], int]:
        found, bad = decode(data)
        for mark in found:
            writer = mark.pid, mark.writer
            if writer not in self.writers:
                self.writers[writer] = _Numbers(mark.number)
                if mark.number:
                    self._unsettled[writer] = self._before(writer), []
            self.writers[writer].take(mark.number)
            if writer in self._unsettled:
                self._unsettled[writer][1].append(mark.number)
        self.settle()
        return [(mark.kind.value, mark.text, json.dumps(mark.attributes), *mark[3:-1]) for mark in found], bad


# Threads of a process write in another order than they take their numbers, by a few places.
_RACE = 64


class _Numbers:
    """The numbers of a writer, from one on."""

    def __init__(self, begin: int) -> None:
        self.dropped = 0
        self._begin = self._next = begin
        self._late = set(range(max(begin - _RACE, 0), begin))  # missing ones that may still come
        self._before: Callable[[int], None] | None = None

    def in_next(self, before: Callable[[int], None] | None) -> _Numbers:
        """What goes on from here in the next segment; what was missing here and comes there is given to `before`."""
        later = _Numbers(self._next)
        later._late, later._before = {*self._late}, before
        return later

    def forget(self) -> None:
        """Count from here on."""
        self._begin, self._before, self.dropped = self._next, None, 0

    def take(self, number: int) -> None:
        """The next number has come."""
        if self.take_back(number):
            return
        if number < self._next:  # another process has that pid
            self._begin = self._next = 0
            self._late.clear()
        oldest = number - _RACE
        if number > self._next or self._late:
            self._late = {each for each in self._late if each >= oldest}
            self._late.update(range(max(self._next, oldest), number))
        self.dropped += number - self._next
        self._next = number + 1

    def take_back(self, number: int) -> bool:
        """A number that may be missing is not: it was counted here, or in the segment before."""
        if number not in self._late:
            return False
        self._late.remove(number)
        self.dropped -= number >= self._begin
        if number < self._begin and self._before is not None:
            self._before(number)
        return True


_COLUMNS = """
            kind       TEXT NOT NULL,   -- mark, span, range or step
            text       TEXT NOT NULL,
            attributes TEXT NOT NULL,   -- a JSON object
            pid        INTEGER NOT NULL,
            tid        INTEGER NOT NULL,
            begin_ns   INTEGER NOT NULL,
            end_ns     INTEGER NOT NULL,
            mark       INTEGER NOT NULL, -- counts the marks of its writer
            lane       INTEGER NOT NULL"""


class MarksDecoder(SpoolDecoder[_MarkReader]):
    """Decodes `MARKS-…` collections."""

    tables = ("range",)
    schema = f"""
{table("range", _COLUMNS)}
-- Marks, spans, ranges and steps of programs.
--   kind         `mark`, `span`, `range` or `step`
--   attributes   a JSON object
--   end_us       of a mark its begin
--   duration_us  NULL where the board's clock was set back meanwhile
--   lane         an asyncio task or the id of a range; 0 for the thread's own
--   number       counts the marks of its process, of Python and of each C file by itself, also those that were dropped
--   process, name, thread, start_us
CREATE VIEW IF NOT EXISTS ranges AS
SELECT t.session, b.identity AS board, t.pid AS process, t.tid AS thread, t.kind, t.text AS name, t.attributes,
       t.begin_ns / 1000.0 AS start_us, t.end_ns / 1000.0 AS end_us,
       CASE WHEN t.end_ns >= t.begin_ns THEN (t.end_ns - t.begin_ns) / 1000.0 END AS duration_us,
       t.lane, t.mark AS number
FROM {rows_of("range", "MARKS")};
"""  # noqa: S608 - constants

    def __init__(self, files: JobFiles, **chosen: Any) -> None:
        """As of every source."""
        super().__init__(files, **chosen)
        # Of segments that have ended, those of which what stands beside them may tell more.
        self._ended: dict[str, tuple[_MarkReader, int]] = {}

    def reader(self, path: str) -> _MarkReader:
        """One for a segment's start."""
        return _MarkReader(partial(self.before, path))

    def forget(self, reader: _MarkReader) -> None:
        """What was wrong so far is told no more."""
        super().forget(reader)
        reader.forget()

    def odd(self, reader: _MarkReader) -> Iterator[Entry]:
        """Beside records that are none, the marks that were dropped."""
        yield from super().odd(reader)
        reader.told = reader.dropped
        if reader.dropped:
            detail = "numbers of marks that are missing: no daemon was there to take these, or it could not keep up"
            yield reasons.entry(reasons.DROPPED_MARKS, detail, count=reader.dropped)

    def ended(self, path: str, reader: _MarkReader, size: int) -> ContentLedger:
        """What is wrong with a segment that goes on no more; its neighbours may have more to say of it."""
        self._ended[path] = reader, size
        return super().ended(path, reader, size)

    def append(self, path: str, generation: int, offset: int, data: bytes) -> Iterator[Change]:
        """A segment's next rows."""
        yield from super().append(path, generation, offset, data)
        yield from self._settled()

    def complete(self, path: str, generation: int, offset: int, digest: bytes | None) -> Iterator[Change]:
        """A segment has ended."""
        yield from super().complete(path, generation, offset, digest)
        yield from self._settled()

    def snapshot(
        self, path: str, generation: int, data: bytes, digest: bytes, *, size: int | None = None
    ) -> Iterator[Change]:
        """A small file; segments wait for each other's `.done`."""
        yield from super().snapshot(path, generation, data, digest, size=size)
        yield from self._settled()

    def before(self, path: str, writer: _Writer) -> Iterator[_Numbers | None]:
        """The numbers of a writer in segments before this one; None as often as these are not here whole."""
        previous = f"{int(path) - 1:08d}"
        for data in self.earlier(path):
            reader = self._reader_of(previous)
            if reader is not None and writer in reader.writers and (data is not None or previous in self._ended):
                yield reader.writers[writer].in_next(partial(self._take_back, previous, writer))
            elif data is None:
                yield None
            elif came := numbers(data, *writer):
                known = _Numbers(came[0])
                for each in came:
                    known.take(each)
                yield known.in_next(None)
        yield _Numbers(0)

    def _reader_of(self, path: str) -> _MarkReader | None:
        return self._ended[path][0] if path in self._ended else self._open.get(path, (0, None))[1]

    def _take_back(self, path: str, writer: _Writer, number: int) -> None:
        """What was missing in a segment comes in the next one."""
        if (reader := self._reader_of(path)) is not None:
            reader.take_back(writer, number)

    def _settled(self) -> Iterator[Change]:
        """What is told otherwise of segments, now that more of their neighbours is here."""
        for reader, _ in [*self._ended.values(), *((each, 0) for _, each in self._open.values())]:
            reader.settle()
        for path, (_, reader) in self._open.items():
            if reader.dropped != reader.told:
                yield ContentLedger(path, tuple(self.odd(reader)))
        for path, (reader, size) in [*self._ended.items()]:
            if reader.dropped != reader.told:
                yield super().ended(path, reader, size)
            if reader.is_settled and self._has_passed(f"{int(path) + 1:08d}"):
                del self._ended[path]

    def _has_passed(self, path: str) -> bool:
        """Whether a segment tells no more of the one before it."""
        is_going_on = path in self._open or (path in self._ended and not self._ended[path][0].is_settled)
        return path in self._seen and not is_going_on
