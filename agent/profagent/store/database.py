"""Access to the SQLite file: its settings, its schema, one connection that writes and others that read."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import shlex
import shutil
import sqlite3
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import aiosqlite
from msgspec import Struct

from profagent.errors import DiskFullError, StoreError
from profagent.files import PRIVATE_FILE, disk_full, is_full_database, make_private_folder
from profagent.formats.names import SIMULATED_MARKER
from profagent.limits import (
    BUSY_TIMEOUT_MS,
    CACHE_KIB,
    MOST_BEGINNINGS,
    READER_CACHE_KIB,
    ROWS_PER_PAGE,
    VARIABLES_PER_QUERY,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

SCHEMA_VERSION = 3
# M_MMAP_THRESHOLD in malloc.h.
_MMAP_THRESHOLD = -3
FILE_NAME = "profagent.db"
READER_SETTINGS = f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}; PRAGMA cache_size = -{READER_CACHE_KIB};"
# Page size of a new database. Batches append, so larger pages mean fewer of them for the disk and the cache.
PAGE_BYTES = 16_384
# A record's key is its part's number times this, plus its own number in the part.
RECORDS_PER_PART = 1 << 24
# SQL condition on a record's key: it belongs to `part p`.
OF_PART = f"BETWEEN p.part * {RECORDS_PER_PART} AND p.part * {RECORDS_PER_PART} + {RECORDS_PER_PART - 1}"
# SQL condition on `inference i`: its figures are known. In a JOB without a clock (`:clockless`), figures in ticks are
# known once all records are here.
KNOWN = "(i.figures = 'final' OR (i.whole AND :clockless))"

Row = tuple[Any, ...]
T = TypeVar("T")
C = TypeVar("C", bound=aiosqlite.Connection)


class _ThreadResult(asyncio.Future[T]):
    """Result that a connection's thread will deliver.

    A cancelled task still waits for the result, once; only then is it cancelled. So a transaction is never left to a
    thread that nobody waits for.
    """

    # True once a cancellation was refused; the next one is not.
    _was_cancelled = False

    def cancel(self, msg: object = None) -> bool:
        # asyncio cancels a task itself when it resumes, if the future that it waits for refuses.
        was_cancelled, self._was_cancelled = self._was_cancelled, True
        return was_cancelled and super().cancel(msg)


class Running(aiosqlite.Connection):
    """Connection whose thread can run one function of many statements.

    Each change of threads costs 0.1 ms of processor time.
    """

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Call a function with SQLite's own connection on its thread, wait for its end, and return its result."""
        if not self._running:
            raise ValueError("the connection is closed")
        answer: _ThreadResult[T] = _ThreadResult()
        # The library's own way, with a task that could be abandoned, would take three more turns of the loop.
        self._tx.put_nowait((answer, partial(function, self._conn)))
        return await answer


class Writing(Running):
    """Connection that writes; a batch is one function."""


class Part(Struct, frozen=True):
    """Part of a log: records from `first_record` on that `session` fetched."""

    number: int
    first_record: int
    session: int


@asynccontextmanager
async def writing(file: Path, *, durable: bool = True, scripts: Iterable[str] = ()) -> AsyncIterator[Writing]:
    """Open the database at `file` for writing, creating it if necessary; with `durable`, commits wait for the disk.

    Without it a loss of power may undo the newest commits, which is right for rows that can be made again. A new file
    is readable by its owner only. `scripts` create the tables of sources, which the schema lacks; they run each time.
    Foreign keys are declared but not enforced: the check of a deleted segment would search all records. Raises
    StoreError when the file cannot be opened or written, belongs to another program, or has another schema version.
    """
    try:
        make_private_folder(file.parent)
        with suppress(FileExistsError):
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
        connection = await _opened(Writing, file)
    except (OSError, sqlite3.Error) as error:
        raise _unusable(file, error) from error
    try:
        try:
            with _alone_in(file.parent):
                await _prepare(connection, file, durable=durable)
            for script in scripts:
                await connection.executescript(script)
        except sqlite3.Error as error:
            raise _unusable(file, error) from error
        try:
            yield connection
        except sqlite3.Error as error:
            raise refused(file, error) from error
    finally:
        # After a second Ctrl-C a function may still run with nobody waiting for it: interrupt it, and SQLite undoes it.
        await connection.interrupt()
        await connection.close()


@asynccontextmanager
async def in_memory(scripts: Iterable[str] = ()) -> AsyncIterator[Running]:
    """Open a database in memory, which exists as long as its connection. `scripts` as of `writing`."""
    connection = await _opened(Running, ":memory:")
    try:
        await _prepare(connection, Path(":memory:"), durable=False)
        for script in scripts:
            await connection.executescript(script)
        yield connection
    finally:
        await connection.interrupt()
        await connection.close()


@asynccontextmanager
async def reading(file: Path) -> AsyncIterator[Running]:
    """Open a read-only connection that sees one state of the database throughout.

    Raises StoreError when the file cannot be opened or read, or has another schema version.
    """
    async with readings(file, 1) as (connection,):
        yield connection


@asynccontextmanager
async def readings(file: Path, count: int) -> AsyncIterator[list[Running]]:
    """Open `count` read-only connections that see the same state, for use side by side. Errors as `reading`."""
    connections: list[Running] = []
    if count > 1:
        _return_memory()
    try:
        connections = await _begun(file, count)
        (version,) = await fetched_one(connections[0], "PRAGMA user_version")
        check_version(version, file)
        yield connections
    except sqlite3.Error as error:
        raise unreadable(file, error) from error
    finally:
        await _close(connections)


def _return_memory() -> None:
    """Have the C library return freed arrays above 1 MiB to the system, where it has a call for that.

    By default it keeps arrays of up to 32 MiB, and a command that reads millions of records would hold half as much
    again.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 1 << 20)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run a block in one transaction: commit at its end, roll back on any error or cancellation."""
    # Takes the write lock now: a transaction that reads first could not get it later.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite rolls back by itself when the disk is full.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


async def fetched(connection: aiosqlite.Connection, sql: str, parameters: Iterable[Any] = ()) -> list[Row]:
    """Return all rows of a query."""
    return [*await connection.execute_fetchall(sql, parameters)]  # type: ignore[list-item]


async def fetched_one(connection: aiosqlite.Connection, sql: str, parameters: Iterable[Any] = ()) -> Row:
    """Return the only row of a query."""
    (row,) = await fetched(connection, sql, parameters)
    return row


async def fetched_named(
    connection: aiosqlite.Connection, sql: str, parameters: Iterable[Any] = ()
) -> list[dict[str, Any]]:
    """Return all rows of a query as dictionaries by column name."""
    cursor = await connection.execute(sql, parameters)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in await cursor.fetchall()]


async def pages(connection: aiosqlite.Connection, sql: str, parameters: Any = ()) -> AsyncIterator[list[Row]]:
    """Yield the rows of a query that may have very many, a page at a time."""
    cursor = await connection.execute(sql, parameters)
    while page := [*await cursor.fetchmany(ROWS_PER_PAGE)]:
        yield page  # type: ignore[misc]


async def shrink(
    connection: aiosqlite.Connection, folder: Path, tell: Callable[[str], None], worthwhile: float
) -> None:
    """Rewrite the database without its free pages if these are at least this share of all.

    The copy needs room in the database's folder meanwhile; `tell` is called where there is none.
    """
    query = "SELECT * FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()"
    ((pages, free, size),) = await fetched(connection, query)
    if free < worthwhile * pages:
        return
    if shutil.disk_usage(folder).free < 2 * (pages - free) * size:
        tell(f"the database keeps {free * size / 2**20:.0f} MiB of unused space: the disk has no room to rewrite it")
        return
    await connection.execute("VACUUM")
    await connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def run_script(connection: sqlite3.Connection, script: str) -> None:
    """Run a script's statements, each of which ends its line, in the open transaction.

    SQLite's `executescript` would commit that transaction, and a reader would see another state from then on.
    """
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""


def fetched_of(connection: sqlite3.Connection, sql: str, first: Sequence[Any], values: Sequence[Any]) -> list[Row]:
    """Return the rows of a query for any number of values.

    The values replace `{}` in the text, behind the `first` parameters. SQLite limits the variables of a statement, so
    long lists take several queries.
    """
    rows: list[Row] = []
    for start in range(0, len(values), VARIABLES_PER_QUERY):
        page = values[start : start + VARIABLES_PER_QUERY]
        rows += connection.execute(sql.format(",".join("?" * len(page))), (*first, *page))
    return rows


def keys_of(part: int) -> tuple[int, int]:
    """Return the first and the last key that records of a part may have."""
    return part * RECORDS_PER_PART, (part + 1) * RECORDS_PER_PART - 1


def check_version(version: int, file: Path) -> None:
    """Raise StoreError if the database has another schema version than this profagent."""
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{file} has schema version {version}, this profagent has {SCHEMA_VERSION}", hint=made_anew(file)
        )


def refused(file: Path, error: sqlite3.Error) -> StoreError:
    """Return the error for a database that SQLite cannot write."""
    if is_full_database(error, file.parent):
        return disk_full(file)
    return StoreError(
        f"the database {file} cannot be used: {error}",
        hint="check the free space and the permissions, then call it again; committed data is safe",
    )


def made_anew(file: Path) -> str:
    """Return the shell command that rebuilds a workspace's database in a workspace beside it."""
    root, new = shlex.quote(str(file.parent)), shlex.quote(f"{file.parent}.new")
    return (
        f'for job in {root}/mirror/*/*; do profagent import -dir "$job" --workspace {new} --board "$(basename'
        ' "$(dirname "$job")")"; done  # makes it anew from the mirrors; labels, baselines and kept losses go'
    )


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder, so that one process at a time creates a database or sets up a connection."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


async def _prepare(connection: aiosqlite.Connection, file: Path, *, durable: bool) -> None:
    # Before all else: another process may be writing even now.
    await connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    ((version,),) = await fetched(connection, "PRAGMA user_version")
    ((tables,),) = await fetched(connection, "SELECT count(*) FROM sqlite_schema")
    if version:
        check_version(version, file)
    elif tables:
        raise StoreError(f"{file} is the database of another program", hint="name another workspace or file")
    for pragma in (
        f"page_size = {PAGE_BYTES}",
        f"journal_mode = {'WAL' if durable else 'OFF'}",
        f"synchronous = {'FULL' if durable else 'OFF'}",
        f"cache_size = -{CACHE_KIB}",
    ):
        await connection.execute(f"PRAGMA {pragma}")
    if not version:
        script = resources.files("profagent.store").joinpath("schema.sql").read_text("utf-8")
        await connection.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")


def _unusable(file: Path, error: Exception) -> StoreError:
    return StoreError(
        f"cannot open the database {file}: {error}", hint="check the path, its permissions and the free space"
    )


async def _begun(file: Path, count: int) -> list[Running]:
    """Return connections that have begun a transaction on the same state.

    They are opened again if another process wrote, or replaced the file, between the first and the last.
    """
    for _ in range(MOST_BEGINNINGS):
        connections: list[Running] = []
        try:
            inode = inode_of(file)
            for _ in range(count):
                connections.append(await _reader(read_only(file)))  # noqa: PERF401 - to close those that opened
            # A version that is the same before and after all BEGINs proves that no commit lies between them.
            before = [await data_version(connection) for connection in connections]
            for connection in connections:
                await connection.execute("BEGIN")
            if before == [await data_version(each) for each in connections] and inode_of(file) == inode:
                return connections
        except BaseException:
            await _close(connections)
            raise
        await _close(connections)
    raise sqlite3.OperationalError("it changes faster than two readers can open it")


async def _opened(kind: type[C], file: Path | str, **options: Any) -> C:
    connection = kind(partial(sqlite3.connect, file, isolation_level=None, **options), ROWS_PER_PAGE)
    try:
        await connection
    except BaseException:
        # The connection's thread ends by itself, but reports to the loop, which must still exist then.
        connection._thread.join()  # noqa: SLF001 - there is no other way to wait for it
        raise
    return connection


async def _reader(uri: str) -> Running:
    connection = await _opened(Running, uri, uri=True)
    try:
        await connection.executescript(READER_SETTINGS)
    except BaseException:
        await connection.close()
        raise
    return connection


def read_only(file: Path) -> str:
    """Return the URI of a database by which SQLite only reads it."""
    return f"{file.absolute().as_uri()}?mode=ro"


def inode_of(file: Path) -> int | None:
    """Return the inode of a file; None where there is none."""
    try:
        return file.stat().st_ino
    except OSError:
        return None


async def _close(connections: Iterable[aiosqlite.Connection]) -> None:
    """Close connections. A query that still runs is interrupted, because nobody waits for it."""
    for connection in connections:
        await connection.interrupt()
        await connection.close()


async def data_version(connection: aiosqlite.Connection) -> int:
    """Return a number that changes whenever another connection has written."""
    (version,) = await fetched_one(connection, "PRAGMA data_version")
    return int(version)


# Folders in which SQLite puts temporary files, unless the environment names one.
_TEMPORARY = ("/var/tmp", "/usr/tmp", "/tmp")  # noqa: S108 - nothing is made there here


def unreadable(file: Path, error: sqlite3.Error) -> StoreError:
    """Return the error for a database that SQLite cannot read."""
    hint = (
        "check the path and its permissions, or import the JOB again; `profagent doctor --workspace DIR` says how a"
        " workspace's is made anew"
    )
    if file.exists() and not os.access(file.parent, os.W_OK, effective_ids=True):
        hint = (
            f"SQLite writes beside a database that it reads: copy {file.parent} to where you may write, name the copy"
        )
    kind = StoreError
    named = *(os.environ.get(name) for name in ("SQLITE_TMPDIR", "TMPDIR")), *_TEMPORARY
    temporary = Path(next((each for each in named if each and os.access(each, os.W_OK | os.X_OK)), "."))
    if is_full_database(error, temporary):
        hint = f"make room in {temporary}, where SQLite has temporary files, or name another folder by SQLITE_TMPDIR"
        kind = DiskFullError
    return kind(f"cannot read the database {file}: {error}", hint=hint)


_ADD_JOB = "INSERT OR IGNORE INTO job (board, name, directory, state) VALUES (?, ?, ?, 'open')"
_SIMULATED_BEFORE = (
    "UPDATE session SET simulated = 1, (counter_map, counter_map_digest, counter_map_likely) ="
    " (SELECT s.counter_map, s.counter_map_digest, s.counter_map_likely"
    " FROM session s LEFT JOIN session_job j ON j.session = s.session AND job = ?2"
    " WHERE s.session = ?1 AND s.counter_map IS NOT NULL OR j.job IS NOT NULL AND s.simulated"
    " ORDER BY s.counter_map IS NULL, s.session <> ?1, s.counter_map DESC LIMIT 1) WHERE session = ?1"
    " AND EXISTS (SELECT 1 FROM log WHERE job = ?2 AND path = ?3 AND complete > 0)"
)


def join_job(connection: sqlite3.Connection, session: int, board: int, name: str, directory: str) -> int:
    """Return the number of a JOB, creating it if necessary and making it one of the session's.

    A session becomes simulated where the JOB is.
    """
    query = "SELECT job, EXISTS (SELECT 1 FROM session_job s WHERE s.session = ? AND s.job = job.job) FROM job"
    query, about = f"{query} WHERE board = ? AND name = ?", (session, board, name)
    found = connection.execute(query, about).fetchone()
    if found is None:
        connection.execute(_ADD_JOB, (board, name, directory))
        found = connection.execute(query, about).fetchone()
        connection.execute("INSERT INTO counter_bound VALUES (?, 0, 0)", found[:1])
    job, is_joined = found
    if not is_joined:
        connection.execute("INSERT INTO session_job VALUES (?, ?)", (session, job))
        connection.execute(_SIMULATED_BEFORE, (session, job, SIMULATED_MARKER))
    return int(job)
