"""Sessions as Parquet: a folder for each view, in it one for each board and day (Hive), in that a file a session."""

from __future__ import annotations

import json
import zlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from profagent.cli.running import installing
from profagent.errors import UsageError
from profagent.export.formats import Written
from profagent.export.told import session_to_export
from profagent.files import make_directory, written_atomically
from profagent.ingest.source import View, views
from profagent.limits import ROWS_PER_GROUP
from profagent.store.database import fetched, fetched_one, pages, reading

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import aiosqlite
    import pyarrow as pa  # type: ignore[import-untyped]

    from profagent.store.database import Row

US_PER_S = 1_000_000
# Views of sessions themselves, which are no source's.
_OF_SESSIONS = (
    View(
        name="sessions",
        whole=frozenset(
            {"simulated", "jobs", "inferences", "losses", "notes", "sampled", "due", "passed_over", "complete"}
        ),
    ),
    View(name="coverage"),
    View(name="ledger", whole=frozenset({"first", "last", "count"})),
)
# A partition's name says it.
_PARTITIONED = "board"


def exported_views() -> list[View]:
    """Return the views that an export has: those of sources, and those of sessions themselves."""
    return [*views(), *_OF_SESSIONS]


async def export_parquet(database: Path, folder: Path, session: int | None = None) -> Written:
    """Write what the views have of a session (None: the newest); an earlier export of it is replaced.

    Raises UsageError where pyarrow is not installed, StoreError, and ProfagentError where a file cannot be written.
    """
    try:
        import pyarrow  # noqa: F401, ICN001, PLC0415 - 50 MB, for this one export
    except ImportError as error:
        raise UsageError("Parquet needs pyarrow, which is not installed", hint=installing("pyarrow")) from error
    async with reading(database) as connection:
        row, metadata = await session_to_export(connection, session)
        (address,) = await fetched_one(connection, "SELECT address FROM session WHERE session = ?", (row.session,))
        day = datetime.fromtimestamp(row.started_us / US_PER_S, UTC).date()
        # Databases count their sessions alike: a capture is known by its beginning as well, and a JOB directory, which
        # may be imported again, by its path.
        known_by = zlib.crc32(address.encode()) if row.source == "import" else row.started_us
        name = f"session-{row.session}-{known_by}.parquet"
        rows = {}
        for view in exported_views():
            file = folder / view.name / f"board={quote(row.board, safe='')}" / f"date={day}" / name
            rows[view.name] = await _write(connection, view, row.session, file, metadata)
            for old in (folder / view.name).glob(f"board=*/date=*/{name}"):
                if old != file or not rows[view.name]:
                    old.unlink()
    return Written(folder, metadata, rows)


async def _write(
    connection: aiosqlite.Connection, view: View, session: int, file: Path, metadata: Mapping[str, Any]
) -> int:
    """Write a view's rows, if it has any; how many."""
    import pyarrow as pa  # noqa: PLC0415 - as above
    from pyarrow import parquet  # noqa: PLC0415 - as above

    columns = [row[1] for row in await fetched(connection, f"PRAGMA table_info({view.name})") if row[1] != _PARTITIONED]
    told = {name: value if isinstance(value, str) else json.dumps(value) for name, value in metadata.items()}
    schema = pa.schema([(name, _type(view, name)) for name in columns], metadata=told)
    query = f"SELECT {', '.join(columns)} FROM {view.name} WHERE session = ?"  # noqa: S608 - names of ours
    rows = pages(connection, query, (session,))
    page = await anext(rows, None)
    if page is None:
        return 0
    make_directory(file.parent)
    count = 0
    with written_atomically(file) as out, parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        waiting: list[pa.RecordBatch] = []
        while page is not None:
            waiting.append(_batch(view, page, schema))
            count += len(page)
            page = await anext(rows, None)
            if page is None or sum(each.num_rows for each in waiting) >= ROWS_PER_GROUP:
                writer.write_table(pa.Table.from_batches(waiting), row_group_size=ROWS_PER_GROUP)
                waiting = []
    return count


def _type(view: View, column: str) -> pa.DataType:
    import pyarrow as pa  # noqa: PLC0415 - as above

    if column in view.unsigned:
        return pa.uint64()
    if column == "session" or column in view.whole:
        return pa.int64()
    return pa.float64() if column in view.fractions or column.endswith("_us") else pa.string()


def _batch(view: View, rows: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415 - as above

    columns: list[Any] = [*zip(*rows, strict=True)]
    for place, name in enumerate(schema.names):
        if name in view.unsigned:
            columns[place] = [int(value) for value in columns[place]]
        elif name in view.mixed:
            columns[place] = [None if value is None else str(value) for value in columns[place]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
