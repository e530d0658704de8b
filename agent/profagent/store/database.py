"""Opening the SQLite file: its settings, its schema and its migrations."""

from __future__ import annotations

import sqlite3
from importlib import resources
from typing import TYPE_CHECKING

from profagent.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_VERSION = 1
FILE_NAME = "profagent.db"
BUSY_TIMEOUT_MS = 10_000
CACHE_KIB = 32_768


def open_for_writing(file: Path, *, durable: bool = True) -> sqlite3.Connection:
    """The database at `file`, made or brought up to date; where it is `durable`, every commit is when it returns.

    Raises StoreError when it cannot be opened or was written by a newer profagent.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        connection.execute(f"PRAGMA journal_mode = {'WAL' if durable else 'OFF'}")
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        _bring_up_to_date(connection, file)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(
            f"cannot open the database {file}: {error}", hint="check the path, its permissions and the free space"
        ) from error
    return connection


def _bring_up_to_date(connection: sqlite3.Connection, file: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{file} has schema version {version}, this profagent knows {SCHEMA_VERSION}",
            hint="use the newer profagent that wrote it",
        )
    if version == 0:
        connection.executescript(f"BEGIN IMMEDIATE; {_script('schema.sql')}; COMMIT;")
        return
    for number in range(version + 1, SCHEMA_VERSION + 1):
        connection.executescript(f"BEGIN IMMEDIATE; {_script(f'migrations/{number:04}.sql')}; COMMIT;")


def _script(name: str) -> str:
    return resources.files("profagent.store").joinpath(name).read_text("utf-8")
