"""Marks, spans, ranges and steps of programs: a row each."""

from __future__ import annotations

import json

from profagent.formats.marks import RECORD_BYTES, decode
from profagent.ingest.spools import Reader, RecordReader, SpoolDecoder, rows_of, table

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
--   duration_us  end - begin
--   lane         an asyncio task or the id of a range; 0 for the thread's own
--   number       counts the marks of its process, those that were dropped as well
CREATE VIEW IF NOT EXISTS ranges AS
SELECT t.session, b.identity AS board, t.pid AS process, t.tid AS thread, t.kind, t.text AS name, t.attributes,
       t.begin_ns / 1000.0 AS start_us, t.end_ns / 1000.0 AS end_us, (t.end_ns - t.begin_ns) / 1000.0 AS duration_us,
       t.lane, t.mark AS number
FROM {rows_of("range", "MARKS")};
"""  # noqa: S608 - constants

    def reader(self) -> Reader:
        """One for a segment's start."""
        return RecordReader("range", RECORD_BYTES, _rows)


def _rows(data: bytes) -> tuple[list[tuple[object, ...]], int]:
    found, bad = decode(data)
    return [(mark.kind.value, mark.text, json.dumps(mark.attributes), *mark[3:]) for mark in found], bad
