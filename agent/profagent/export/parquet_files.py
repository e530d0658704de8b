"""One Parquet file: the rows that a view has of a session, by columns, in groups of ROWS_PER_GROUP."""

from __future__ import annotations

import json
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import parquet

from profagent.export.record_batches import record_batches
from profagent.files import make_directory, written_atomically
from profagent.limits import ROWS_PER_GROUP, ROWS_PER_PAGE

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from profagent.ingest.source import View

# A partition's name says it.
_PARTITIONED = "board"


def write_view(
    connection: sqlite3.Connection, view: View, session: int, file: Path, metadata: Mapping[str, Any]
) -> int:
    """Write a view's rows, if it has any, and return how many.

    Raises ProfagentError where the file cannot be written.
    """
    found = connection.execute(f"PRAGMA table_info({view.name})").fetchall()
    names = [row[1] for row in found if row[1] != _PARTITIONED]
    told = {name: value if isinstance(value, str) else json.dumps(value) for name, value in metadata.items()}
    if view.unit is None:
        batches = _batches(connection, view, session, names)
    else:
        batches = record_batches(connection, view.unit, session, names, partial(_array, view))
    first = next(batches, None)
    if first is None:
        return 0
    make_directory(file.parent)
    rows = 0
    with (
        written_atomically(file) as out,
        # What is a dictionary here is a text for every reader.
        parquet.ParquetWriter(out, first.schema, compression="zstd", store_schema=False) as writer,
    ):
        writer.add_key_value_metadata(told)
        for group in _groups(chain([first], batches)):
            writer.write_table(group, row_group_size=len(group))
            rows += len(group)
    return rows


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches together until there are enough for a group of rows, which is the unit of reading."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= ROWS_PER_GROUP:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


def _batches(
    connection: sqlite3.Connection, view: View, session: int, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    cursor = connection.execute(f"SELECT {', '.join(names)} FROM {view.name} WHERE session = ?", (session,))  # noqa: S608 - names of ours
    while rows := cursor.fetchmany(ROWS_PER_PAGE):
        columns = zip(names, zip(*rows, strict=True), strict=True)
        yield pa.RecordBatch.from_arrays([_array(view, name, values) for name, values in columns], names)


def _array(view: View, name: str, values: Sequence[Any]) -> pa.Array:
    """Values of a column as the database has them, as those of its type."""
    if name in view.unsigned:
        values = [int(value) for value in values]
    elif name in view.mixed:
        values = [None if value is None else str(value) for value in values]
    return pa.array(values, _type(view, name))


def _type(view: View, column: str) -> pa.DataType:
    if column in view.unsigned:
        return pa.uint64()
    if column == "session" or column in view.whole:
        return pa.int64()
    return pa.float64() if column in view.fractions or column.endswith("_us") else pa.string()
