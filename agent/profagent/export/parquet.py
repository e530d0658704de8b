"""Sessions as Parquet: a folder for each view with one for each board and day (Hive), and in it a file a session."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from profagent.cli.running import installing
from profagent.errors import UsageError
from profagent.export.formats import Written
from profagent.export.session_metadata import session_to_export
from profagent.ingest.source import View, views
from profagent.store.database import fetched_one, reading
from profagent.units import US_PER_S

if TYPE_CHECKING:
    from pathlib import Path

# Views of sessions themselves, which belong to no source.
_OF_SESSIONS = (
    View(
        name="sessions",
        whole=frozenset(
            {"simulated", "jobs", "inferences", "losses", "notes", "sampled", "due", "passed_over", "complete"}
        ),
    ),
    View(name="coverage"),
    View(name="ledger", whole=frozenset({"first", "last", "count"}), in_bytes=frozenset({"first", "last"})),
)


def exported_views() -> list[View]:
    """Return the views that an export has: those of all sources, and those of sessions themselves."""
    return [*views(), *_OF_SESSIONS]


async def export_parquet(database: Path, folder: Path, session: int | None = None) -> Written:
    """Write the rows that the views have of a session (None: the newest), in place of an earlier export of it.

    Raises UsageError if pyarrow is not installed, StoreError, and ProfagentError if a file cannot be written.
    """
    try:
        from profagent.export.parquet_files import write_view  # noqa: PLC0415 - needs pyarrow: 50 MB, for this one export
    except ImportError as error:
        raise UsageError("Parquet needs pyarrow, which is not installed", hint=installing("pyarrow")) from error
    async with reading(database) as connection:
        row, metadata = await session_to_export(connection, session)
        (address,) = await fetched_one(connection, "SELECT address FROM session WHERE session = ?", (row.session,))
        day = datetime.fromtimestamp(row.started_us / US_PER_S, UTC).date()
        # Every database numbers its sessions from 1, and a folder may hold those of several databases. So a capture is
        # identified by its start too, and a JOB directory, which may be imported again, by its path.
        known_by = zlib.crc32(address.encode()) if row.source == "import" else row.started_us
        name = f"session-{row.session}-{known_by}.parquet"
        rows = {}
        for view in exported_views():
            file = folder / view.name / f"board={quote(row.board, safe='')}" / f"date={day}" / name
            rows[view.name] = await connection.run(
                partial(write_view, view=view, session=row.session, file=file, metadata=metadata)
            )
            # An earlier export of this session may lie under another day, or hold rows of a view that is empty now.
            for old in (folder / view.name).glob(f"board=*/date=*/{name}"):
                if old != file or not rows[view.name]:
                    old.unlink()
    return Written(folder, metadata, rows)
