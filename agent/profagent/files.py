"""Files that are either complete or absent, and folders of such files."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import secrets
import shutil
import sqlite3
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from profagent.errors import DiskFullError, ProfagentError, UsageError
from profagent.limits import ROOM_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


T = TypeVar("T")


async def finished(task: asyncio.Future[T]) -> T:
    """Return the result of a task or thread, waiting for it even if the caller is cancelled meanwhile."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        # The work owns resources; only after its end may the cancellation go on.
        await asyncio.wait([task])
        raise


async def to_the_end(function: Callable[..., T], *arguments: object) -> T:
    """Run a function on a thread, and wait for its end even if the caller is cancelled."""
    return await finished(asyncio.get_running_loop().run_in_executor(None, function, *arguments))


PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
# Errors for a link, or for something that is no file: the mirror created nothing like that.
_NOT_OURS = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO})
# A fifo would block in open without O_NONBLOCK; regular files do not care.
_OPEN_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN_FLAGS


def stands(file: Path) -> bool:
    """Return True if anything has this name, including a link that leads nowhere."""
    return file.is_symlink() or file.exists()


def opened(file: str, access: int) -> int | None:
    """Return a descriptor of a regular file; None where there is none."""
    found = _opened(file, access)
    return None if found is None else found[0]


def _opened(file: str, access: int) -> tuple[int, int] | None:
    try:
        handle = os.open(file, access | _OPEN_FLAGS)
    except OSError as error:
        if error.errno in _NOT_OURS:
            return None
        raise
    found = os.fstat(handle)
    if stat.S_ISREG(found.st_mode):
        return handle, found.st_size
    os.close(handle)
    return None


def required(file: str) -> tuple[int, int]:
    """Return a descriptor for reading a regular file, and the file's size. Raises OSError where there is none."""
    found = _opened(file, os.O_RDONLY)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, "it is not a regular file", file)
    return found


def content(file: str, size: int | None, start: int = 0) -> bytes | None:
    """Return at most `size` bytes of a regular file from `start` on, or all; None where there is none."""
    handle = opened(file, os.O_RDONLY)
    if handle is None:
        return None
    try:
        return pread(handle, os.fstat(handle).st_size if size is None else size, start)
    finally:
        os.close(handle)


def pread(handle: int, size: int, start: int = 0) -> bytes:
    """Return `size` bytes of a file from `start` on, or as many as there are."""
    left = max(0, min(size, os.fstat(handle).st_size - start))
    blocks, at = [], start
    while left and (block := os.pread(handle, left, at)):
        blocks.append(block)
        at += len(block)
        left -= len(block)
    return b"".join(blocks)


def make_anew(file: str) -> int:
    """Return the descriptor of a new empty file, in place of whatever had its name."""
    try:
        return os.open(file, _MAKE_FLAGS, PRIVATE_FILE)
    except FileNotFoundError:
        make_private_folder(Path(file).parent)
    except FileExistsError:
        Path(file).unlink()
    return os.open(file, _MAKE_FLAGS, PRIVATE_FILE)


def make_private_folder(folder: Path) -> None:
    """Create a folder and its missing parents for their owner alone; an existing one is left unchanged."""
    try:
        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    except FileNotFoundError:
        make_private_folder(folder.parent)
        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def move(arrived: str, file: str) -> None:
    """Rename a file, replacing another one, and create its folder where that is missing."""
    try:
        os.rename(arrived, file)  # noqa: PTH104 - a Path for each file would cost more
    except FileNotFoundError:
        make_private_folder(Path(file).parent)
        Path(arrived).rename(file)


def write_all(handle: int, offset: int, data: bytes) -> None:
    """Write all of `data` at `offset`."""
    written = 0
    while written < len(data):
        written += os.pwrite(handle, data[written:], offset + written)


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_PRIMARY_CODE = 0xFF


def is_full(error: OSError) -> bool:
    """Return True if the disk, or a quota, takes no more."""
    return error.errno in _FULL


def is_full_database(error: sqlite3.Error, directory: Path) -> bool:
    """Return True if SQLite means a full disk; it reports an exhausted quota as an I/O error."""
    # Errors that Python's module raises by itself have no code.
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
    return code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and not has_room(directory))


def disk_full(place: Path) -> DiskFullError:
    """Return the error for the full file system that holds `place`, or would hold it."""
    mounted = next(above for above in (place.absolute(), *place.absolute().parents) if above.is_mount())
    found = os.statvfs(mounted)
    free = found.f_bavail * found.f_frsize
    return DiskFullError(
        f"the disk at {mounted} is full: {free / 1e6:,.1f} MB are free",
        hint=f"make room, {ROOM_BYTES / 1e6:.0f} MB at least; committed data is safe, and the next capture continues",
    )


def has_room(directory: Path) -> bool:
    """Return True if a batch can be written; the space is allocated and freed again, so that quotas count too."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            os.posix_fallocate(file.fileno(), 0, ROOM_BYTES)
    except OSError as error:
        # Any other error will be raised by the next write.
        return not is_full(error)
    return True


WRITE_BYTES = 1 << 18
OWNER_ONLY = 0o700


def make_directory(directory: Path) -> None:
    """Create a directory and its parents, for their owner alone. Raises ProfagentError."""
    try:
        make_private_folder(directory)
    except OSError as error:
        raise _not_written(directory, error) from error


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Hold the lock on a directory against others that change its files; wait for them. Raises ProfagentError."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _not_written(directory, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


_DATABASE = b"SQLite format 3\0"


def write_atomically(target: Path, pieces: Iterable[bytes], *, durably: bool = False) -> None:
    """Write the pieces as a file, as `written_atomically`."""
    with written_atomically(target, durably=durably) as file:
        file.writelines(pieces)


@contextmanager
def written_atomically(target: Path, *, durably: bool = False, over_database: bool = False) -> Iterator[BinaryIO]:
    """Yield a file beside `target` that replaces it at the end; on any error the old file stays.

    Raises ProfagentError. `durably`: after the return, the new file survives a loss of power. A link is replaced
    itself, and never followed. A device, a pipe and a database, or a link to one, are not replaced: UsageError.
    """
    temporary = target.parent / f".{secrets.token_hex(8)}.part"
    try:
        _require_replaceable(target, over_database=over_database)
        try:
            with temporary.open("xb", buffering=WRITE_BYTES) as file:
                yield file
                if durably:
                    file.flush()
                    os.fsync(file.fileno())
            temporary.replace(target)
            if durably:
                _sync_directory(target.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _not_written(target, error) from error


def _require_replaceable(target: Path, *, over_database: bool) -> None:
    with suppress(FileNotFoundError, PermissionError):
        kind = target.stat().st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            raise UsageError(f"{target} is not a regular file", hint="name a file")
        if stat.S_ISREG(kind) and not over_database:
            with target.open("rb") as file:
                if file.read(len(_DATABASE)) == _DATABASE:
                    raise UsageError(f"{target} is a database", hint="name another file")


@contextmanager
def folder_written(target: Path) -> Iterator[Path]:
    """Yield a folder whose files are in `target` once the context ends without an error. Raises ProfagentError.

    If nothing stands at `target`, the folder gets this name. Else each of its files gets its name there, as
    `written_atomically`, and other files stay.
    """
    try:
        is_new = not stands(target)
        if is_new:
            make_private_folder(target.parent)
        temporary = (target.parent if is_new else target) / f".{secrets.token_hex(8)}.part"
        _remove_stale(temporary.parent)
        temporary.mkdir(mode=PRIVATE_FOLDER)
        try:
            # The lock shows other writers that this folder is in use, and not left by a killed process.
            with alone_in(temporary):
                yield temporary
            # Another writer may have created the target meanwhile.
            if is_new and not stands(target):
                temporary.rename(target)
            else:
                _move_files(temporary, target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    except OSError as error:
        raise _not_written(target, error) from error


def _remove_stale(directory: Path) -> None:
    for folder in directory.glob(f".{'[0-9a-f]' * 16}.part"):
        with suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(handle)


def _move_files(folder: Path, target: Path) -> None:
    present = {each.name for each in target.iterdir()}
    files = [*folder.iterdir()]
    # Checked before the first move: if one may not be replaced, all stay as they were.
    for file in files:
        if file.name in present:
            _require_replaceable(target / file.name, over_database=False)
    for file in files:
        file.replace(target / file.name)
    folder.rmdir()


def write_new(file: str, data: bytes) -> None:
    """Write a file that does not exist yet. Raises OSError."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        write_all(handle, 0, data)
    finally:
        os.close(handle)


def write_folder_atomically(target: Path, files: Mapping[str, bytes]) -> None:
    """Create a folder for its owner alone (0700, files 0600) with all of its files, durably, or nothing.

    Raises ProfagentError. Names may have one folder before them. An existing folder that is not empty stays as it is.
    """
    temporary = target.parent / f".{secrets.token_hex(8)}.part"
    try:
        target.parent.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
        temporary.mkdir(mode=OWNER_ONLY)
        try:
            for name, content in files.items():
                (temporary / name).parent.mkdir(mode=OWNER_ONLY, exist_ok=True)
                _write_durably(temporary / name, content)
            # Names before the rename, and the rename itself last: after a crash there is all or nothing.
            for folder in {(temporary / name).parent for name in files} | {temporary}:
                _sync_directory(folder)
            temporary.replace(target)
            _sync_directory(target.parent)
        except BaseException:
            shutil.rmtree(temporary)
            raise
    except OSError as error:
        raise _not_written(target, error) from error


def _write_durably(path: Path, content: bytes) -> None:
    path.touch(mode=OWNER_ONLY & 0o666, exist_ok=False)
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _not_written(target: Path, error: OSError) -> ProfagentError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    shown = os.fsencode(target).decode("utf-8", "backslashreplace")
    hint = "check the permissions and the free space there"
    if error.errno == errno.ENOENT and not target.parent.exists():
        hint = "there is no such directory: make it first, or name another"
    return ProfagentError(f"cannot write {shown}: {reason}", hint=hint)
