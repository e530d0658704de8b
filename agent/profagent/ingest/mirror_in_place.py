"""Files of a collection where they are, as a mirror that copies nothing: for an import into its own database.

A file is in the mirror as far as it has been passed to it, whatever follows on the disk, so that every file means what
it would mean if it had come from a board.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.files import content
from profagent.limits import LARGEST_CONTENT_BYTES

if TYPE_CHECKING:
    from pathlib import Path


class MirrorInPlace:
    """One collection's own files, with the methods of JobMirror. They are read and never written."""

    forgets = False

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        # By path, the bytes of a file that have been passed.
        self._sizes: dict[str, int] = {}
        # By path, the bytes of incomplete snapshots.
        self._arriving: dict[str, int] = {}

    def begin(self, path: str, generation: int, offset: int, *, snapshot: bool) -> None:
        """Note that bytes from `offset` on follow."""
        del generation
        (self._arriving if snapshot else self._sizes)[path] = offset

    def put(self, path: str, generation: int, data: bytes, *, snapshot: bool) -> None:
        """Note that a file has come complete."""
        del generation, snapshot
        self._sizes[path] = len(data)

    def append(self, path: str, offset: int, data: bytes, *, snapshot: bool) -> None:
        """Note that bytes at `offset` have come."""
        (self._arriving if snapshot else self._sizes)[path] = offset + len(data)

    def finish_snapshot(self, path: str) -> bytes | None:
        """Return the beginning of a snapshot that has come complete, None where none has."""
        size = self._arriving.pop(path, None)
        if size is None:
            return None
        self._sizes[path] = size
        return self.read(path, LARGEST_CONTENT_BYTES)

    def is_beyond(self, _path: str, _generation: int, _offset: int) -> bool:
        """Return False: nothing is written, so a process that died has left nothing."""
        return False

    def restore(self, path: str, generation: int, offset: int) -> None:
        """Do nothing: no earlier process has committed anything."""

    def read(self, path: str, size: int | None = None, *, start: int = 0) -> bytes | None:
        """Return at most `size` bytes of a file from `start` on; None where it has not come, or is gone."""
        left = self._sizes.get(path)
        if left is None:
            return None
        left = max(left - start, 0)
        # Never beyond what has come: a file may have grown since it was listed.
        return content(f"{self._directory}/{path}", left if size is None else min(size, left), start)

    def size(self, path: str) -> int | None:
        """Return how many bytes of a file have come; None where it has not."""
        return self._sizes.get(path)

    def names(self) -> list[str]:
        """Return the paths of all files that have come."""
        return [*self._sizes]

    def prefix_digest(self, _path: str, _offset: int, *, declared: bytes | None = None) -> bytes | None:
        """Return `declared`: whoever read the file computed it from these bytes."""
        return declared

    def take_back(self, path: str, generation: int) -> None:
        """Do nothing: nothing is set aside."""

    def close(self) -> None:
        """Do nothing: no file is open."""
