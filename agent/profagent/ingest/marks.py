"""Marks, spans, ranges and steps of programs: 256 bytes each, as `profagent_app.marks` writes them, and a row each."""

from __future__ import annotations

import enum
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.ingest.changes import SourceRows
from profagent.ingest.dropped_marks import reckon_dropped
from profagent.ingest.mark_numbers import Life, dropped_entry
from profagent.ingest.source import DatedTable, DrawnEvents, Instant, Marked, Seen, Source, Span, View
from profagent.ingest.spools import RecordReader, SpoolDecoder, rows_of, table
from profagent.limits import LARGEST_INTEGER, LARGEST_MARK_NUMBER
from profagent.units import NS_PER_US

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from profagent.ingest.changes import Change
    from profagent.ingest.source import Names
    from profagent.ledger import Entry

RECORD_BYTES = 256
_MAGIC, _VERSION = 0x4B52414D, 1
_TEXT_BYTES = 208
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
    """Kind of a mark, in the order of the numbers in records."""

    MARK = "mark"
    SPAN = "span"
    RANGE = "range"
    STEP = "step"


_KINDS = list(MarkKind)


class ProgramMark(NamedTuple):
    """Instant or span of a program. Times are nanoseconds since 1970 by the board's clock."""

    kind: MarkKind
    text: str
    attributes: dict[str, Any]
    pid: int
    tid: int
    begin_ns: int
    end_ns: int
    # Counts the marks of a writer in its process, including those it dropped.
    number: int
    # An asyncio task, or the id of a range; 0 for the thread itself.
    lane: int
    # Tells apart the writers that number marks in one process.
    writer: int


def decode(data: bytes) -> tuple[list[ProgramMark], int]:
    """Return the marks of complete records, and the number of damaged records."""
    found, good = _records(data)
    return [_mark(row) for row in found[good].tolist()], int(len(found) - good.sum())


def _records(data: bytes) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    found = np.frombuffer(data, _FIELDS, count=len(data) // RECORD_BYTES)
    good = (
        (found["magic"] == _MAGIC)
        & (found["version"] == _VERSION)
        & (found["kind"] < len(_KINDS))
        & (found["text_bytes"].astype(int) + found["attribute_bytes"] <= _TEXT_BYTES)
        & (found["begin_ns"] <= LARGEST_INTEGER)
        & (found["end_ns"] <= LARGEST_INTEGER)
        & (found["number"] < LARGEST_MARK_NUMBER)
    )
    return found, good


def _mark(row: tuple[Any, ...]) -> ProgramMark:
    _, _, kind, size, pid, tid, begin_ns, end_ns, number, lane, more, writer, raw = row
    text, attributes = raw[:size].decode("utf-8", "replace"), _attributes(raw[size : size + more])
    return ProgramMark(_KINDS[kind], text, attributes, pid, tid, begin_ns, end_ns, number, lane, writer)


def _attributes(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw, parse_constant=_nothing) if raw else {}
        if b"\\u" in raw:  # an escape may be half of a character, which no file of ours can hold
            found = json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _nothing(_constant: str) -> None:
    """Read `NaN` and `Infinity`, which Python writes but JSON has not, as null."""


_Writer = tuple[int, int]  # a process, and who numbers marks in it


class _MarkReader(RecordReader):
    """Reader of a segment that also collects the numbers of its marks, by writer and process."""

    def __init__(self) -> None:
        super().__init__("range", RECORD_BYTES, self._rows_of)
        # Runs of numbers of each writer, a Life for each process that had its pid.
        self.lives: dict[_Writer, list[Life]] = {}
        # Number of marks so far: the row of the next one.
        self._count = 0
        # Missing numbers from before the capture, which are not its own.
        self._forgotten = 0

    @property
    def dropped(self) -> int:
        """Count of numbers missing between those of this segment."""
        return self._dropped() - self._forgotten

    def forget(self) -> None:
        """Leave out of the count what has been missing so far."""
        self._forgotten = self._dropped()

    def number_rows(self) -> list[tuple[Any, ...]]:
        """Return the runs of numbers as rows of their table."""
        return [
            (run.place, *writer, life_number, run.first, run.last, run.missing, None)
            for writer, lives in self.lives.items()
            for life_number, life in enumerate(lives)
            for run in life.runs
        ]

    def _dropped(self) -> int:
        return sum(life.dropped for lives in self.lives.values() for life in lives)

    def _rows_of(self, data: bytes) -> tuple[list[tuple[object, ...]], int]:
        found, bad = decode(data)
        for place, mark in enumerate(found, self._count):
            lives = self.lives.setdefault((mark.pid, mark.writer), [])
            if not lives or not lives[-1].take(mark.number, place):
                lives.append(Life(mark.number, place))
        self._count += len(found)
        return [
            (mark.kind.value, mark.text, json.dumps(mark.attributes) if mark.attributes else "{}", *mark[3:-1])
            for mark in found
        ], bad


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


# `number` is the row of a run's first mark; one that is not in `range` came before the capture.
_RUN_COLUMNS = """
            pid        INTEGER NOT NULL,
            writer     INTEGER NOT NULL,
            life       INTEGER NOT NULL, -- counts the processes that had the pid in this log
            first      INTEGER NOT NULL, -- what a mark of the writer counts
            last       INTEGER NOT NULL,
            missing    INTEGER NOT NULL, -- of the numbers between them
            -- Missing there and before the run; NULL until that is known.
            dropped    INTEGER"""


class MarksDecoder(SpoolDecoder[_MarkReader]):
    """Decoder of `MARKS-…` collections."""

    tables = ("range", "mark_run")

    def reader(self, _path: str) -> _MarkReader:
        """Return a reader for the start of a segment."""
        return _MarkReader()

    def forget(self, reader: _MarkReader) -> None:
        """Leave out of the ledger what has been wrong so far."""
        super().forget(reader)
        reader.forget()

    def odd(self, reader: _MarkReader) -> Iterator[Entry]:
        """Yield entries about damaged records and about marks dropped within this segment.

        The store counts those dropped between segments.
        """
        yield from super().odd(reader)
        if reader.dropped:
            yield dropped_entry(reader.dropped)

    def append(self, path: str, generation: int, offset: int, data: bytes) -> Iterator[Change]:
        """Yield the changes for a segment's next bytes."""
        yield from super().append(path, generation, offset, data)
        yield SourceRows(path, "mark_run", self._open[path][1].number_rows(), anew=True)


# The number of a frame that a program gave to a mark; an integer of JSON may have more digits than SQLite's.
_FRAME = (
    "CASE WHEN t.attributes <> '{}' AND json_type(t.attributes, '$.frame') = 'integer'"
    " AND typeof(t.attributes ->> '$.frame') = 'integer' THEN t.attributes ->> '$.frame' END"
)
_SCHEMA = f"""
{table("range", _COLUMNS)}
{table("mark_run", _RUN_COLUMNS)}
CREATE INDEX IF NOT EXISTS mark_run_of_writer ON mark_run (pid, writer);
CREATE INDEX IF NOT EXISTS mark_run_not_reckoned ON mark_run (log) WHERE dropped IS NULL;
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
-- Spans and marks to which programs gave the number of a frame. `profagent stats --by frame` joins them with the spans
-- within them, with calls and with segments.
--   frame        the number
--   kind         `mark`, `span` or `range`
--   end_us       of a mark its begin
--   duration_us  NULL where the board's clock was set back meanwhile
--   process, name, thread, start_us
CREATE VIEW IF NOT EXISTS frame_marks AS
SELECT t.session, b.identity AS board, t.pid AS process, t.tid AS thread, {_FRAME} AS frame, t.kind, t.text AS name,
       t.begin_ns / 1000.0 AS start_us, t.end_ns / 1000.0 AS end_us,
       CASE WHEN t.end_ns >= t.begin_ns THEN (t.end_ns - t.begin_ns) / 1000.0 END AS duration_us
FROM {rows_of("range", "MARKS")} WHERE t.kind <> 'step' AND frame IS NOT NULL;
"""  # noqa: S608 - constants


# Marks of a session in one log, behind a number: number, time in µs, text, and no value.
NEW_MARKS = "SELECT number, begin_ns / 1000, text, NULL FROM range WHERE session = ?1 AND number > ?2 AND log = ?3"
# The same rows whole, in the order of their numbers.
NEW_SPANS = (
    "SELECT number, kind, text, attributes, pid, tid, begin_ns, end_ns, mark, lane FROM range"
    " WHERE session = ?1 AND number > ?2 AND log = ?3 ORDER BY number"
)
# Steps are those of a Profiler; beside them, each span or range that lies in no other of its thread.
TIMED_RANGES = (
    "SELECT process, thread, lane, kind = 'step', name, start_us, end_us, duration_us FROM ranges"
    " WHERE session = ? AND kind <> 'mark' AND duration_us IS NOT NULL"
    " ORDER BY process, start_us, end_us DESC, kind <> 'step'"
)
# Marks, spans and ranges in the order of their begins, an enclosing one before the enclosed; a Profiler's step is none.
# The last two columns are the frame's number and when it was captured in ns, NULL where the program gave none.
FRAME_MARKS = f"""
SELECT t.pid, t.tid, t.lane, t.kind = 'mark', t.text, t.begin_ns, t.end_ns, t.mark, {_FRAME},
       CASE WHEN t.attributes <> '{{}}' THEN coalesce(
            iif(json_type(t.attributes, '$.captured_ns') = 'integer', t.attributes ->> '$.captured_ns', NULL),
            iif(json_type(t.attributes, '$.captured_us') IN ('integer', 'real'),
                CAST((t.attributes ->> '$.captured_us') * 1000 AS INTEGER), NULL)) END
FROM {rows_of("range", "MARKS")} WHERE s.session = ? AND t.kind <> 'step' AND t.end_ns >= t.begin_ns
ORDER BY t.begin_ns, t.end_ns DESC
"""  # noqa: S608 - constants
# Whether any of these has a frame's number, and whether any takes time.
MARKED_FRAMES = f"""
SELECT ifnull(max({_FRAME} IS NOT NULL), 0), ifnull(max(t.kind <> 'mark'), 0)
FROM {rows_of("range", "MARKS")} WHERE s.session = ? AND t.kind <> 'step'
"""  # noqa: S608 - constants
# Runs of the numbers of marks, of each writer in its order; `dropped` marks are missing before and in each.
NUMBER_RUNS = f"""
SELECT t.pid, t.writer, t.first, t.last, t.missing, ifnull(t.dropped, 0)
FROM {rows_of("mark_run", "MARKS")} WHERE s.session = ? ORDER BY t.pid, t.writer, j.name, l.path, t.life, t.first
"""  # noqa: S608 - constants


def _see(rows: Sequence[tuple[Any, ...]], _names: Names) -> Seen:
    """Return marks as instants, others as spans, and those of frames; none during which the clock was set back."""
    spans, instants = [], []
    for _, kind, text, _, _, _, begin_ns, end_ns, _, _ in rows:
        if kind == MarkKind.MARK.value:
            instants.append(Instant(begin_ns // NS_PER_US, text))
        elif end_ns >= begin_ns:
            spans.append(Span(text, begin_ns, end_ns))
    return Seen(spans=spans, instants=instants, framed=marks_of_frames(rows))


def marks_of_frames(rows: Sequence[tuple[Any, ...]]) -> list[Marked]:
    """Return the marks and spans that have the number of a frame; none during which the clock was set back.

    Rows have the number of the row, then the columns of `range` up to `lane`.
    """
    framed = []
    for _, kind, text, attributes, pid, tid, begin_ns, end_ns, number, lane in rows:
        if kind != MarkKind.STEP.value and end_ns >= begin_ns and '"frame"' in attributes:
            told = json.loads(attributes)
            if type(told.get("frame")) is int:
                about = (pid, tid, lane, kind == MarkKind.MARK.value, text, begin_ns, end_ns, number)
                framed.append(Marked(*about, told["frame"], _captured_ns(told)))
    return framed


def _captured_ns(attributes: dict[str, Any]) -> int | None:
    """Return when the frame was captured, as the program told it and `FRAME_MARKS` reads it."""
    ns, us = attributes.get("captured_ns"), attributes.get("captured_us")
    if type(ns) is int:
        return ns
    return int(us * NS_PER_US) if isinstance(us, int | float) and not isinstance(us, bool) else None


SOURCE = Source(
    decoder=MarksDecoder,
    schema=_SCHEMA,
    views=(
        View(
            name="ranges",
            whole=frozenset({"process", "thread", "lane", "number"}),
            counted_as="ranges",
            events=DrawnEvents(
                noun="ranges",
                process="'process ' || process",
                track="'thread ' || thread || CASE WHEN kind = 'step' THEN ' steps' WHEN lane = 0 THEN ' spans'"
                " WHEN kind = 'range' THEN ' ranges' ELSE ' tasks' END",
                order="process, thread",
                name="name",
                category="kind",
                lane="'ranges ' || process || '/' || thread || CASE kind WHEN 'step' THEN ' steps' ELSE '' END",
                duration_us="duration_us",
                is_instant="kind = 'mark'",
                # Spans of an asyncio task stay together.
                apart="CASE WHEN kind NOT IN ('step', 'range') AND lane <> 0 THEN lane END",
                attributes="attributes",
                arguments={"lane": "nullif(lane, 0)"},
            ),
        ),
    ),
    dated=(DatedTable("range", "end_ns / 1000"),),
    see=_see,
    reckon=reckon_dropped,
)
