"""Rows that a view has of a session in columns, whose types are those that the view's source declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.export.record_batches import KEYS, record_batches
from profagent.limits import ROWS_PER_PAGE
from profagent.tables.arrow import ArrowStream, Field, columns_from

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from profagent.ingest.source import View
    from profagent.tables.arrow import Batch, Kind

# Units of columns by the end of their name; other columns have none.
_UNITS = {"_us": "us", "_bytes": "bytes", "ticks": "ticks", "ticks_before": "ticks", "_mhz": "MHz"}


def columns_of(connection: sqlite3.Connection, view: View) -> list[str]:
    """Return the names of a view's columns, in its order."""
    return [row[1] for row in connection.execute(f"PRAGMA table_info({view.name})")]


def view_batches(connection: sqlite3.Connection, view: View, session: int, names: Sequence[str]) -> Iterator[Batch]:
    """Yield these columns of the rows that a view has of a session, in bounded batches."""
    fields = [field_of(view, name) for name in names]
    if view.unit is not None:
        yield from record_batches(connection, view.unit, session, fields)
        return
    query = f"SELECT {', '.join(names)} FROM {view.name} WHERE session = ?"  # noqa: S608 - names of ours
    cursor = connection.execute(query, (session,))
    while rows := cursor.fetchmany(ROWS_PER_PAGE):
        yield columns_from(fields, rows)


def view_stream(connection: sqlite3.Connection, view: View, session: int, names: Sequence[str]) -> ArrowStream:
    """Return these columns of the rows that a view has of a session, for a reader of Arrow on any thread."""
    return ArrowStream([field_of(view, name) for name in names], lambda: view_batches(connection, view, session, names))


def field_of(view: View, column: str) -> Field:
    """Return the name, type and unit of a column of a view, or of one of KEYS."""
    return Field(column, _kind_of(view, column), "bytes" if column in view.in_bytes else unit_of(column))


def unit_of(column: str) -> str:
    """Return the unit that a column's name tells; empty for none."""
    return next((unit for end, unit in _UNITS.items() if column.endswith(end)), "")


def _kind_of(view: View, column: str) -> Kind:
    if column in view.unsigned:
        return "uint64"
    if column == "session" or column in view.whole or column in KEYS:
        return "int64"
    if column in view.fractions or column.endswith("_us"):
        return "float64"
    # Millions of records share the names of some layers.
    return "text" if view.unit is None else "category"
