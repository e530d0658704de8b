"""Decoder of a source (`ingest.source`): turns the bytes of one collection's logs into changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from profagent.errors import StoreError
from profagent.ingest.changes import LogAdvanced, LogReset
from profagent.limits import LARGEST_CONTENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from profagent.ingest.changes import Change
    from profagent.ingest.feed import Group


class JobFiles(Protocol):
    """Bytes of the collection that have been decoded before."""

    def read(self, path: str, size: int | None = None, *, start: int = 0) -> bytes | None:
        """Return at most `size` bytes of a log from `start` on, or all; None where they are not stored."""

    def names(self) -> list[str]:
        """Return the paths of the stored logs."""


class Decoder:
    """Decoder of the logs of one collection. Bytes are in `files` before they are passed to it.

    This base counts the bytes. Rows of a source go out as `SourceRows`, into tables of the source's schema.
    """

    # Table whose rows name what others refer to: they are sent again to a capture that continues a log.
    names_table = ""
    # Name of the file that says that nothing more is written, where the source has one.
    end_file = ""

    def __init__(self, files: JobFiles, **_chosen: Any) -> None:
        """Set the files; `_chosen` has the command's choices, as counter maps and which inferences to store."""
        self.files = files

    @classmethod
    def growing(cls, _path: str) -> bool:
        """Return True if a file of this name grows at its end; any other is replaced as a unit."""
        return True

    def keeps(self, _path: str) -> bool:
        """Return True if a log gets rows, which its name alone decides; else it is skipped on purpose."""
        return True

    def begin_stream(self) -> None:
        """Note that a stream begins: what an earlier one announced may have changed."""

    def expect(self, paths: Iterable[str]) -> None:
        """Note that the board announces logs of which not everything is stored."""

    def inferences(self, groups: Sequence[Group]) -> tuple[list[Change], Sequence[Group]]:
        """Decode inferences that came complete, of logs of which nothing was decoded before.

        Returns the changes, and the groups whose files have to be passed one by one.
        """
        return [], groups

    def confirm(self, _path: str) -> Iterable[Change]:
        """Yield the changes for a complete log that the board confirms to be as stored."""
        return ()

    def begin(self, path: str, generation: int, offset: int) -> Iterator[Change]:
        """Yield the changes for a data log that continues at `offset`; 0 voids its earlier rows."""
        if offset == 0:
            yield LogReset(path)
        yield LogAdvanced(path, generation, offset)

    def append(self, path: str, generation: int, offset: int, data: bytes) -> Iterator[Change]:
        """Yield the changes for bytes of a data log at `offset`."""
        yield LogAdvanced(path, generation, offset + len(data))

    def complete(self, path: str, generation: int, offset: int, digest: bytes | None) -> Iterator[Change]:
        """Yield the changes for a data log whose size and digest the board has confirmed."""
        yield LogAdvanced(path, generation, offset, complete=True, digest=digest)

    def whole(self, path: str, generation: int, data: bytes, digest: bytes) -> Iterator[Change]:
        """Yield the changes for a data log that came complete, as if it began, grew and was confirmed."""
        yield from self.begin(path, generation, 0)
        if data:
            yield from self.append(path, generation, 0, data)
        yield from self.complete(path, generation, len(data), digest)

    def snapshot(
        self, path: str, generation: int, data: bytes, digest: bytes, *, size: int | None = None
    ) -> Iterator[Change]:
        """Yield the changes for a complete snapshot; `size` where `data` is only its beginning.

        Raises UnsupportedBoardError.
        """
        yield LogAdvanced(path, generation, len(data) if size is None else size, complete=True, digest=digest)

    def end(self, _unsettled: Iterable[str], _orphans: Iterable[str]) -> Iterable[Change]:
        """Yield the changes at the end of the collection; the arguments come from the store."""
        return ()


def small_file(files: JobFiles, path: str) -> bytes | None:
    """Return the content of a small file; None where there is none, or one too large."""
    data = files.read(path, LARGEST_CONTENT_BYTES + 1)
    return None if data is None or len(data) > LARGEST_CONTENT_BYTES else data


def check_size(path: str, found: int, size: int | None) -> None:
    """Raise StoreError if `found` bytes were found of a log with `size` committed ones; None is not checked."""
    if size is not None and found != size:
        raise StoreError(
            f"the mirror is missing bytes of {path}: {found} of {size} are there",
            hint="start the capture again: it fetches what is missing",
        )
