"""One session as a database of its own, with the same tables and views: for sqlite3, and for `--workspace`."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import aiosqlite

from profagent.errors import StoreError, UsageError
from profagent.export.formats import Written
from profagent.export.told import session_to_export
from profagent.files import make_directory, written_atomically
from profagent.store.database import PAGE_BYTES, SCHEMA_VERSION, fetched, read_only, reading

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SCHEMA = """
SELECT type, name, sql FROM source.sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'
ORDER BY type = 'view', type <> 'table', rowid
"""
_JOBS = "(SELECT job FROM source.session_job WHERE session = :session)"
_MODELS = f"(SELECT model FROM source.model WHERE job IN {_JOBS})"  # noqa: S608 - constants, as all below
_INFERENCES = "(SELECT inference FROM source.inference WHERE session = :session)"
# What of a table is the session's; a table that is not named here has a column for it.
_OURS = {
    "board": "board = (SELECT board FROM source.session WHERE session = :session)",
    "job": f"job IN {_JOBS}",
    "model": f"job IN {_JOBS}",
    "log": f"job IN {_JOBS}",
    "counter_bound": f"job IN {_JOBS}",
    "layer": f"model IN {_MODELS}",
    "sample": f"model IN {_MODELS}",
    "segment": f"inference IN {_INFERENCES}",
    "kept_loss": "entry IN (SELECT entry FROM source.ledger_entry WHERE session = :session)",
    "metric_name": f"log IN (SELECT log FROM source.log WHERE job IN {_JOBS})",  # noqa: S608 - as above
    "api_name": "1",
}
_RECORDS = ("aicore", "aicpu", "api")
# CROSS JOIN keeps the order of the loops: parts first.
_COPY_RECORDS = """
INSERT INTO main.{table} SELECT r.* FROM source.part p
CROSS JOIN source.{table} r ON r.record BETWEEN p.part << 24 AND (p.part << 24) + 0xFFFFFF WHERE p.session = :session
"""


async def export_sqlite(database: Path, file: Path, session: int | None = None) -> Written:
    """Write a session (None: the newest) as a database, which has its metadata in the table `export`.

    Raises UsageError, StoreError, and ProfagentError where it cannot be written.
    """
    async with reading(database) as connection:
        row, metadata = await session_to_export(connection, session)
    make_directory(file.parent)
    _require_export(file)
    try:
        with written_atomically(file, over_database=True) as out:
            await _copy(database, str(out.name), row.session, metadata)
    except sqlite3.Error as error:
        hint = "check the path, its permissions and the free space"
        raise StoreError(f"cannot write the database {file}: {error}", hint=hint) from error
    return Written(file, metadata)


def _require_export(file: Path) -> None:
    """A database that is there may be replaced when it is a session as a file; a workspace's is not."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(read_only(file), uri=True)) as there:
        names = {name for (name,) in there.execute("SELECT name FROM sqlite_schema")}
        if names and "export" not in names:
            raise UsageError(f"{file} is a database, and no session as a file", hint="name another file")


async def _copy(database: Path, target: str, session: int, metadata: Mapping[str, Any]) -> None:
    async with aiosqlite.connect(target, isolation_level=None, uri=True) as connection:
        for pragma in (f"page_size = {PAGE_BYTES}", "journal_mode = OFF", "synchronous = OFF"):
            await connection.execute(f"PRAGMA {pragma}")
        await connection.execute("ATTACH ? AS source", (read_only(database),))
        await connection.execute("BEGIN")
        tables = []
        for kind, name, sql in await fetched(connection, _SCHEMA):
            await connection.execute(sql)
            tables += [name] if kind == "table" else []
        for name in tables:
            await connection.execute(_copying(name), {"session": session})
        await connection.execute("CREATE TABLE export (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
        told = [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in metadata.items()]
        await connection.executemany("INSERT INTO export VALUES (?, ?)", told)
        await connection.execute("COMMIT")
        await connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _copying(table: str) -> str:
    if table in _RECORDS:
        return _COPY_RECORDS.format(table=table)
    return f"INSERT INTO main.{table} SELECT * FROM source.{table} WHERE {_OURS.get(table, 'session = :session')}"  # noqa: S608
