"""Decoding common to the sources that the board's daemon writes itself: numbered segments, read in turn.

00000001, 00000001.done, 00000002 …    content, and the mark that a segment has ended
end                                    nothing more is written; `killed` if the next daemon wrote it
simulated                              the content was invented
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from profagent import ledger
from profagent.formats.names import DONE_SUFFIX, SIMULATED_MARKER
from profagent.ingest.changes import ContentLedger, SimulatedKnown, SourceRows
from profagent.ingest.decoder import Decoder, check_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from profagent.ingest.changes import Change
    from profagent.ingest.decoder import JobFiles
    from profagent.ledger import Entry

Rows = dict[str, list[tuple[Any, ...]]]  # by table
END = "end"
_SEGMENT = re.compile(r"\d{8}")


class Reader(Protocol):
    """Reader of a segment from its start. `torn` are bytes of an incomplete record, `bad` counts damaged records."""

    torn: bytes
    bad: int

    def read(self, data: bytes) -> Rows:
        """Return the rows of the segment's next bytes."""


class RecordReader:
    """Reader of records of one size; each record is a row behind its number."""

    def __init__(
        self, table: str, record_bytes: int, decode: Callable[[bytes], tuple[Sequence[tuple[Any, ...]], int]]
    ) -> None:
        # The beginning of a record whose rest has not come.
        self.torn = b""
        # Records that are not as their format says.
        self.bad = 0
        self._table, self._record_bytes, self._decode = table, record_bytes, decode
        # The number of the next row.
        self._rows = 0

    def read(self, data: bytes) -> Rows:
        """Return the rows of complete records."""
        data = self.torn + data
        # Bytes end anywhere, also within a record.
        whole = len(data) - len(data) % self._record_bytes
        self.torn = data[whole:]
        found, bad = self._decode(data[:whole])
        first, self._rows, self.bad = self._rows, self._rows + len(found), self.bad + bad
        return {self._table: [(number, *row) for number, row in enumerate(found, first)]} if found else {}


R = TypeVar("R", bound=Reader)


class SpoolDecoder(Decoder, Generic[R]):
    """Decoder of the segments of one collection."""

    tables: ClassVar[tuple[str, ...]] = ()
    end_file = END

    def __init__(
        self,
        files: JobFiles,
        *,
        past: Mapping[str, int] = MappingProxyType({}),
        **chosen: Any,
    ) -> None:
        """Set `past`, the bytes of each segment from before the capture: what is wrong there is not reported."""
        super().__init__(files, **chosen)
        self._past = past
        # Growing segments: the offset that was read, and the reader at it.
        self._open: dict[str, tuple[int, R]] = {}
        # Segments that have come, by which missing ones are found at the end.
        self._seen: set[str] = set()

    def reader(self, path: str) -> R:
        """Return a reader for the start of a segment."""
        raise NotImplementedError

    def forget(self, reader: R) -> None:
        """Leave out of the ledger what has been wrong so far."""
        reader.bad = 0

    def odd(self, reader: R) -> Iterator[Entry]:
        """Yield entries about the complete records that a reader has read."""
        if reader.bad:
            yield ledger.entry(ledger.BAD_RECORD, "records that are none: bytes kept, not decoded", count=reader.bad)

    @classmethod
    def growing(cls, path: str) -> bool:
        """Return True for a segment; any other file is a snapshot."""
        return _SEGMENT.fullmatch(path) is not None

    def begin(self, path: str, generation: int, offset: int) -> Iterator[Change]:
        """Yield the changes for a segment that continues; at its start its earlier rows are void."""
        yield from super().begin(path, generation, offset)
        self._seen.add(path)
        if offset == 0:
            self._open[path] = 0, self.reader(path)
            yield from (SourceRows(path, table, (), anew=True) for table in self.tables)

    def append(self, path: str, generation: int, offset: int, data: bytes) -> Iterator[Change]:
        """Yield the changes for a segment's next bytes."""
        yield from super().append(path, generation, offset, data)
        reader, before = self._at(path, offset)
        if self.names_table in before:
            yield SourceRows(path, self.names_table, before[self.names_table])
        odd = tuple(self.odd(reader))
        for table, rows in self._read(path, reader, offset, data).items():
            yield SourceRows(path, table, rows)
        self._open[path] = offset + len(data), reader
        if (now := tuple(self.odd(reader))) != odd:
            yield ContentLedger(path, now)

    def complete(self, path: str, generation: int, offset: int, digest: bytes | None) -> Iterator[Change]:
        """Yield the changes for a segment that has ended, perhaps within a record."""
        yield from super().complete(path, generation, offset, digest)
        reader, _ = self._at(path, offset)
        self._open.pop(path, None)
        self._seen.add(path)
        # Behind `super().complete`: the entries belong to a log that has its row.
        yield self.ended(path, reader, offset)

    def ended(self, path: str, reader: R, size: int) -> ContentLedger:
        """Return the ledger's entries for a segment that has ended."""
        return ContentLedger(path, (*self.odd(reader), *_torn(reader, size)))

    def snapshot(
        self, path: str, generation: int, data: bytes, digest: bytes, *, size: int | None = None
    ) -> Iterator[Change]:
        """Yield the changes for a small file, whose name alone matters."""
        yield from super().snapshot(path, generation, data, digest, size=size)
        if path == SIMULATED_MARKER:
            yield SimulatedKnown(None, None)
        elif path == END and data:
            detail = "its daemon did not end it: what programs wrote until the next one was there is not here"
            yield ContentLedger(path, (ledger.entry(ledger.DAEMON_KILLED, detail),))
        elif path != END and not self.growing(path.removesuffix(DONE_SUFFIX)):
            yield ContentLedger(path, (ledger.entry(ledger.FOREIGN_FILE, "no file of a spool"),))

    def end(self, _unsettled: Iterable[str], _orphans: Iterable[str]) -> Iterator[Change]:
        """Yield entries about segments that have no end, and segments that are missing."""
        for path, (offset, reader) in sorted(self._open.items()):
            no_end = ledger.entry(ledger.NO_DONE, "no .done vouches for this segment: it may miss its end")
            yield ContentLedger(path, (*self.odd(reader), *_torn(reader, offset), no_end))
        self._open.clear()
        # Segments of an earlier capture are only in `files`; they are not missing.
        numbers = {int(path) for path in {*self._seen, *self.files.names()} if self.growing(path)}
        missing = max(numbers, default=0) - len(numbers)
        if missing > 0:
            detail = f"{missing} of {max(numbers)} segments are not here"
            yield ContentLedger(None, (ledger.entry(ledger.MISSING_SEGMENT, detail, count=missing),))

    def _at(self, path: str, offset: int) -> tuple[R, Rows]:
        """Return the reader at `offset`, and rows that had to be read again for a segment not in use."""
        known, reader = self._open.get(path, (None, None))
        if reader is not None and known == offset:
            return reader, {}
        reader = self.reader(path)
        data = self.files.read(path, offset) or b"" if offset else b""
        check_size(path, len(data), offset)
        return reader, self._read(path, reader, 0, data)

    def _read(self, path: str, reader: R, offset: int, data: bytes) -> Rows:
        # Read in two pieces, so that what was wrong before the capture can be left out of the ledger.
        past = max(self._past.get(path, 0) - offset, 0)
        rows = reader.read(data[:past])
        if past:
            self.forget(reader)
        for table, more in reader.read(data[past:]).items():
            rows.setdefault(table, []).extend(more)
        return rows


def _torn(reader: Reader, size: int) -> Iterator[Entry]:
    if reader.torn:
        detail = f"the last record is not whole: {len(reader.torn)} bytes of it are here"
        yield ledger.entry(ledger.TORN_RECORD, detail, size - len(reader.torn), size)


def table(name: str, columns: str, *, is_of_log: bool = False) -> str:
    """Return the SQL for a table of a source, and for triggers that empty it with its log.

    `columns` follow those that all such tables have. With `is_of_log` a row serves all sessions of its log, and not
    only the one that brought it.
    """
    return f"""
        CREATE TABLE IF NOT EXISTS {name} (
            log     INTEGER NOT NULL REFERENCES log,
            session INTEGER {"" if is_of_log else "NOT NULL"} REFERENCES session,
            number  INTEGER NOT NULL,
            {columns},
            PRIMARY KEY (log, number)
        ) WITHOUT ROWID;
        CREATE TRIGGER IF NOT EXISTS {name}_of_log AFTER DELETE ON log
        BEGIN DELETE FROM {name} WHERE log = old.log; END;
        CREATE TRIGGER IF NOT EXISTS {name}_of_cleared_log AFTER UPDATE OF generation ON log WHEN new.generation = 0
        BEGIN DELETE FROM {name} WHERE log = old.log; END;
    """  # noqa: S608 - names are code


def rows_of(name: str, kind: str) -> str:
    """Return the SQL behind FROM for a view: rows `t` of a table, collections `j` of a kind, their board `b`."""
    return (
        f"session_job s JOIN job j ON j.job = s.job AND j.name GLOB '{kind}-*' JOIN board b USING (board)"
        f" JOIN log l ON l.job = j.job JOIN {name} t ON t.log = l.log AND t.session = s.session"
    )
