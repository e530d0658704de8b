"""A host that copies collections of marks in any order, and its database."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.formats.names import DONE_SUFFIX
from profagent.ingest.changes import JobChanges, LogRemoved
from profagent.ingest.marks import MarksDecoder
from profagent.ingest.source import without_rows
from tests.unit.store.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from profagent.ingest.changes import Change

_DROPPED = (
    "SELECT j.name, l.path, sum(e.count) FROM ledger_entry e JOIN log l USING (log) JOIN job j ON j.job = l.job"
    " WHERE reason = 'dropped-marks' GROUP BY 1, 2 ORDER BY 1, 2"
)


class CopiedCollection:
    """The host's copy of one collection, as a mirror keeps it."""

    def __init__(self, directory: Path, past: dict[str, int]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.past = directory, past
        self.ended: set[str] = set()
        self.decoder = MarksDecoder(self, past=past)

    def read(self, path: str, size: int | None = None, *, start: int = 0) -> bytes | None:
        return (self.directory / path).read_bytes()[start:][:size]

    def names(self) -> list[str]:
        return [each.name for each in self.directory.iterdir()]

    def size(self, path: str) -> int:
        file = self.directory / path
        return file.stat().st_size if file.exists() else 0


class MarksHost:
    """Copies what it is given, and writes it into a database; `past`: how far segments came before the capture."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rows = folder, Rows(folder, durable=False)
        self._collections: dict[str, CopiedCollection] = {}

    def of(self, collection: str) -> CopiedCollection:
        if collection not in self._collections:
            self._collections[collection] = CopiedCollection(self.folder / "mirror" / collection, {})
        return self._collections[collection]

    def restart(self) -> None:
        """Another process goes on with what is on the disk."""
        for each in self._collections.values():
            each.decoder = MarksDecoder(each, past=each.past)

    def write(self, collection: str, path: str, data: bytes, *, is_past: bool = False) -> None:
        """A segment grows."""
        copy = self.of(collection)
        offset = copy.size(path)
        with (copy.directory / path).open("ab") as file:
            file.write(data)
        if is_past:
            copy.past[path] = offset + len(data)
        begun = () if offset else copy.decoder.begin(path, 1, 0)
        changes = list(chain(begun, copy.decoder.append(path, 1, offset, data)))
        self._apply(collection, without_rows("marks", changes) if is_past else changes)

    def complete(self, collection: str, path: str) -> None:
        """The board has ended a segment."""
        copy = self.of(collection)
        copy.ended.add(path)
        size = copy.size(path)
        done = f"bytes:{size}\n".encode()
        (copy.directory / f"{path}{DONE_SUFFIX}").write_bytes(done)
        begun = () if size else copy.decoder.begin(path, 1, 0)
        self._apply(
            collection,
            chain(
                begun,
                copy.decoder.snapshot(path + DONE_SUFFIX, 1, done, b""),
                copy.decoder.complete(path, 1, size, b""),
            ),
        )

    def remove(self, collection: str, path: str) -> None:
        """The board has deleted a segment."""
        self._apply(collection, [LogRemoved(path)])

    def close(self) -> None:
        self.rows.connection.close()
        self.rows.close()
        self.rows.runner.close()

    def end(self) -> None:
        """The capture ends, and the next one begins."""
        self.rows.run(self.rows.writer.end(2))
        self.rows.session()
        self.restart()

    @property
    def dropped(self) -> dict[tuple[str, str], int]:
        """How many marks the ledger says were dropped, by collection and segment."""
        return {(name, path): count for name, path, count in self.rows.query(_DROPPED)}

    def _apply(self, collection: str, changes: Iterable[Change]) -> None:
        self.rows.write(JobChanges(collection, "/board", list(changes)))
