"""Upkeep of a lake (`profagent fleet compact` and `expire`): small files are joined, and old rows deleted.

Both run beside pushes and readers: a file that is in no present state of a table is kept for RETENTION_H, for readers
that began before. Rows of a push that did not enter `sessions`, or was replaced there, are deleted if `sessions` has
not had it for RETENTION_H and it began twice as long ago: a push that takes less time was not in it meanwhile.

A file that a killed push was just writing is in no state of a table and stays: only a clock could tell whether it is
still being written, and `vacuum(full=True)` would also remove files that readers still need.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from profagent.lake.lake import PARTITION, PROPERTIES, SESSIONS, day_of, listed
from profagent.lake.push import DATABASES, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from deltalake import DeltaTable

    from profagent.lake.lake import Lake

RETENTION_H = 168
# Tables with rows of single records, samples and calls; the other tables have figures that represent them. DATABASES
# is first, so that a session is either restorable or not, and never restored in part.
RAW = (DATABASES, "records", "calls", "metrics", "ranges", "inferences")


class Compacted(NamedTuple):
    """Result for a table: its files before and after, and the files and rows removed because nobody reads them."""

    table: str
    files_before: int
    files: int
    removed: int
    rows: int


class Expired(NamedTuple):
    """Result for a table: the number of deleted rows."""

    table: str
    rows: int


def compact(lake: Lake) -> Iterator[Compacted]:
    """Join the small files of each table, and remove files and rows that no reader needs. Raises LakeError."""
    gone = _given_up(lake)
    for table in TABLES:
        rows = _deleted(lake, table, f"push IN ({listed(gone)})") if gone and table != SESSIONS else 0
        joined = lake.change(table, lambda found: found.optimize.compact(writer_properties=PROPERTIES))
        # RETENTION_H is less than the time in RETENTION, so that a table does not forget a file before it is removed.
        removed = lake.change(table, lambda found: found.vacuum(RETENTION_H, False, enforce_retention_duration=False))
        files = len(lake.required(table).file_uris())
        before = files + joined["numFilesRemoved"] - joined["numFilesAdded"]
        yield Compacted(table, before, files, len(removed), rows)


def _given_up(lake: Lake) -> list[str]:
    """Return the names of pushes that have rows, but are not to be read and from now on cannot be."""
    now, retention = datetime.now(UTC), timedelta(hours=RETENTION_H)
    first = (now - 2 * retention).date()
    pushes = {push for table in TABLES if table != SESSIONS for push in lake.pushes(table)}
    old = {push for push in pushes if (day := day_of(push)) is not None and day < first}

    def unnamed(found: DeltaTable) -> set[str]:
        before = lake.required(SESSIONS)
        before.load_as_version(now - retention)
        return old - lake.pushes(SESSIONS, found) - lake.pushes(SESSIONS, before)

    return lake.give_up(unnamed) if old else []


def _deleted(lake: Lake, table: str, which: str) -> int:
    done = lake.change(table, lambda found: found.delete(which))
    return done["num_deleted_rows"] or 0


def expire(lake: Lake, before: date) -> Iterator[Expired]:
    """Delete the rows in RAW of sessions that began before a day (UTC); their figures stay. Raises LakeError."""
    for table in RAW:
        yield Expired(table, _deleted(lake, table, f"{PARTITION} < '{before.isoformat()}'"))
