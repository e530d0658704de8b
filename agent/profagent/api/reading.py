"""Tables of a database: views of a session, read as they are asked for, and the rows of a query."""

from __future__ import annotations

import shutil
import sqlite3
import time
import weakref
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, NamedTuple

from profagent.advise.advise import STEPS_BETWEEN_LOOKS
from profagent.api.table import Table
from profagent.errors import UsageError
from profagent.export.parquet import exported_views
from profagent.export.view_batches import columns_of, field_of, unit_of, view_batches
from profagent.store.columns import TABLES
from profagent.store.database import READER_SETTINGS, read_only, unreadable
from profagent.store.summary import records_in
from profagent.tables.arrow import Field

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from profagent.api.provenance import Provenance
    from profagent.ingest.source import View
    from profagent.tables.arrow import Batch, Kind


class TemporaryFolder:
    """Folder that is removed when nothing refers to it any more, or at the end of the process."""

    def __init__(self) -> None:
        self.path = Path(mkdtemp(prefix="profagent-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


class SessionDatabase(NamedTuple):
    """Database of a session; `folder` is the temporary one that the database is in, None if it is in no such one."""

    database: Path
    folder: TemporaryFolder | None = None


# What a statement of a user may do: read.
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})


# Functions that may take minutes in one step, in which nothing interrupts them, whatever the limit of a value.
_ENDLESS = frozenset({"printf", "format"})


def _only_reading(action: int, _: str | None, function: str | None, *__: str | None) -> int:
    is_endless = action == sqlite3.SQLITE_FUNCTION and function in _ENDLESS
    return sqlite3.SQLITE_OK if action in _ALLOWED and not is_endless else sqlite3.SQLITE_DENY


@contextmanager
def _opened(database: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for any thread, one at a time; the block sees one state of it. Raises StoreError."""
    try:
        connection = sqlite3.connect(read_only(database), uri=True, isolation_level=None, check_same_thread=False)
        try:
            connection.executescript(READER_SETTINGS)
            connection.execute("BEGIN")
            yield connection
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise unreadable(database, error) from error


def view_named(name: str) -> View:
    """Return a view of sessions."""
    return next(each for each in exported_views() if each.name == name)


def view_table(
    source: SessionDatabase, view: str, session: int, provenance: Provenance, names: Sequence[str] = ()
) -> Table:
    """Return these columns, or all, of a session's rows of a view. Raises UsageError for another column, StoreError."""
    found = view_named(view)
    with _opened(source.database) as connection:
        columns = columns_of(connection, found)
    if others := [name for name in names if name not in columns]:
        raise UsageError(f"{view} has no column {others[0]!r}", hint=f"it has {', '.join(columns)}")
    chosen = [*names] or columns
    fields = tuple(field_of(found, name) for name in chosen)
    return Table(
        fields,
        provenance,
        partial(_batches, source, found, session, chosen),
        partial(_count, source, found, session),
    )


def _batches(source: SessionDatabase, view: View, session: int, names: Sequence[str]) -> Iterator[Batch]:
    with _opened(source.database) as connection:
        yield from view_batches(connection, view, session, names)


def _count(source: SessionDatabase, view: View, session: int) -> int:
    with _opened(source.database) as connection:
        if view.unit is not None:
            return records_in(connection, session, TABLES[view.unit])
        query = f"SELECT count(*) FROM {view.name} WHERE session = ?"  # noqa: S608 - a name of ours
        (count,) = connection.execute(query, (session,)).fetchone()
        return int(count)


class QueryBounds(NamedTuple):
    """Bounds of a query: bytes of a value; if not None, seconds that it may take, and rows that are read."""

    value_bytes: int
    seconds: float | None = None
    rows: int | None = None


def query_table(
    database: Path,
    query: str,
    parameters: Mapping[str, Any],
    provenance: Provenance,
    bounds: QueryBounds,
) -> Table:
    """Return the rows of a query that only reads. Raises UsageError for any other or a too long one, StoreError."""
    with _opened(database) as connection:
        if bounds.seconds is not None:
            until_s = time.monotonic() + bounds.seconds
            connection.set_progress_handler(lambda: time.monotonic() > until_s, STEPS_BETWEEN_LOOKS)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, bounds.value_bytes)
        connection.set_authorizer(_only_reading)
        try:
            cursor = connection.execute(query, parameters)
            rows = cursor.fetchall() if bounds.rows is None else cursor.fetchmany(bounds.rows)
        except (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeError) as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
                raise UsageError(
                    f"the query takes more than {bounds.seconds:g} s",
                    hint="ask for less: of one session, of one model, or without a recursion",
                ) from error
            raise UsageError(
                f"the query fails: {error}",
                hint="it may be one SELECT of views (docs/reference/database.md); :session is the session's number",
            ) from error
        if cursor.description is None:
            raise UsageError("the query is empty", hint="write one SELECT of views (docs/reference/database.md)")
        names = [each[0] for each in cursor.description]
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    fields = [Field(name, _kind_of(values), unit_of(name)) for name, values in zip(names, columns, strict=True)]
    return Table.of_rows(fields, [[*map(_cell, row)] for row in rows], provenance)


def _kind_of(values: Sequence[Any]) -> Kind:
    kinds = {type(each) for each in values} - {type(None)}
    if not kinds <= {int, float}:
        return "text"
    return "int64" if kinds == {int} else "float64"


def _cell(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value
