"""The byte-identical copy of one JOB directory on the host's disk.

Data files grow in place; snapshots are put together beside the mirror and replace their file by rename; a file whose
generation ends is kept in `superseded`. No name that a board sends leads out of the JOB's directory.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections import OrderedDict
from typing import TYPE_CHECKING

from profagent.errors import FormatError, StoreError

if TYPE_CHECKING:
    from pathlib import Path

DIGEST_BYTES = 16
# Enough for the logs that one batch touches; a file beyond that is opened again.
OPEN_FILES = 64
READ_BYTES = 1 << 20
LONGEST_PATH_BYTES = 1024


def checked_path(path: bytes) -> str:
    """The path of a log inside its JOB, as text for the file system; FormatError when it could lead elsewhere."""
    parts = path.split(b"/")
    if len(path) > LONGEST_PATH_BYTES or b"\0" in path or any(part in (b"", b".", b"..") for part in parts):
        raise FormatError(
            file=repr(path[:80]), offset=0, expected="a relative path without '.' or '..'", found=f"{len(path)} bytes"
        )
    return os.fsdecode(path)


def syncfs(directory: Path) -> None:
    """Make everything that was written to the file system of `directory` durable; OSError when that fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if libc.syncfs(handle) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), str(directory))
    finally:
        os.close(handle)


def digest_of(data: bytes) -> bytes:
    """The wire's digest of some bytes."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


class JobMirror:
    """One JOB's files in `directory`; what is not part of it stands in `incoming` and `superseded`, same file system."""

    def __init__(self, directory: Path, *, incoming: Path, superseded: Path) -> None:
        self.directory = directory
        self._incoming = incoming
        self._superseded = superseded
        self._open: OrderedDict[str, int] = OrderedDict()

    def begin(self, path: str, generation: int, offset: int, *, snapshot: bool) -> None:
        """Make ready for bytes from `offset` on: cut an uncommitted tail, or set an earlier generation aside."""
        if snapshot:
            self._begin_snapshot(path, offset)
            return
        self._forget(path)
        target = self.directory / path
        if offset == 0:
            self._set_aside(path, generation)
            self._write_at(target, 0, b"", fresh=True)
        elif target.stat(follow_symlinks=False).st_size > offset:
            os.truncate(target, offset)

    def append(self, path: str, offset: int, data: bytes, *, snapshot: bool) -> None:
        """Write bytes at `offset`, which is where the file ends."""
        if snapshot:
            self._write_at(self._incoming / path, offset, data)
            return
        handle = self._handle(path)
        written = 0
        while written < len(data):
            written += os.pwrite(handle, data[written:], offset + written)

    def finish_snapshot(self, path: str) -> bytes | None:
        """Let a snapshot that has arrived whole take its place; returns its content, None when none came."""
        try:
            content = (self._incoming / path).read_bytes()
        except FileNotFoundError:
            return None
        target = self.directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        (self._incoming / path).replace(target)
        return content

    def cut(self, path: str, offset: int) -> None:
        """Drop bytes of a data file past `offset`: they were written but not committed."""
        self._forget(path)
        target = self.directory / path
        if target.is_file() and target.stat().st_size > offset:
            os.truncate(target, offset)

    def read(self, path: str, size: int | None = None) -> bytes | None:
        """The first `size` bytes of a mirrored file, or all; None when there is no such file."""
        try:
            with (self.directory / path).open("rb") as file:
                return file.read() if size is None else file.read(size)
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        """Paths of all mirrored files of this JOB."""
        return [
            os.path.relpath(os.path.join(folder, name), self.directory)  # noqa: PTH118 - str paths, one a file
            for folder, _, files in os.walk(self.directory)
            for name in files
        ]

    def prefix_digest(self, path: str, offset: int) -> bytes | None:
        """Digest of the first `offset` bytes; None when the mirror holds fewer."""
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        left = offset
        try:
            with (self.directory / path).open("rb") as file:
                while left and (block := file.read(min(left, READ_BYTES))):
                    digest.update(block)
                    left -= len(block)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None
        return None if left else digest.digest()

    def close(self) -> None:
        """Close every open file."""
        for handle in self._open.values():
            os.close(handle)
        self._open.clear()

    def _begin_snapshot(self, path: str, offset: int) -> None:
        """A snapshot comes whole from 0; from another offset nothing comes, it is there already."""
        if offset == 0:
            self._write_at(self._incoming / path, 0, b"", fresh=True)
        else:
            (self._incoming / path).unlink(missing_ok=True)

    def _set_aside(self, path: str, generation: int) -> None:
        target = self.directory / path
        if generation > 1 and target.is_file():
            kept = self._superseded / f"{path}.{generation - 1}"
            kept.parent.mkdir(parents=True, exist_ok=True)
            target.replace(kept)

    def _write_at(self, target: Path, offset: int, data: bytes, *, fresh: bool = False) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_TRUNC if fresh else 0)
        handle = os.open(target, flags, 0o644)
        try:
            os.pwrite(handle, data, offset)
        finally:
            os.close(handle)

    def _handle(self, path: str) -> int:
        handle = self._open.get(path)
        if handle is None:
            if len(self._open) >= OPEN_FILES:
                os.close(self._open.popitem(last=False)[1])
            try:
                handle = os.open(self.directory / path, os.O_WRONLY | os.O_NOFOLLOW)
            except FileNotFoundError as error:
                raise StoreError(
                    f"the mirror lost {path}", hint="start the capture again: it fetches what is missing"
                ) from error
            self._open[path] = handle
        self._open.move_to_end(path)
        return handle

    def _forget(self, path: str) -> None:
        handle = self._open.pop(path, None)
        if handle is not None:
            os.close(handle)
