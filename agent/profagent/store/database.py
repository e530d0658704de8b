"""Opening the SQLite file: its settings, its schema, one connection that writes and others that read."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import shlex
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
# M_MMAP_THRESHOLD of malloc.h.
_MMAP_THRESHOLD = -3
FILE_NAME = "profagent.db"
READER_SETTINGS = f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}; PRAGMA cache_size = -{READER_CACHE_KIB};"
# Of a new database. Batches append: with larger pages, fewer of them go to the disk and through the cache.
PAGE_BYTES = 16_384
# A record's key is its part's number times this, plus its own number in the part.
RECORDS_PER_PART = 1 << 24
# Of `part p`, the keys of its records.
OF_PART = f"BETWEEN p.part * {RECORDS_PER_PART} AND p.part * {RECORDS_PER_PART} + {RECORDS_PER_PART - 1}"
# Of `inference i`, for `:clockless` JOBs as well: without a clock, figures in ticks are known of whole inferences.
KNOWN = "(i.figures = 'final' OR (i.whole AND :clockless))"

Row = tuple[Any, ...]
T = TypeVar("T")
C = TypeVar("C", bound=aiosqlite.Connection)


class _Answer(asyncio.Future[T]):
    """What a thread is to give. A task that is cancelled waits for it nevertheless, once; then it is cancelled."""

    _was_cancelled = False

    def cancel(self, msg: object = None) -> bool:
        # A task that hears no is cancelled when it goes on.
        was_cancelled, self._was_cancelled = self._was_cancelled, True
        return was_cancelled and super().cancel(msg)


class Running(aiosqlite.Connection):
    """A connection on whose thread one function can do what takes many statements.

    Each change of threads takes 0.1 ms of a processor.
    """

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Let a function have SQLite's own connection, and let it finish; returns what it does."""
        if not self._running:
            raise ValueError("the connection is closed")
        answer: _Answer[T] = _Answer()
        # A task that waits for the library's own, and can be left to itself, would take three turns of the loop more.
        self._tx.put_nowait((answer, partial(function, self._conn)))
        return await answer


class Writing(Running):
    """The connection that writes: a batch by one function."""


class Part(Struct, frozen=True):
    """A part of a log: records from `first_record` on that `session` fetched."""

    number: int
    first_record: int
    session: int


@asynccontextmanager
async def writing(file: Path, *, durable: bool = True, scripts: Iterable[str] = ()) -> AsyncIterator[Writing]:
    """The database at `file`, made if need be; where it is `durable`, every commit is when it returns.

    What is made is for its owner alone. `scripts` make what sources need beside the schema; they run each time.
    Foreign keys are declared and not enforced: a deleted segment would be looked for in every record there is. Raises
    StoreError when it cannot be opened or written, is of another program, or has another schema.
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
        # What still runs when nobody waits for it, after a second Ctrl-C, is undone.
        await connection.interrupt()
        await connection.close()


@asynccontextmanager
async def in_memory(scripts: Iterable[str] = ()) -> AsyncIterator[Running]:
    """A database that goes with its connection, by which alone it can be read. `scripts` as of `writing`."""
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
    """A read-only connection that sees one state of the database all along.

    Raises StoreError when the file cannot be opened or read, or has another schema version.
    """
    async with readings(file, 1) as (connection,):
        yield connection


@asynccontextmanager
async def readings(file: Path, count: int) -> AsyncIterator[list[Running]]:
    """Read-only connections that see one and the same state, to be used side by side. Errors as `reading`."""
    connections: list[Running] = []
    if count > 1:
        _return_memory()
    try:
        connections = await _begun(file, count)
        (version,) = await fetched_one(connections[0], "PRAGMA user_version")
        check_version(version, file)
        yield connections
    except sqlite3.Error as error:
        raise _unreadable(file, error) from error
    finally:
        await _close(connections)


def _return_memory() -> None:
    """Have the C library give freed arrays of more than a MiB back to the system, where it has a call for that.

    It keeps arrays of up to 32 MiB by default, and a command that reads millions of records holds half as much again.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 1 << 20)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """What is written within is there as a whole when it ends, and nothing of it on any error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite has rolled back by itself when the disk is full.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


async def fetched(connection: aiosqlite.Connection, sql: str, parameters: Iterable[Any] = ()) -> list[Row]:
    """All rows of a query."""
    return [*await connection.execute_fetchall(sql, parameters)]  # type: ignore[list-item]


async def fetched_one(connection: aiosqlite.Connection, sql: str, parameters: Iterable[Any] = ()) -> Row:
    """The row of a query that has one."""
    (row,) = await fetched(connection, sql, parameters)
    return row


async def fetched_named(
    connection: aiosqlite.Connection, sql: str, parameters: Iterable[Any] = ()
) -> list[dict[str, Any]]:
    """All rows of a query, by column name."""
    cursor = await connection.execute(sql, parameters)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in await cursor.fetchall()]


async def pages(connection: aiosqlite.Connection, sql: str, parameters: Any = ()) -> AsyncIterator[list[Row]]:
    """The rows of a query that may have very many, a page at a time."""
    cursor = await connection.execute(sql, parameters)
    while page := [*await cursor.fetchmany(ROWS_PER_PAGE)]:
        yield page  # type: ignore[misc]


def run_script(connection: sqlite3.Connection, script: str) -> None:
    """Run the statements of a script, each of which ends its line, in the transaction that is open.

    SQLite's `executescript` ends that, and a reader would see another state from then on.
    """
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""


def fetched_of(connection: sqlite3.Connection, sql: str, first: Sequence[Any], values: Sequence[Any]) -> list[Row]:
    """Rows of a query for any number of values, which take the place of `{}` in it, after the `first` parameters."""
    rows: list[Row] = []
    for start in range(0, len(values), VARIABLES_PER_QUERY):
        page = values[start : start + VARIABLES_PER_QUERY]
        rows += connection.execute(sql.format(",".join("?" * len(page))), (*first, *page))
    return rows


def keys_of(part: int) -> tuple[int, int]:
    """Return the first and the last key that records of a part may have."""
    return part * RECORDS_PER_PART, (part + 1) * RECORDS_PER_PART - 1


def check_version(version: int, file: Path) -> None:
    """Raises StoreError where the database has another schema than this profagent's."""
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{file} has schema version {version}, this profagent has {SCHEMA_VERSION}", hint=made_anew(file)
        )


def refused(file: Path, error: sqlite3.Error) -> StoreError:
    """The error for a database that SQLite cannot write."""
    if is_full_database(error, file.parent):
        return disk_full(file)
    return StoreError(
        f"the database {file} cannot be used: {error}",
        hint="check the free space and the permissions, then call it again; what was committed before is safe",
    )


def made_anew(file: Path) -> str:
    """What to type so that a workspace's database is made anew, in a workspace beside it."""
    root, new = shlex.quote(str(file.parent)), shlex.quote(f"{file.parent}.new")
    return (
        f'for job in {root}/mirror/*/*; do profagent import -dir "$job" --workspace {new} --board "$(basename'
        ' "$(dirname "$job")")"; done  # makes it anew from the mirrors; labels, baselines and kept losses go'
    )


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Make a new database, or set up the connection to one, while no other process does."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


async def _prepare(connection: aiosqlite.Connection, file: Path, *, durable: bool) -> None:
    await connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    ((version,),) = await fetched(connection, "PRAGMA user_version")
    ((tables,),) = await fetched(connection, "SELECT count(*) FROM sqlite_schema")
    if version:
        check_version(version, file)
    elif tables:
        raise StoreError(f"{file} is a database of another program", hint="name another workspace or file")
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
    """Connections that have begun a transaction on one and the same state.

    They are opened anew where another process wrote, or put another file there, between the first and the last.
    """
    for _ in range(MOST_BEGINNINGS):
        connections: list[Running] = []
        try:
            inode = inode_of(file)
            for _ in range(count):
                connections.append(await _reader(read_only(file)))  # noqa: PERF401 - to close those that opened
            before = [await data_version(connection) for connection in connections]
            for connection in connections:
                await connection.execute("BEGIN")
            if before == [await data_version(each) for each in connections] and inode_of(file) == inode:
                return connections
        except BaseException:
            await _close(connections)
            raise
        await _close(connections)
    raise sqlite3.OperationalError("it never stays the same for two readers")


async def _opened(kind: type[C], file: Path | str, **options: Any) -> C:
    connection = kind(partial(sqlite3.connect, file, isolation_level=None, **options), ROWS_PER_PAGE)
    try:
        await connection
    except BaseException:
        # Its thread ends by itself and tells the loop, which must be there still.
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
    """A database's name for SQLite, by which nobody writes to it."""
    return f"{file.absolute().as_uri()}?mode=ro"


def inode_of(file: Path) -> int | None:
    """Which file it is; None where there is none."""
    try:
        return file.stat().st_ino
    except OSError:
        return None


async def _close(connections: Iterable[aiosqlite.Connection]) -> None:
    """A query that still runs is interrupted: nobody waits for it."""
    for connection in connections:
        await connection.interrupt()
        await connection.close()


async def data_version(connection: aiosqlite.Connection) -> int:
    """It changes for a connection when another one writes."""
    (version,) = await fetched_one(connection, "PRAGMA data_version")
    return int(version)


# Where SQLite has its temporary files, unless the environment names a folder.
_TEMPORARY = ("/var/tmp", "/usr/tmp", "/tmp")  # noqa: S108 - nothing is made there here


def _unreadable(file: Path, error: sqlite3.Error) -> StoreError:
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
    """Have a JOB, and have it be one of the session's, which is simulated where the JOB is; gives its number."""
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
