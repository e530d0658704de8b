"""A draft: a database of its own for one session, which one transaction takes over into another database.

Whoever makes it needs no lock and may fail: nothing of a draft that is not whole comes into the store.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from importlib import resources
from typing import TYPE_CHECKING

from profagent.files import PRIVATE_FILE
from profagent.ingest.decoder import schemas
from profagent.store.database import CACHE_KIB, PAGE_BYTES, fetched, fetched_one, transaction

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import aiosqlite

# Of each table: the columns that number rows of a table, which another database numbers anew.
_NUMBERS: dict[str, tuple[str, ...]] = {
    "session": ("session",),
    "session_label": ("session",),
    "job": ("job",),
    "session_job": ("session", "job"),
    "model": ("model", "job"),
    "layer": ("model",),
    "log": ("log", "job", "model"),
    "part": ("part", "log", "session"),
    "inference": ("inference", "session", "model"),
    "segment": ("segment", "log", "inference"),
    "aicore": ("segment",),
    "ledger_entry": ("entry", "session", "job", "log"),
    "figure": ("session",),
    "ascend_file": ("log", "session"),
    "ascend_block": ("log", "session"),
}
_COUNTED = ("session", "job", "model", "log", "part", "inference", "segment", "entry")
_TABLE_OF = {"entry": "ledger_entry"}


def new_draft(file: Path) -> sqlite3.Connection:
    """An empty draft, in a transaction; who closes it without COMMIT has made none."""
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    for pragma in (
        f"page_size = {PAGE_BYTES}",
        "journal_mode = OFF",
        "synchronous = OFF",
        f"cache_size = -{CACHE_KIB}",
    ):
        connection.execute(f"PRAGMA {pragma}")
    script = resources.files("profagent.store").joinpath("schema.sql").read_text("utf-8")
    connection.executescript("\n".join([script, *(f"{schema};" for schema in schemas())]))
    connection.execute("BEGIN")
    return connection


async def take_over(connection: aiosqlite.Connection, draft: Path) -> int:
    """Bring a draft into the database, as a whole or not at all; returns the session's number there."""
    await connection.execute("ATTACH ? AS draft", (f"{draft}",))
    try:
        async with transaction(connection):
            return await _take_over(connection)
    finally:
        await asyncio.shield(connection.execute("DETACH draft"))


async def _take_over(connection: aiosqlite.Connection) -> int:
    (board,) = await fetched_one(
        connection,
        "INSERT INTO main.board (identity, hostname, model) SELECT identity, hostname, model FROM draft.board"
        " WHERE true ON CONFLICT (identity) DO UPDATE SET hostname = ifnull(nullif(excluded.hostname, ''), hostname)"
        " RETURNING board",
    )
    await _name_apart(connection, board)
    before = {name: await _last(connection, name) for name in _COUNTED}
    for table, numbers in _NUMBERS.items():
        columns = [row[1] for row in await fetched(connection, f"PRAGMA draft.table_info({table})")]
        taken = (_value(table, column, numbers, before, board) for column in columns)
        await connection.execute(
            f"INSERT INTO main.{table} ({', '.join(columns)}) SELECT {', '.join(taken)} FROM draft.{table}"  # noqa: S608 - names of the schema
        )
    return before["session"] + 1


async def _last(connection: aiosqlite.Connection, name: str) -> int:
    (last,) = await fetched_one(connection, f"SELECT ifnull(max({name}), 0) FROM main.{_TABLE_OF.get(name, name)}")  # noqa: S608 - as above
    return int(last)


def _value(table: str, column: str, numbers: Iterable[str], before: dict[str, int], board: int) -> str:
    if column == "board":
        return str(board)
    if (table, column) == ("aicore", "record"):
        return f"record + ({before['part']} << 24)"
    return f"{column} + {before[column]}" if column in numbers else column


async def _name_apart(connection: aiosqlite.Connection, board: int) -> None:
    """A collection's name is its board's only one: another directory of that name is numbered."""
    ((job, name),) = await fetched(connection, "SELECT job, name FROM draft.job")
    taken = {each for (each,) in await fetched(connection, "SELECT name FROM main.job WHERE board = ?", (board,))}
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}~{number}"
    await connection.execute("UPDATE draft.job SET name = ? WHERE job = ?", (free, job))
