"""Folders of profagent in a JOB directory: the database, written by one command at a time, exports and a log.

A JOB may belong to somebody else: no symbolic link in it is followed.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import secrets
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from profagent import __version__
from profagent.errors import StoreError
from profagent.files import PRIVATE_FILE, disk_full, is_full
from profagent.formats.counter_maps import BUILT_IN
from profagent.formats.names import display_text
from profagent.ingest.local import OUTPUT_FOLDERS, require_job
from profagent.ingest.source import is_job
from profagent.store.database import FILE_NAME, reading
from profagent.store.queries import find_session
from profagent.store.sessions import MapUsed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from pathlib import Path

    from profagent.formats.counter_maps import CounterMaps


DATABASE_FOLDER = "sqlite"
LOCK_FILE = "lock"
DRAFT_SUFFIX = ".new"
LOG_FILE = "profagent.log"
LOOK_EACH_S = 0.1
_NOT_WRITABLE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


def job_database(directory: Path) -> Path:
    """Return the path of a JOB directory's own database. Raises StoreError if a link stands in its place."""
    database = directory / DATABASE_FOLDER / FILE_NAME
    for path in (database.parent, database):
        _refuse_link(path)
    return database


def own_folder(directory: Path, name: str) -> Path:
    """Return a folder of profagent in a JOB directory, created if missing. Raises StoreError, also for a link."""
    assert name in OUTPUT_FOLDERS, "else the next import takes it for something that is not the JOB's"
    folder = directory / name
    _refuse_link(folder)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise _not_written(folder, error) from error
    return folder


@asynccontextmanager
async def alone_in_job(directory: Path, tell: Callable[[str], None]) -> AsyncIterator[None]:
    """Hold the lock on a JOB's database; `tell` is called with a line if another process has it.

    Raises StoreError, and UsageError where the directory is no JOB: nothing is created in it.
    """
    if is_job((await asyncio.to_thread(directory.resolve)).name):
        await asyncio.to_thread(require_job, directory)
    file = own_folder(directory, DATABASE_FOLDER) / LOCK_FILE
    try:
        handle = _opened(file, os.O_RDWR)
    except OSError as error:
        raise _not_written(file, error) from error
    try:
        await _lock(handle, directory, tell)
        yield
    finally:
        os.close(handle)


@asynccontextmanager
async def new_database(directory: Path, made_ns: int | None = None) -> AsyncIterator[Path]:
    """Yield a new file that replaces the JOB's database when the context ends without an error.

    The caller holds the lock of `alone_in_job`. The database gets the modification time `made_ns`, else the time of the
    beginning, so that files that change meanwhile are newer than it.
    """
    database = job_database(directory)
    draft = database.with_name(f"{FILE_NAME}.{secrets.token_hex(8)}{DRAFT_SUFFIX}")
    try:
        # Drafts of processes that were killed: the lock proves that nobody writes one now.
        for stale in database.parent.glob(f"*{DRAFT_SUFFIX}"):
            stale.unlink()
        os.close(_opened(draft, os.O_RDWR | os.O_EXCL))
        begun_ns = draft.stat().st_mtime_ns if made_ns is None else made_ns
        try:
            yield draft
            # Durable before the rename: after a crash the name leads to the old database or to a complete new one.
            await asyncio.to_thread(sync, draft)
            # Older than the import's end: a file of the JOB that changed during it makes the database stale.
            os.utime(draft, ns=(begun_ns, begun_ns))
            draft.replace(database)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise _not_written(database, error) from error


def sync(file: Path) -> None:
    """Make a file's content durable."""
    handle = os.open(file, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


async def fresh_database(directory: Path, maps: CounterMaps = BUILT_IN) -> Path | None:
    """Return the path of the JOB's database; None if it is missing, of another version, or older than a file.

    None as well if a counter map is named, or if the map has been found or changed since the database was made.
    """
    database = job_database(directory)
    is_fresh = maps.named is None and _is_fresh(directory, database) and not await _gained_map(database, maps)
    return database if is_fresh else None


def write_log(directory: Path, lines: Iterable[str]) -> None:
    """Append lines to the JOB's log. Raises StoreError."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    file = own_folder(directory, "log") / LOG_FILE
    try:
        with open(_opened(file, os.O_WRONLY | os.O_APPEND), "a", encoding="utf-8") as log:
            log.writelines(f"{now} profagent {__version__} {display_text(line)}\n" for line in lines)
    except OSError as error:
        raise _not_written(file, error) from error


async def _lock(handle: int, directory: Path, tell: Callable[[str], None]) -> None:
    is_chosen = False
    # Polled, not waited for: a blocking flock in a thread could not be cancelled.
    while True:
        with suppress(BlockingIOError):
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not is_chosen:
            tell(f"another profagent imports {directory}: waiting until it has finished")
        is_chosen = True
        await asyncio.sleep(LOOK_EACH_S)


def _opened(file: Path, flags: int) -> int:
    """Return a descriptor of a file, created if missing; no link is followed, and a fifo does not block."""
    _refuse_link(file)
    return os.open(file, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, PRIVATE_FILE)


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise StoreError(
            f"{path} is a symbolic link, and profagent follows none in a JOB directory",
            hint="remove the link, which the board's runtime did not make, and call this again",
        )


def _not_written(path: Path, error: OSError) -> StoreError:
    if is_full(error):
        return disk_full(path.parent)
    hint = "check the permissions and the free space of the JOB"
    if error.errno in _NOT_WRITABLE:
        hint = (
            "`profagent import -dir JOB --workspace DIR` copies it to where you may write; then name its session in"
            " place of the JOB"
        )
    return StoreError(f"cannot write {path}: {error.strerror}", hint=hint)


def _is_fresh(directory: Path, database: Path) -> bool:
    try:
        made_ns = database.stat().st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return False
    return all(changed_ns < made_ns for changed_ns in _changes_ns(directory))


async def _gained_map(database: Path, maps: CounterMaps) -> bool:
    try:
        async with reading(database) as connection:
            session = await find_session(connection)
    except StoreError:
        # The database is damaged, or has another version.
        return True
    found = MapUsed.of(maps.unheard().of(simulated=session.simulated, sdk=session.sdk_version))
    return session.counter_map in (None, found.name) and session.counter_map_digest != found.digest


def _changes_ns(directory: Path) -> Iterable[int]:
    for folder in (directory, directory / "data"):
        if not folder.is_dir():
            continue
        with os.scandir(folder) as entries:
            yield from (entry.stat().st_mtime_ns for entry in entries if entry.is_file())
