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
from profagent.formats.countermap import COUNTER_NAMES
from profagent.limits import ROWS_PER_GROUP
from profagent.store.database import fetched, fetched_one, pages, reading

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import aiosqlite
    import pyarrow as pa  # type: ignore[import-untyped]

    from profagent.store.database import Row

VIEWS = (
    "inferences",
    "op_records",
    "aicpu_records",
    "api_records",
    "ranges",
    "op_events",
    "metrics",
    "sessions",
    "coverage",
    "ledger",
    "ascend_files",
    "ascend_values",
)
US_PER_S = 1_000_000
# Columns of the views, by what they hold; others are texts. Times may have fractions.
_WHOLE = frozenset(
    "session device_id model_id stream_id batch_num input_pic_num load cache_hit cache_miss complete inference segment"  # noqa: SIM905 - names
    " sequence layer_index layer_id ticks pid tid process thread lane number simulated jobs inferences losses notes"
    " sampled due passed_over complete first last count row rows".split()
)
_FRACTIONS = frozenset({*COUNTER_NAMES, "value"})
# It may be 2^64 - 1, which the database has as a text.
_COUNTS = frozenset({"current_pic_count"})
# It has what stands in files of any kind; as a text it is as it was written there.
_MIXED = ("ascend_values", "value")
# A partition's name says it.
_PARTITIONED = "board"


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
        for view in VIEWS:
            file = folder / view / f"board={quote(row.board, safe='')}" / f"date={day}" / name
            rows[view] = await _write(connection, view, row.session, file, metadata)
            for old in (folder / view).glob(f"board=*/date=*/{name}"):
                if old != file or not rows[view]:
                    old.unlink()
    return Written(folder, metadata, rows)


async def _write(
    connection: aiosqlite.Connection, view: str, session: int, file: Path, metadata: Mapping[str, Any]
) -> int:
    """Write a view's rows, if it has any; how many."""
    import pyarrow as pa  # noqa: PLC0415 - as above
    from pyarrow import parquet  # noqa: PLC0415 - as above

    columns = [row[1] for row in await fetched(connection, f"PRAGMA table_info({view})") if row[1] != _PARTITIONED]
    told = {name: value if isinstance(value, str) else json.dumps(value) for name, value in metadata.items()}
    schema = pa.schema([(name, _type(view, name)) for name in columns], metadata=told)
    query = f"SELECT {', '.join(columns)} FROM {view} WHERE session = ?"  # noqa: S608 - names of ours
    rows = pages(connection, query, (session,))
    page = await anext(rows, None)
    if page is None:
        return 0
    make_directory(file.parent)
    count = 0
    with written_atomically(file) as out, parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        waiting: list[pa.RecordBatch] = []
        while page is not None:
            waiting.append(_batch(page, schema))
            count += len(page)
            page = await anext(rows, None)
            if page is None or sum(each.num_rows for each in waiting) >= ROWS_PER_GROUP:
                writer.write_table(pa.Table.from_batches(waiting), row_group_size=ROWS_PER_GROUP)
                waiting = []
    return count


def _type(view: str, column: str) -> pa.DataType:
    import pyarrow as pa  # noqa: PLC0415 - as above

    if (view, column) == _MIXED:
        return pa.string()
    if column in _WHOLE:
        return pa.int64()
    if column in _COUNTS:
        return pa.uint64()
    return pa.float64() if column in _FRACTIONS or column.endswith("_us") else pa.string()


def _batch(rows: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415 - as above

    columns: list[Any] = [*zip(*rows, strict=True)]
    for place, name in enumerate(schema.names):
        if name in _COUNTS:
            columns[place] = [int(value) for value in columns[place]]
        elif name == _MIXED[1] and pa.types.is_string(schema.field(place).type):
            columns[place] = [None if value is None else str(value) for value in columns[place]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
