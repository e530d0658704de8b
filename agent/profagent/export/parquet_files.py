"""One Parquet file with the rows that a view has of a session, in groups of ROWS_PER_GROUP rows."""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import parquet

from profagent.export.view_batches import columns_of, view_stream
from profagent.files import make_directory, written_atomically
from profagent.limits import ROWS_PER_GROUP

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from profagent.ingest.source import View

# The name of the partition has the board, so the file needs no column for it.
_PARTITIONED = "board"


def write_view(
    connection: sqlite3.Connection, view: View, session: int, file: Path, metadata: Mapping[str, Any]
) -> int:
    """Write the rows that a view has of a session, if there are any, and return their number.

    Raises ProfagentError if the file cannot be written.
    """
    names = [name for name in columns_of(connection, view) if name != _PARTITIONED]
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in metadata.items()}
    batches = pa.RecordBatchReader.from_stream(view_stream(connection, view, session, names))
    # A view without rows makes no file.
    first = next(batches, None)
    if first is None:
        return 0
    make_directory(file.parent)
    rows = 0
    with (
        written_atomically(file) as out,
        # Without the Arrow schema in the file, readers see dictionary columns as plain texts.
        parquet.ParquetWriter(out, batches.schema, compression="zstd", store_schema=False) as writer,
    ):
        writer.add_key_value_metadata(texts)
        for group in _groups(chain([first], batches)):
            writer.write_table(group, row_group_size=len(group))
            rows += len(group)
    return rows


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= ROWS_PER_GROUP:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)
