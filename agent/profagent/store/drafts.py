"""Drafts: a database for one new session, which one transaction then copies into another database, the store.

The writer of a draft needs no lock and may fail: nothing of an unfinished draft reaches the store. If the store is
known from the start, it is part of the draft's transaction, and very numerous rows go there directly.
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
from profagent.store.subset import copy_sessions, last_numbers

if TYPE_CHECKING:
    from pathlib import Path

# Names of the two databases in the statements of a draft's connection.
DRAFT, STORE = "main", "store"


def new_draft(file: Path, store: Path | None) -> sqlite3.Connection:
    """Return a connection to an empty draft, in a transaction, with the store attached if it is known.

    Closing the connection without COMMIT discards the draft.
    """
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    for pragma in (
        f"page_size = {PAGE_BYTES}",
        "journal_mode = OFF",
        "synchronous = OFF",
        f"cache_size = -{CACHE_KIB}",
    ):
        connection.execute(f"PRAGMA {pragma}")
    # The same schema as the store's, so that rows can be copied column by column.
    script = resources.files("profagent.store").joinpath("schema.sql").read_text("utf-8")
    connection.executescript("\n".join([script, *(f"{schema};" for schema in schemas())]))
    _begin(connection, store)
    return connection


def take_over_file(draft: Path, store: Path) -> int:
    """Copy a draft that was written without the store into it; return the session's number there."""
    with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
        _begin(connection, store)
        session = take_over(connection)
        connection.execute("COMMIT")
        return session


def _begin(connection: sqlite3.Connection, store: Path | None) -> None:
    if store is not None:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        # As bytes: a path need not be valid text.
        connection.execute(f"ATTACH ? AS {STORE}", (os.fsencode(store),))
        for pragma in ("synchronous = FULL", f"cache_size = -{CACHE_KIB}"):
            connection.execute(f"PRAGMA {STORE}.{pragma}")
    connection.execute("BEGIN IMMEDIATE")


def take_over(connection: sqlite3.Connection) -> int:
    """Copy the draft's session into the store, in the open transaction; return its number there."""
    _name_apart(connection)
    session = last_numbers(connection, STORE)["session"] + 1
    copy_sessions(connection, DRAFT, STORE, [1])
    return session


def _name_apart(connection: sqlite3.Connection) -> None:
    ((job, name),) = connection.execute(f"SELECT job, name FROM {DRAFT}.job").fetchall()  # noqa: S608 - names of databases
    names = connection.execute(
        f"SELECT j.name FROM {STORE}.job j JOIN {STORE}.board USING (board)"  # noqa: S608 - as above
        f" WHERE identity = (SELECT identity FROM {DRAFT}.board)"
    )
    taken = {each for (each,) in names}
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}~{number}"
    connection.execute(f"UPDATE {DRAFT}.job SET name = ? WHERE job = ?", (free, job))  # noqa: S608 - as above
