"""The decoder of a source (`ingest.source`): it gives the bytes of one collection's logs their meaning."""

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
    """Bytes of the collection that were decoded before."""

    def read(self, path: str, size: int | None = None, *, start: int = 0) -> bytes | None:
        """At most `size` bytes of a log from `start` on, or all; None where they are not kept."""

    def names(self) -> list[str]:
        """Paths of the logs whose bytes were decoded before."""


class Decoder:
    """Decodes the logs of one collection. Bytes are in `files` before they are given to it.

    As it stands here it counts them. Rows of its own go out as `SourceRows`, into tables of the source's schema.
    """

    names_table = ""  # its rows name what others have: who goes on with a log is told them again
    end_file = ""  # a file of this name says that nothing more is written, where a source has one

    def __init__(self, files: JobFiles, **_chosen: Any) -> None:
        """`_chosen` is what the command chose: counter maps, which inferences to keep."""
        self.files = files

    @classmethod
    def growing(cls, _path: str) -> bool:
        """Whether a file of this name grows at its end; any other is rewritten whole."""
        return True

    def keeps(self, _path: str) -> bool:
        """Whether a log gets rows, which its name alone tells: any other was passed over on purpose."""
        return True

    def begin_stream(self) -> None:
        """A stream begins: what was told in an earlier one may have changed."""

    def expect(self, paths: Iterable[str]) -> None:
        """The board announces logs that are not held whole."""

    def inferences(self, groups: Sequence[Group]) -> tuple[list[Change], Sequence[Group]]:
        """Inferences that come whole, of logs of which nothing was decoded before.

        Returns what they mean, and the groups whose files are to be given one by one.
        """
        return [], groups

    def confirm(self, _path: str) -> Iterable[Change]:
        """A log that is complete is as it was held."""
        return ()

    def begin(self, path: str, generation: int, offset: int) -> Iterator[Change]:
        """A data log goes on from `offset`; from 0 its earlier rows are void."""
        if offset == 0:
            yield LogReset(path)
        yield LogAdvanced(path, generation, offset)

    def append(self, path: str, generation: int, offset: int, data: bytes) -> Iterator[Change]:
        """Bytes of a data log at `offset`."""
        yield LogAdvanced(path, generation, offset + len(data))

    def complete(self, path: str, generation: int, offset: int, digest: bytes | None) -> Iterator[Change]:
        """The board vouches for a data log."""
        yield LogAdvanced(path, generation, offset, complete=True, digest=digest)

    def whole(self, path: str, generation: int, data: bytes, digest: bytes) -> Iterator[Change]:
        """A data log that came whole: as if it began, grew and was complete."""
        yield from self.begin(path, generation, 0)
        if data:
            yield from self.append(path, generation, 0, data)
        yield from self.complete(path, generation, len(data), digest)

    def snapshot(
        self, path: str, generation: int, data: bytes, digest: bytes, *, size: int | None = None
    ) -> Iterator[Change]:
        """A file that came whole; `size` where `data` is only its beginning. Raises UnsupportedBoardError."""
        yield LogAdvanced(path, generation, len(data) if size is None else size, complete=True, digest=digest)

    def end(self, _unsettled: Iterable[str], _orphans: Iterable[str]) -> Iterable[Change]:
        """The collection has ended; the arguments come from the store."""
        return ()


def small_file(files: JobFiles, path: str) -> bytes | None:
    """A small file whole; None where there is none, or one that is too large to be one."""
    data = files.read(path, LARGEST_CONTENT_BYTES + 1)
    return None if data is None or len(data) > LARGEST_CONTENT_BYTES else data


def check_size(path: str, found: int, size: int | None) -> None:
    """Raise StoreError where another number of bytes was found than is committed, as far as that is known."""
    if size is not None and found != size:
        raise StoreError(
            f"the mirror lost bytes of {path}: {found} of {size} are there",
            hint="start the capture again: it fetches what is missing",
        )
