"""Export of one session as a database with the same tables and views, for sqlite3 and for `--workspace`."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from profagent.errors import StoreError, UsageError
from profagent.export.formats import Written
from profagent.export.session_metadata import session_to_export
from profagent.files import make_directory, to_the_end, written_atomically
from profagent.store.database import read_only, reading
from profagent.store.subset import copied

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


async def export_sqlite(database: Path, file: Path, session: int | None = None) -> Written:
    """Write a session (None: the newest) as a database, whose table `export` has the metadata.

    Sessions that share a JOB with it are written too. Raises UsageError, StoreError, and ProfagentError if the file
    cannot be written.
    """
    async with reading(database) as connection:
        row, metadata = await session_to_export(connection, session)
    make_directory(file.parent)
    _require_export(file)
    try:
        with written_atomically(file, over_database=True) as out:
            # A cancelled export waits for the thread, which still writes into the file.
            sessions = await to_the_end(_copy, database, str(out.name), row.session, metadata)
    except sqlite3.Error as error:
        hint = "check the path, its permissions and the free space"
        raise StoreError(f"cannot write the database {file}: {error}", hint=hint) from error
    return Written(file, metadata, also=[session for session in sessions if session != row.session])


def _require_export(file: Path) -> None:
    """Raise UsageError if the file is a database that no export wrote, as a workspace's is."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(read_only(file), uri=True)) as there:
        names = {name for (name,) in there.execute("SELECT name FROM sqlite_schema")}
        if names and "export" not in names:
            raise UsageError(f"{file} is a database, and not an exported session", hint="name another file")


def _copy(database: Path, target: str, session: int, metadata: Mapping[str, Any]) -> list[int]:
    with copied(database, target, session) as (connection, sessions):
        connection.execute("CREATE TABLE export (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
        rows = [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in metadata.items()]
        connection.executemany("INSERT INTO export VALUES (?, ?)", rows)
    return sessions
