"""Byte-identical copy of one JOB directory on the host's disk.

Data files grow in place; snapshots are assembled beside the mirror and replace their file by rename; a file whose
generation ends moves to `superseded`. No name that a board sends leads out of the JOB's directory, and no symbolic link
in the place of a file or of a folder is followed.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import hashlib
import os
import shutil
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cachetools import LRUCache

from profagent.errors import ProfagentError, ProtocolError, StoreError
from profagent.files import (
    content,
    disk_full,
    finished,
    is_full,
    make_anew,
    make_private_folder,
    move,
    opened,
    pread,
    stands,
    write_all,
)
from profagent.limits import FILE_PIECE_BYTES, LARGEST_CONTENT_BYTES, MOST_SPARE_FILES, OPEN_FILES, REMEMBERED_FOLDERS

if TYPE_CHECKING:
    from collections.abc import Callable

# Errors of names that cannot exist side by side, or that something else on this host has taken.
_NO_PLACE = frozenset({errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.EEXIST})


class Translated:
    """Context that turns errors of the disk with `place` into StoreError, DiskFullError or ProtocolError."""

    __slots__ = ("_place", "_what")

    def __init__(self, what: str, place: Path) -> None:
        self._what = what
        self._place = place

    def __enter__(self) -> None:
        """Begin the guarded block."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise the error of profagent for an OSError."""
        if isinstance(error, OSError):
            if is_full(error):
                raise disk_full(self._place) from error
            raise _explained(self._what, error) from error


def refuse_links(base: Path, path: str) -> None:
    """Raise StoreError if `base`, or a folder between it and the file, is a symbolic link."""
    folders = [base, *(base / above for above in Path(path).parents)]
    for folder in folders:
        if folder.is_symlink():
            raise StoreError(
                f"{folder} is a symbolic link: profagent writes through no link",
                hint="remove the link on this host; the files that the board still has are fetched again",
            )


def _explained(what: str, error: OSError) -> ProfagentError:
    if error.errno in _NO_PLACE:
        return ProtocolError(
            f"{what}: {error.strerror}: {error.filename2 or error.filename}",
            hint="remove the unexpected file from the JOB directory on the board, or the file that is in the way on"
            " this host",
        )
    return StoreError(
        f"{what}: {error.strerror}", hint="check the disk, its free space and the permissions of the workspace"
    )


DIGEST_BYTES = 16
_LIBC = ctypes.CDLL(None, use_errno=True)


def syncfs(directory: Path) -> None:
    """Make everything that was written to the file system of `directory` durable. Raises StoreError, DiskFullError."""
    with Translated(f"cannot make {directory} durable", directory):
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if _LIBC.syncfs(handle) != 0:
                error = ctypes.get_errno()
                raise OSError(error, os.strerror(error), str(directory))
        finally:
            os.close(handle)


class SharedSync:
    """Durability of what was written below a folder. One call runs at a time, and at most one waits."""

    def __init__(self, folder: Path, *, sync: Callable[[Path], None] = syncfs) -> None:
        self._folder = folder
        self._sync = sync
        # Held while a call runs.
        self._turn = asyncio.Lock()
        # The call that has not begun, shared by everybody who came since the last one began.
        self._next: asyncio.Task[None] | None = None

    async def sync(self) -> None:
        """Return when everything written before this call is durable. Raises StoreError, DiskFullError.

        A running call may have begun before the write: the next one counts, for all callers until it begins.
        """
        # The caller's bytes are written by now. A call that has begun may have missed them; `_next` has not begun.
        if self._next is None:
            self._next = asyncio.create_task(self._run())
        await finished(self._next)

    async def _run(self) -> None:
        async with self._turn:
            # Before the call: whatever is written from now on needs another one.
            self._next = None
            await asyncio.to_thread(self._sync, self._folder)


def digest_of(data: bytes) -> bytes:
    """Return the wire's digest of `data`: BLAKE2b of 16 bytes."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def logs_set_aside(superseded: Path) -> list[tuple[str, str]]:
    """Return JOB and path of each log with a superseded generation of a board. Raises StoreError."""
    with Translated("cannot look into what was set aside", superseded):
        files = [
            os.path.relpath(os.path.join(folder, name), superseded)  # noqa: PTH118 - str paths, one a file
            for folder, _, names in os.walk(superseded)
            for name in names
        ]
    logs = {file.rpartition(".")[0] for file in files if file.rpartition(".")[2].isdecimal()}
    return [(job, path) for job, _, path in (log.partition("/") for log in sorted(logs)) if path]


T = TypeVar("T")


class ClosingCache(LRUCache[str, T]):
    """Cache that closes what it evicts; a popped value belongs to the caller."""

    def __init__(self, most: int, close: Callable[[T], None]) -> None:
        super().__init__(most)
        self._close_one = close

    def popitem(self) -> tuple[str, T]:
        """Evict and close the value used longest ago."""
        name, value = super().popitem()
        self._close_one(value)
        return name, value

    def clear(self) -> None:
        """Evict and close all values."""
        while self:  # that of the library forgets all without `popitem`
            self.popitem()


class SpareFiles:
    """Files that a mirror does not need any more, in a folder of their own: the next new files are made of them.

    Where a flight recorder removes thousands of files, ext4 passes over the numbers of the removed ones for a minute
    when it makes others: each new file then took 0.4 ms, and writing a spare file anew takes a tenth.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        # The oldest first, which nobody reads any more; None until one is added.
        self._files: deque[str] | None = None
        self._number = 0

    def add(self, file: str) -> None:
        """Move a file here, or remove it where there are enough. Raises OSError."""
        if self._files is None:
            make_private_folder(Path(self._folder))
            # Those of a process that was killed.
            self._files = deque(entry.path for entry in os.scandir(self._folder))
            self._number = max((int(name) for each in self._files if (name := each.rpartition("/")[2])), default=0)
        if len(self._files) >= MOST_SPARE_FILES:
            os.unlink(file)  # noqa: PTH108 - very many files
            return
        self._number += 1
        spare = f"{self._folder}/{self._number}"
        os.rename(file, spare)  # noqa: PTH104 - as above
        self._files.append(spare)

    def put(self, file: str, data: bytes) -> bool:
        """Write a file by means of a spare one; return False where none is left. Raises OSError."""
        if not self._files or (handle := opened(spare := self._files.popleft(), os.O_WRONLY)) is None:
            return False
        try:
            write_all(handle, 0, data)
            os.ftruncate(handle, len(data))
        finally:
            os.close(handle)
        # Complete before it gets its name, which a process that was killed could not tell from a file of the board.
        move(spare, file)
        return True

    def clear(self) -> None:
        """Remove all files."""
        if self._files is not None:
            self._files = None
            shutil.rmtree(self._folder, ignore_errors=True)


class JobMirror:
    """One JOB's files in `directory`; incomplete and superseded files are in two folders of the same file system.

    Whatever the disk refuses raises StoreError: DiskFullError for want of space, ProtocolError where the names of the
    board's logs cannot exist side by side, or something else has one of them.
    """

    forgets = False

    def __init__(self, directory: Path, *, incoming: Path, superseded: Path) -> None:
        self.directory = directory
        # As text: a Path for each file would cost more than writing it.
        self._mirrored, self._incoming, self._superseded = str(directory), str(incoming), str(superseded)
        # Descriptors of files that grow, by path on this host.
        self._open = ClosingCache(OPEN_FILES, os.close)
        self._spares = SpareFiles(f"{incoming}/.spare")
        # Folders that were looked at and are no links.
        self._folders: set[str] = set()

    def begin(self, path: str, generation: int, offset: int, *, snapshot: bool) -> None:
        """Prepare for bytes from `offset` on: cut an uncommitted tail, or set an earlier generation aside."""
        self._forget(path)
        with self._trying(f"cannot write {path} into the mirror"):
            if offset == 0:
                if not snapshot:
                    self._set_aside(path, generation)
                file = self._file(path, snapshot=snapshot)
                self._open[file] = make_anew(file)
            elif snapshot:
                # The snapshot is here already, and no bytes come: remove what an earlier attempt left.
                Path(self._file(path, snapshot=True)).unlink(missing_ok=True)
            elif self._cut(path, offset) < offset:
                raise _lost(path)

    def put(self, path: str, generation: int, data: bytes, *, snapshot: bool) -> None:
        """Write the content of a generation. A snapshot takes its place once it is complete."""
        self._forget(path)
        with self._trying(f"cannot write {path} into the mirror"):
            if not snapshot:
                self._set_aside(path, generation)
            if self._spares.put(self._file(path), data):
                return
            file = self._file(path, snapshot=snapshot)
            handle = make_anew(file)
            try:
                write_all(handle, 0, data)
            finally:
                os.close(handle)
            if snapshot:
                move(file, self._file(path))

    def append(self, path: str, offset: int, data: bytes, *, snapshot: bool) -> None:
        """Write bytes at `offset`, where the file ends."""
        with self._trying(f"cannot write {path} into the mirror"):
            file = self._file(path, snapshot=snapshot)
            write_all(self._handle(path, file), offset, data)

    def finish_snapshot(self, path: str) -> bytes | None:
        """Put a complete snapshot in place; return its beginning, None if none has arrived."""
        with self._trying(f"cannot write {path} into the mirror"):
            arrived = self._file(path, snapshot=True)
            handle = self._open.get(arrived)
            data = content(arrived, LARGEST_CONTENT_BYTES) if handle is None else pread(handle, LARGEST_CONTENT_BYTES)
            if data is not None:
                self._forget(path)
                move(arrived, self._file(path))
            return data

    def remove(self, path: str) -> None:
        """Remove a mirrored file, which may be gone already, and what `restore` set aside of it."""
        self._forget(path)
        what = f"cannot remove {path} from the mirror"
        with self._trying(what), suppress(FileNotFoundError):
            os.unlink(self._aside(path))  # noqa: PTH108 - very many files
        with self._trying(what), suppress(FileNotFoundError):
            self._spares.add(self._file(path))

    def is_beyond(self, path: str, generation: int, offset: int) -> bool:
        """Return True if a data file has changed since `offset` bytes of a generation were committed."""
        size = self.size(path)
        with self._trying(f"cannot look for {path} in the mirror"):
            return bool(self._set_aside_from(path, generation)) or (
                size is not None and (not generation or size > offset)
            )

    def restore(self, path: str, generation: int, offset: int) -> None:
        """Undo what was done to a data file since `offset` bytes of a generation were committed.

        Generation 0 means that nothing was committed: the file is set aside, and comes again or is gone.
        """
        self.take_back(path, generation)
        with self._trying(f"cannot cut {path} in the mirror"):
            if generation > 0:
                self._cut(path, offset)
            elif stands(file := Path(self._file(path))):
                aside = Path(self._aside(path))
                aside.parent.mkdir(parents=True, exist_ok=True)
                file.replace(aside)

    def read(self, path: str, size: int | None = None, *, start: int = 0) -> bytes | None:
        """Return at most `size` bytes of a mirrored file from `start` on; None where there is none."""
        with self._trying(f"cannot read {path} in the mirror"):
            return content(self._file(path), size, start)

    def size(self, path: str) -> int | None:
        """Return the size of a mirrored file in bytes; None where there is none."""
        with self._trying(f"cannot read {path} in the mirror"):
            handle = opened(self._file(path), os.O_RDONLY)
            if handle is None:
                return None
            try:
                return os.fstat(handle).st_size
            finally:
                os.close(handle)

    def names(self) -> list[str]:
        """Return the paths of all mirrored files of this JOB."""
        return [
            os.path.relpath(os.path.join(folder, name), self.directory)  # noqa: PTH118 - str paths, one a file
            for folder, _, files in os.walk(self.directory)
            for name in files
        ]

    def prefix_digest(self, path: str, offset: int, *, declared: bytes | None = None) -> bytes | None:
        """Return the digest of the bytes up to `offset`; None if the mirror has fewer. `declared` is not used."""
        del declared
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        left = offset
        with self._trying(f"cannot read {path} in the mirror"):
            # Opened by name: somebody may have replaced the file that is open here.
            handle = opened(self._file(path), os.O_RDONLY)
            if handle is None:
                return None
            try:
                while left and (block := os.read(handle, min(left, FILE_PIECE_BYTES))):
                    digest.update(block)
                    left -= len(block)
            finally:
                os.close(handle)
        return None if left else digest.digest()

    def take_back(self, path: str, generation: int) -> None:
        """Undo what set a committed generation aside: later generations were begun, but never committed."""
        self._forget(path)
        with self._trying(f"cannot write {path} into the mirror"):
            superseded = self._set_aside_from(path, generation)
            for file in superseded[:1]:
                file.replace(self._file(path))
            for never_committed in superseded[1:]:
                never_committed.unlink()

    def close(self) -> None:
        """Close every open file, and remove the spare ones."""
        self._open.clear()
        self._spares.clear()

    def _trying(self, what: str) -> Translated:
        return Translated(what, self.directory)

    def _cut(self, path: str, offset: int) -> int:
        handle = opened(self._file(path), os.O_WRONLY)
        if handle is None:
            return 0
        try:
            size = os.fstat(handle).st_size
            if size > offset:
                os.ftruncate(handle, offset)
            return size
        finally:
            os.close(handle)

    def _set_aside_from(self, path: str, generation: int) -> list[Path]:
        latest = Path(self._below(self._superseded, path))
        if not stands(latest.parent):
            return []
        numbers = (file.name.removeprefix(f"{latest.name}.") for file in latest.parent.iterdir())
        found = sorted(int(number) for number in numbers if number.isdecimal() and int(number) >= generation)
        return [latest.with_name(f"{latest.name}.{number}") for number in found]

    def _set_aside(self, path: str, generation: int) -> None:
        """Move an earlier generation away, unless it was moved before: then the file was never committed."""
        if generation <= 1:
            return
        target, superseded = Path(self._file(path)), Path(self._below(self._superseded, f"{path}.{generation - 1}"))
        if stands(target) and not stands(superseded):
            make_private_folder(superseded.parent)
            target.replace(superseded)

    def _aside(self, path: str) -> str:
        return self._below(self._superseded, f"{path}.uncommitted")

    def _file(self, path: str, *, snapshot: bool = False) -> str:
        return self._below(self._incoming if snapshot else self._mirrored, path)

    def _below(self, base: str, path: str) -> str:
        """Return the path of a file of the mirror. Raises StoreError if a folder in it is a link."""
        file = f"{base}/{path}"
        folder = file.rpartition("/")[0]
        if folder not in self._folders:
            refuse_links(Path(base), path)
            if len(self._folders) >= REMEMBERED_FOLDERS:
                self._folders.clear()
            self._folders.add(folder)
        return file

    def _handle(self, path: str, file: str) -> int:
        handle = self._open.get(file)
        if handle is None:
            handle = opened(file, os.O_RDWR)
            if handle is None:
                raise _lost(path)
            self._open[file] = handle
        return handle

    def _forget(self, path: str) -> None:
        for base in (self._mirrored, self._incoming):
            handle = self._open.pop(f"{base}/{path}", None)
            if handle is not None:
                os.close(handle)


def _lost(path: str) -> StoreError:
    return StoreError(
        f"the mirror is missing bytes of {path}", hint="start the capture again: it fetches what is missing"
    )
