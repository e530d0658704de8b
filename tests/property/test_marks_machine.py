"""Marks of programs through any sequence of events: each number is a row, or counted once in the ledger."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from profagent.formats.names import DONE_SUFFIX
from profagentd.spools.spool import Spool, finish_collection, unfinished_collections
from tests.fakes.marks_host import MarksHost
from tests.unit.ingest.test_marks import numbered

RECORD_BYTES = 256
SEGMENT_BYTES = 8 * RECORD_BYTES
CAP_BYTES = 6 * SEGMENT_BYTES
PROGRAMS = 2


class FullableSpool(Spool):
    """A spool whose disk has room for so many bytes more; None for any."""

    room: int | None = None

    def _append(self, data: bytes) -> None:
        if self.room is None:
            super()._append(data)
            return
        fits, self.room = data[: self.room], max(self.room - len(data), 0)
        super()._append(fits)
        if len(fits) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class MarksMachine(RuleBasedStateMachine):
    """Programs, the daemon's spool on a disk, and a host that copies its segments in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="marks"))
        self.spools = self.folder / "spool"
        self.spools.mkdir()
        self.host = MarksHost(self.folder / "host")
        self.next_of = [0] * PROGRAMS
        self.late: list[bytes] = []
        self.daemon = self._started()

    @rule(program=st.integers(0, PROGRAMS - 1), count=st.integers(1, 12), is_late=st.booleans())
    def mark(self, program: int, count: int, is_late: bool) -> None:
        """A program marks; a thread may write later than those that took their numbers after it."""
        records = [numbered(number, pid=program) for number in self._numbers(program, count)]
        late, self.late = self.late, records[:1] if is_late else []
        with suppress(OSError):
            self.daemon.write(b"".join([*records[len(self.late) :], *late]))

    @rule(program=st.integers(0, PROGRAMS - 1), count=st.integers(0, 9), is_killed=st.booleans())
    def restart_daemon(self, program: int, count: int, is_killed: bool) -> None:
        """Another daemon comes; what a program marks before it does is dropped."""
        self.daemon.room = None
        if not is_killed:
            self.daemon.close()
        elif self.daemon._file >= 0:
            os.close(self.daemon._file)
        self._numbers(program, count)
        self.daemon = self._started()

    @rule(program=st.integers(0, PROGRAMS - 1), room=st.integers(0, 4 * RECORD_BYTES), has_room_again=st.booleans())
    def fill_disk(self, program: int, room: int, has_room_again: bool) -> None:
        """The disk is full within a write; it may have room again."""
        self.daemon.room = room
        self.mark(program, 6, is_late=False)
        if has_room_again:
            self.daemon.room = None

    @rule(choice=st.integers(0, 50), share=st.sampled_from([0.3, 1.0]))
    def copy(self, choice: int, share: float) -> None:
        """The host copies a part of a segment, whichever."""
        if left := self._left():
            self._copy(left[choice % len(left)], share)

    @rule()
    def lose_link(self) -> None:
        self.host.restart()

    @rule()
    def end_capture(self) -> None:
        self.host.end()

    def teardown(self) -> None:
        """All that the board has comes, in an order of its own; then every number is accounted for once."""
        try:
            for segment in reversed(self._left()):
                self._copy(segment, 1.0)
            self.host.end()
            self._check()
        finally:
            self.host.close()
            if self.daemon._file >= 0:
                os.close(self.daemon._file)
            shutil.rmtree(self.folder)

    def _numbers(self, program: int, count: int) -> range:
        first = self.next_of[program]
        self.next_of[program] += count
        return range(first, first + count)

    def _started(self) -> FullableSpool:
        for each in unfinished_collections(str(self.spools)):
            finish_collection(each)
        return FullableSpool(
            str(self.spools),
            "marks",
            "program",
            cap_bytes=CAP_BYTES,
            segment_bytes=SEGMENT_BYTES,
            on_dropped=self._lost,
        )

    def _check(self) -> None:
        rows = self.host.rows.query("SELECT pid, count(*), count(DISTINCT mark), max(mark) FROM range GROUP BY pid")
        assert all(count == distinct for _, count, distinct, _ in rows)
        missing = sum(highest + 1 - count for _, count, _, highest in rows)
        assert sum(self.host.dropped.values()) == missing

    def _left(self) -> list[Path]:
        """Segments of which the host has not all."""
        return [
            file
            for file in sorted(self.spools.glob("MARKS-*/????????"))
            if self.host.of(file.parent.name).size(file.name) < file.stat().st_size
            or (
                file.with_name(file.name + DONE_SUFFIX).exists()
                and file.name not in self.host.of(file.parent.name).ended
            )
        ]

    def _copy(self, segment: Path, share: float) -> None:
        collection, path = segment.parent.name, segment.name
        data = segment.read_bytes()[self.host.of(collection).size(path) :]
        if piece := data[: int(len(data) * share)]:
            self.host.write(collection, path, piece)
        if len(piece) == len(data) and segment.with_name(path + DONE_SUFFIX).exists():
            self.host.complete(collection, path)

    def _lost(self, collection: str, path: str, _: int) -> None:
        copy = self.host.of(collection)
        if copy.size(path) and path not in copy.ended:
            self.host.remove(collection, path)


MarksMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestMarksMachine: Any = MarksMachine.TestCase
