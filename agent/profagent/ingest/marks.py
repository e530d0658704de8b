"""Marks, spans, ranges and steps of programs: a row each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from profagent.files import content
from profagent.formats.marks import RECORD_BYTES, decode, numbers
from profagent.ingest import reasons
from profagent.ingest.spools import Reader, RecordReader, SpoolDecoder, rows_of, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagent.ingest.changes import Entry

_COLUMNS = """
            kind       TEXT NOT NULL,   -- mark, span, range or step
            text       TEXT NOT NULL,
            attributes TEXT NOT NULL,   -- a JSON object
            pid        INTEGER NOT NULL,
            tid        INTEGER NOT NULL,
            begin_ns   INTEGER NOT NULL,
            end_ns     INTEGER NOT NULL,
            mark       INTEGER NOT NULL, -- counts the marks of its process
            lane       INTEGER NOT NULL"""


class MarksDecoder(SpoolDecoder):
    """Decodes `MARKS-…` collections."""

    tables = ("range",)
    schema = f"""
{table("range", _COLUMNS)}
-- One row for each mark, span, range and step of a program.
--   process      pid of the program
--   thread       its thread
--   kind         `mark`, `span`, `range` or `step`
--   name         its text, or its message
--   attributes   a JSON object
--   start_us     begin
--   end_us       end; of a mark its begin
--   duration_us  end - begin; NULL where the board's clock was set back between them
--   lane         an asyncio task or the id of a range; 0 for the thread's own
--   number       counts the marks of its process, those that were dropped as well
CREATE VIEW IF NOT EXISTS ranges AS
SELECT t.session, b.identity AS board, t.pid AS process, t.tid AS thread, t.kind, t.text AS name, t.attributes,
       t.begin_ns / 1000.0 AS start_us, t.end_ns / 1000.0 AS end_us,
       CASE WHEN t.end_ns >= t.begin_ns THEN (t.end_ns - t.begin_ns) / 1000.0 END AS duration_us,
       t.lane, t.mark AS number
FROM {rows_of("range", "MARKS")};
"""  # noqa: S608 - constants

    def reader(self, path: str) -> Reader:
        """One for a segment's start."""
        return _MarkReader(self, path)

    def odd(self, reader: Reader) -> Iterator[Entry]:
        """Beside records that are none, the marks that were dropped."""
        yield from super().odd(reader)
        if isinstance(reader, _MarkReader) and reader.dropped:
            detail = "numbers of marks that are missing: no daemon was there to take these, or it could not keep up"
            yield reasons.entry(reasons.DROPPED_MARKS, detail, count=reader.dropped)


class _MarkReader(RecordReader):
    """Counts the numbers that are missing as well."""

    def __init__(self, decoder: MarksDecoder, path: str) -> None:
        super().__init__("range", RECORD_BYTES, self._rows_of)
        self.dropped = 0
        self._decoder, self._path = decoder, path
        self._processes: dict[int, _Numbers] = {}

    def _rows_of(self, data: bytes) -> tuple[list[tuple[object, ...]], int]:
        found, bad = decode(data)
        for mark in found:
            known = self._processes.get(mark.pid)
            if known is None:
                known = self._processes[mark.pid] = self._before(mark.pid, mark.number)
            self.dropped += known.take(mark.number)
        return [(mark.kind.value, mark.text, json.dumps(mark.attributes), *mark[3:]) for mark in found], bad

    def _before(self, pid: int, number: int) -> _Numbers:
        """What earlier segments have of a process, whichever daemon wrote them."""
        if number == 0:
            return _Numbers(0)
        for file in self._decoder.earlier(self._path):
            data = None if file is None else content(str(file), None)
            if data is None:
                # It is told that segments are not here, and nobody knows what was in them.
                return _Numbers(number)
            if came := numbers(data, pid):
                known = _Numbers(came[0])
                for each in came:
                    known.take(each)
                return known
        return _Numbers(0)


# Threads of a process write in another order than they take their numbers, by a few places.
_RACE = 64


class _Numbers:
    """The numbers of a process, from one on."""

    def __init__(self, begin: int) -> None:
        self._next = begin
        self._late: set[int] = set()  # missing ones that may still come

    def take(self, number: int) -> int:
        """By how many the missing numbers change."""
        if number in self._late:
            self._late.remove(number)
            return -1
        if number < self._next:  # another process has that pid
            self._next = 0
            self._late.clear()
        missing = number - self._next
        if missing or self._late:
            oldest = number - _RACE
            self._late = {each for each in self._late if each >= oldest}
            self._late.update(range(max(self._next, oldest), number))
        self._next = number + 1
        return missing
