"""What a program wrote comes back; other bytes are counted."""

from __future__ import annotations

from pathlib import Path

from profagent.ingest import ops
from profagent.ingest.marks import Mark, MarkKind, decode
from profagent_app.marks import Kind, MarkWriter
from profagentd.spools.intake import LOST
from tests.program.reader import MarksReader


def test_what_was_written_is_read(tmp_path: Path) -> None:
    reader = MarksReader(tmp_path)
    writer = MarkWriter(str(reader.path))
    for kind in Kind:
        writer.write(kind, b"caf\xc3\xa9", 10**18, 10**18 + 5, 7, b'{"id":3}')
    data = reader.raw()
    reader.close()
    marks, bad = decode(data)
    assert bad == 0
    assert [each.kind for each in marks] == list(MarkKind)
    who = (marks[0].pid, marks[0].tid)
    assert marks[0] == Mark(MarkKind.MARK, "café", {"id": 3}, *who, 10**18, 10**18 + 5, 0, 7, marks[0].writer)
    assert {each.writer for each in marks} == {marks[0].writer}
    assert not marks[0].writer % 2
    assert [each.number for each in marks] == [0, 1, 2, 3]
    assert decode(b"\0" * 256 + data[:256] + b"x" * 100)[1] == 1
    assert decode(data[:0xFF]) == ([], 0)


def test_what_a_daemon_writes_for_a_gap_is_a_bad_record() -> None:
    assert decode(LOST) == ([], 1)
    assert ops.decode(LOST) == ([], 1)


def test_half_a_character_in_an_attribute_becomes_text_that_a_file_can_hold(tmp_path: Path) -> None:
    reader = MarksReader(tmp_path)
    MarkWriter(str(reader.path)).write(Kind.MARK, b"load", 0, 0, attributes=b'{"path":"\\udcd6\\u4e2d"}')
    ((found,), _) = decode(reader.raw())
    reader.close()
    assert found.attributes == {"path": "?\u4e2d"}
