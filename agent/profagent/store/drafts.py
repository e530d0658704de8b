"""A draft: a database of its own for one session, which one transaction takes over into another database, the store.

Whoever makes it needs no lock and may fail: nothing of a draft that is not whole comes into the store.
Where the store is known from the start, it is in the draft's transaction, and rows that are very many go there at once.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from importlib import resources
from typing import TYPE_CHECKING

from profagent.files import PRIVATE_FILE
from profagent.ingest.source import schemas
from profagent.limits import BUSY_TIMEOUT_MS, CACHE_KIB
from profagent.store.database import PAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

# What both databases are called in the statements of a draft's connection.
DRAFT, STORE = "main", "store"
# Of each table: the columns that number rows of a table, which the store numbers anew.
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
TABLES = tuple(_NUMBERS)
COUNTED = ("session", "job", "model", "log", "part", "inference", "segment", "entry")
_TABLE_OF = {"entry": "ledger_entry"}


def new_draft(file: Path, store: Path | None) -> sqlite3.Connection:
    """An empty draft, in a transaction, with the store if that is known; who closes it without COMMIT has made none."""
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
    _begin(connection, store)
    return connection


def take_over_file(draft: Path, store: Path) -> int:
    """Bring a draft that was made without it into the store; returns the session's number there."""
    with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
        _begin(connection, store)
        session = take_over(connection)
        connection.execute("COMMIT")
        return session


def _begin(connection: sqlite3.Connection, store: Path | None) -> None:
    if store is not None:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        # A path need not be text.
        connection.execute(f"ATTACH ? AS {STORE}", (os.fsencode(store),))
        for pragma in ("synchronous = FULL", f"cache_size = -{CACHE_KIB}"):
            connection.execute(f"PRAGMA {STORE}.{pragma}")
    connection.execute("BEGIN IMMEDIATE")


def take_over(connection: sqlite3.Connection) -> int:
    """Bring all rows of the draft into the store, in the transaction that goes on; the session's number there."""
    ((board,),) = connection.execute(
        f"INSERT INTO {STORE}.board (identity, hostname, model) SELECT identity, hostname, model FROM {DRAFT}.board"  # noqa: S608 - names of databases
        " WHERE true ON CONFLICT (identity) DO UPDATE SET hostname = ifnull(nullif(excluded.hostname, ''), hostname)"
        " RETURNING board",
    ).fetchall()
    _name_apart(connection, board)
    before = last_numbers(connection)
    for table, numbers in _NUMBERS.items():
        columns = [row[1] for row in connection.execute(f"PRAGMA {DRAFT}.table_info({table})")]
        taken = (_value(table, column, numbers, before, board) for column in columns)
        connection.execute(
            f"INSERT INTO {STORE}.{table} ({', '.join(columns)}) SELECT {', '.join(taken)} FROM {DRAFT}.{table}"  # noqa: S608 - names of the schema
        )
    return before["session"] + 1


def last_numbers(connection: sqlite3.Connection) -> dict[str, int]:
    """The greatest number of each kind in the store: those of the draft come behind it."""
    found = {}
    for name in COUNTED:
        sql = f"SELECT ifnull(max({name}), 0) FROM {STORE}.{_TABLE_OF.get(name, name)}"  # noqa: S608 - as above
        (found[name],) = connection.execute(sql).fetchone()
    return found


def _value(table: str, column: str, numbers: Iterable[str], before: Mapping[str, int], board: int) -> str:
    if column == "board":
        return str(board)
    if (table, column) == ("aicore", "record"):
        return f"record + ({before['part']} << 24)"
    return f"{column} + {before[column]}" if column in numbers else column


def _name_apart(connection: sqlite3.Connection, board: int) -> None:
    """A collection's name is its board's only one: another directory of that name is numbered."""
    ((job, name),) = connection.execute(f"SELECT job, name FROM {DRAFT}.job").fetchall()  # noqa: S608 - as above
    names = connection.execute(f"SELECT name FROM {STORE}.job WHERE board = ?", (board,))  # noqa: S608 - as above
    taken = {each for (each,) in names}
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}~{number}"
    connection.execute(f"UPDATE {DRAFT}.job SET name = ? WHERE job = ?", (free, job))  # noqa: S608 - as above
