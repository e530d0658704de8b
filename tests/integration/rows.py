"""What a database says of one JOB, in a form in which a capture and an import can be compared."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from profagent.importing.importing import import_job
from tests.fakes.dumps import VIEWS, in_order, view_rows

Rows = dict[str, list[tuple[Any, ...]]]

_LEDGER = (
    "SELECT CAST(path AS TEXT), grade, reason, detail, first, last, count FROM ledger_entry"
    " JOIN job USING (job) LEFT JOIN log USING (log) WHERE name = ? AND origin {} 'link'"
)


def rows_of(database: Path, job: str) -> Rows:
    """The public views and the ledger's content, each in an order of its own."""
    with closing(sqlite3.connect(database)) as connection:
        found = {view: view_rows(connection, view, job) for view in VIEWS}
        found["ledger"] = in_order(connection.execute(_LEDGER.format("<>"), (job,)))
        return found


def link_ledger(database: Path, job: str) -> list[tuple[str | None, str, str]]:
    """What happened on the way: path, grade and reason."""
    with closing(sqlite3.connect(database)) as connection:
        return sorted((row[:3] for row in connection.execute(_LEDGER.format("="), (job,))), key=repr)


def imported_rows(job: Path, folder: Path) -> Rows:
    """What a plain import of a copy gives."""
    copy = Path(shutil.copytree(job, folder / job.name, symlinks=True))
    return rows_of(asyncio.run(import_job(copy)).database, job.name)


def query(database: Path, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Rows of any query."""
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(sql, parameters).fetchall()


def so_far(database: Path, sql: str) -> list[tuple[Any, ...]]:
    """Rows of a query of a database that is being written; none before it is made."""
    try:
        return query(database, sql) if database.exists() else []
    except sqlite3.OperationalError:
        return []
