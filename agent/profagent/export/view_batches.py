"""Rows that a view has of a session as Arrow batches, whose columns have the types that the view's source declares."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from profagent.export.record_batches import record_batches
from profagent.limits import ROWS_PER_PAGE

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from profagent.ingest.source import View


def columns_of(connection: sqlite3.Connection, view: View) -> list[str]:
    """Return the names of a view's columns, in its order."""
    return [row[1] for row in connection.execute(f"PRAGMA table_info({view.name})")]


def view_batches(
    connection: sqlite3.Connection, view: View, session: int, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield these columns of the rows that a view has of a session, in bounded batches."""
    if view.unit is not None:
        yield from record_batches(connection, view.unit, session, names, partial(_array, view))
        return
    query = f"SELECT {', '.join(names)} FROM {view.name} WHERE session = ?"  # noqa: S608 - names of ours
    cursor = connection.execute(query, (session,))
    while rows := cursor.fetchmany(ROWS_PER_PAGE):
        columns = zip(names, zip(*rows, strict=True), strict=True)
        yield pa.RecordBatch.from_arrays([_array(view, name, values) for name, values in columns], names)


def type_of(view: View, column: str) -> pa.DataType:
    """Return the Arrow type of a column."""
    if column in view.unsigned:
        return pa.uint64()
    if column == "session" or column in view.whole:
        return pa.int64()
    return pa.float64() if column in view.fractions or column.endswith("_us") else pa.string()


def _array(view: View, name: str, values: Sequence[Any]) -> pa.Array:
    # SQLite has no unsigned 64-bit integers, so the store holds these numbers as texts.
    if name in view.unsigned:
        values = [int(value) for value in values]
    elif name in view.mixed:
        values = [None if value is None else str(value) for value in values]
    return pa.array(values, type_of(view, name))
