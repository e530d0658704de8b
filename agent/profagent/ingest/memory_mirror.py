"""Files of a board's JOBs in memory, within a bound: for a capture that is only watched.

A forgotten file counts as missing, and nothing is decoded from it again.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from cachetools import LRUCache

from profagent.formats.names import LogKind, parse_log_name
from profagent.ingest.mirror import DIGEST_BYTES
from profagent.limits import LARGEST_CONTENT_BYTES, LARGEST_REMEMBERED_BYTES, REMEMBERED_GROWING

if TYPE_CHECKING:
    from hashlib import blake2b

TABLES = frozenset({LogKind.NET_INFO, LogKind.LAYER_INFO})
# Memory that a file takes beside its content.
FILE_BYTES = 1 << 10


class RememberedFiles:
    """Contents of files by JOB and path. Tables of layers are bounded apart, so that records do not displace them."""

    def __init__(self) -> None:
        # Two caches of LARGEST_REMEMBERED_BYTES each, by JOB and path.
        self._tables, self._others = _bounded(), _bounded()

    def keep(self, job: str, path: str, data: bytes | bytearray) -> None:
        """Remember the content of a file, in place of an earlier one."""
        name = parse_log_name(path)
        files = self._tables if name is not None and name.kind in TABLES else self._others
        files.pop((job, path), None)
        if _room(data) <= LARGEST_REMEMBERED_BYTES:
            files[job, path] = data

    def take(self, job: str, path: str) -> bytes | bytearray | None:
        """Forget a file; return its content, None if it was forgotten before."""
        key = (job, path)
        return self._tables.pop(key, None) if key in self._tables else self._others.pop(key, None)

    def get(self, job: str, path: str) -> bytes | bytearray | None:
        """Return the content of a file, None if it was forgotten."""
        return self._tables.get((job, path)) or self._others.get((job, path))

    def names(self, job: str) -> list[str]:
        """Return the paths of a JOB's remembered files."""
        return [path for of, path in (*self._tables, *self._others) if of == job]


def _bounded() -> LRUCache[tuple[str, str], bytes | bytearray]:
    return LRUCache(LARGEST_REMEMBERED_BYTES, getsizeof=_room)


def _room(data: bytes | bytearray) -> int:
    return len(data) + FILE_BYTES


class _Growing:
    """File that may grow: its size, its digest so far and, for a snapshot, its beginning."""

    def __init__(self, data: bytes = b"") -> None:
        self.size = len(data)
        self.digest: blake2b = hashlib.blake2b(data, digest_size=DIGEST_BYTES)
        self.beginning = bytearray(data)


class MemoryMirror:
    """One JOB's files in memory, with the methods of JobMirror. Nothing is set aside."""

    forgets = True

    def __init__(self, files: RememberedFiles, job: str) -> None:
        self._files, self._job = files, job
        # By path, and True for a snapshot.
        self._growing: LRUCache[tuple[str, bool], _Growing] = LRUCache(REMEMBERED_GROWING)

    def begin(self, path: str, generation: int, offset: int, *, snapshot: bool) -> None:
        """Prepare for bytes from `offset` on."""
        del generation
        if offset == 0:
            self._growing[path, snapshot] = _Growing()
            if not snapshot:
                self._files.keep(self._job, path, bytearray())
        elif snapshot:
            # The snapshot is here already, and no bytes come.
            self._growing.pop((path, True), None)

    def put(self, path: str, generation: int, data: bytes, *, snapshot: bool) -> None:
        """Remember the content of a generation."""
        del generation
        self._growing.pop((path, snapshot), None)
        self._files.keep(self._job, path, data)

    def append(self, path: str, offset: int, data: bytes, *, snapshot: bool) -> None:
        """Append bytes at `offset`, where the file ends."""
        growing = self._growing.get((path, snapshot))
        if growing is not None and growing.size == offset:
            growing.size += len(data)
            growing.digest.update(data)
            # No more than a decoder reads of it; the digest covers the rest.
            if snapshot and len(growing.beginning) <= LARGEST_CONTENT_BYTES:
                growing.beginning += data
        if not snapshot and (known := self._files.take(self._job, path)) is not None and len(known) == offset:
            known = known if isinstance(known, bytearray) else bytearray(known)
            known += data
            self._files.keep(self._job, path, known)

    def finish_snapshot(self, path: str) -> bytes | None:
        """Put a complete snapshot in place; return its beginning, None if none has arrived."""
        arrived = self._growing.pop((path, True), None)
        if arrived is None:
            return None
        self._growing[path, False] = arrived
        data = bytes(arrived.beginning[:LARGEST_CONTENT_BYTES])
        self._files.keep(self._job, path, data)
        return data

    def is_beyond(self, _path: str, _generation: int, _offset: int) -> bool:
        """Return False: a process that died has left nothing behind."""
        return False

    def restore(self, path: str, _generation: int, offset: int) -> None:
        """Undo what came after `offset` bytes were committed."""
        known = self._files.take(self._job, path)
        self._growing.pop((path, False), None)
        if known is not None and offset and len(known) >= offset:
            data = bytearray(known[:offset])
            self._files.keep(self._job, path, data)
            self._growing[path, False] = _Growing(bytes(data))

    def read(self, path: str, size: int | None = None, *, start: int = 0) -> bytes | None:
        """Return at most `size` bytes of a file from `start` on; None if it is missing or forgotten."""
        data = self._files.get(self._job, path)
        return None if data is None else bytes(data[start : None if size is None else start + size])

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes; None if it is missing or forgotten."""
        data = self._files.get(self._job, path)
        return None if data is None else len(data)

    def names(self) -> list[str]:
        """Return the paths of all remembered files."""
        return self._files.names(self._job)

    def prefix_digest(self, path: str, offset: int, *, declared: bytes | None = None) -> bytes | None:
        """Return the digest of the bytes up to `offset`, or `declared` where the bytes are not known."""
        growing = self._growing.get((path, False))
        return growing.digest.digest() if growing is not None and growing.size == offset else declared

    def take_back(self, path: str, generation: int) -> None:
        """Do nothing: nothing is set aside."""

    def close(self) -> None:
        """Do nothing: no file is open."""
