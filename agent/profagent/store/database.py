"""Opening the SQLite file: its settings, its schema, one connection that writes and others that read."""

from __future__ import annotations

import os
import shlex
import sqlite3
from contextlib import asynccontextmanager, closing, suppress
from importlib import resources
from typing import TYPE_CHECKING, Any

import aiosqlite

from profagent.errors import StoreError
from profagent.files import PRIVATE_FILE, make_private_folder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Sequence
    from pathlib import Path

SCHEMA_VERSION = 1
FILE_NAME = "profagent.db"
BUSY_TIMEOUT_MS = 10_000
CACHE_KIB = 32_768
# SQLite's own limit of variables in a statement is above.
VARIABLES_PER_QUERY = 10_000

Row = tuple[Any, ...]


@asynccontextmanager
async def writing(file: Path, *, durable: bool = True) -> AsyncIterator[aiosqlite.Connection]:
    """The database at `file`, made if need be; where it is `durable`, every commit is when it returns.

    What is made is for its owner alone. Foreign keys are declared and not enforced: a deleted segment would be looked
    for in every record there is. Raises StoreError when it cannot be opened, is of another program, or has another
    schema.
    """
    try:
        make_private_folder(file.parent)
        with suppress(FileExistsError):
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
        connection = await aiosqlite.connect(file, isolation_level=None)
    except (OSError, sqlite3.Error) as error:
        raise _unusable(file, error) from error
    try:
        try:
            await _prepare(connection, file, durable=durable)
        except sqlite3.Error as error:
            raise _unusable(file, error) from error
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def transaction(connection: aiosqlite.Connection) -> AsyncIterator[None]:
    """What is written within is there as a whole when it ends, and nothing of it on any error."""
    await connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        await connection.execute("COMMIT")
    except BaseException:
        # SQLite has rolled back by itself when the disk is full.
        if connection.in_transaction:
            await connection.execute("ROLLBACK")
        raise


async def fetched(connection: aiosqlite.Connection, sql: str, parameters: Iterable[Any] = ()) -> list[Row]:
    """All rows of a query."""
    return [*await connection.execute_fetchall(sql, parameters)]  # type: ignore[list-item]


async def fetched_of(
    connection: aiosqlite.Connection, sql: str, first: Sequence[Any], values: Sequence[Any]
) -> list[Row]:
    """Rows of a query for any number of values, which take the place of `{}` in it, after the `first` parameters."""
    rows: list[Row] = []
    for start in range(0, len(values), VARIABLES_PER_QUERY):
        page = values[start : start + VARIABLES_PER_QUERY]
        rows += await fetched(connection, sql.format(",".join("?" * len(page))), (*first, *page))
    return rows


async def put(connection: aiosqlite.Connection, sql: str, rows: Collection[Sequence[Any]]) -> None:
    """A statement for each of these rows."""
    if rows:
        await connection.executemany(sql, rows)


def schema_version(file: Path) -> int | None:
    """The version of a database's schema; None where it cannot be read."""
    with suppress(sqlite3.Error), closing(connect_reading(file)) as connection:
        return version_of(connection)
    return None


def check_version(version: int, file: Path) -> None:
    """Raises StoreError where the database has another schema than this profagent's."""
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{file} has schema version {version}, this profagent has {SCHEMA_VERSION}", hint=made_anew(file)
        )


def made_anew(file: Path) -> str:
    """What to type so that a workspace's database is made anew, in a workspace beside it."""
    root, new = shlex.quote(str(file.parent)), shlex.quote(f"{file.parent}.new")
    return (
        f'for job in {root}/mirror/*/JOB*; do profagent import -dir "$job" --workspace {new} --board "$(basename'
        ' "$(dirname "$job")")"; done  # makes it anew from the mirrors, without labels and baselines'
    )


async def _prepare(connection: aiosqlite.Connection, file: Path, *, durable: bool) -> None:
    await connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    ((version,),) = await fetched(connection, "PRAGMA user_version")
    ((tables,),) = await fetched(connection, "SELECT count(*) FROM sqlite_schema")
    if version:
        check_version(version, file)
    elif tables:
        raise StoreError(f"{file} is a database of another program", hint="name another workspace or file")
    for pragma in (
        f"journal_mode = {'WAL' if durable else 'OFF'}",
        f"synchronous = {'FULL' if durable else 'OFF'}",
        f"cache_size = -{CACHE_KIB}",
    ):
        await connection.execute(f"PRAGMA {pragma}")
    if not version:
        script = resources.files("profagent.store").joinpath("schema.sql").read_text("utf-8")
        await connection.executescript(f"BEGIN IMMEDIATE; {script}; COMMIT;")


def connect_reading(file: Path) -> sqlite3.Connection:
    """A read-only connection. Raises sqlite3.Error."""
    connection = sqlite3.connect(
        f"{file.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
    )
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    return connection


def version_of(connection: sqlite3.Connection) -> int:
    """The version of its schema; 0 where it has none."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _unusable(file: Path, error: Exception) -> StoreError:
    return StoreError(
        f"cannot open the database {file}: {error}", hint="check the path, its permissions and the free space"
    )
