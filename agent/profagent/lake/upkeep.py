"""`profagent fleet compact` and `expire`: small files become large ones, and old rows go.

Both run beside pushes and readers: a file that no state of a table has any more stands for RETENTION_H, for whoever
began to read before. Rows of a push that did not come into `sessions`, or was replaced there, go when `sessions` has
not had it for RETENTION_H, and it began twice as long ago: nothing that takes less was in it meanwhile.

What a push that was killed was just writing is in no state of a table and stays: whether it is still being written only
the clock could tell, and a `vacuum(full=True)` takes files as well that readers still have.
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
# Tables with rows of single records, samples and calls: the figures that stand for them are in the others. What
# restores sessions goes first: of none is a part restored.
RAW = (DATABASES, "records", "calls", "metrics", "ranges", "inferences")


class Compacted(NamedTuple):
    """A table: how many files it had and has, and how many files and rows that nobody reads any more were removed."""

    table: str
    files_before: int
    files: int
    removed: int
    rows: int


class Expired(NamedTuple):
    """A table, and how many of its rows went."""

    table: str
    rows: int


def compact(lake: Lake) -> Iterator[Compacted]:
    """Join the small files of each table, and remove files and rows that no reader may need. Raises LakeError."""
    gone = _given_up(lake)
    for table in TABLES:
        rows = _deleted(lake, table, f"push IN ({listed(gone)})") if gone and table != SESSIONS else 0
        joined = lake.change(table, lambda found: found.optimize.compact(writer_properties=PROPERTIES))
        # Less than what KEPT says, so that no file is forgotten before it goes.
        removed = lake.change(table, lambda found: found.vacuum(RETENTION_H, False, enforce_retention_duration=False))
        files = len(lake.required(table).file_uris())
        before = files + joined["numFilesRemoved"] - joined["numFilesAdded"]
        yield Compacted(table, before, files, len(removed), rows)


def _given_up(lake: Lake) -> list[str]:
    """Pushes that have rows, of which none is to be read any more, nor can be from now on."""
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
