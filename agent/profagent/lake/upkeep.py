"""`profagent fleet compact` and `expire`: small files become large ones, and old rows go.

Both run beside pushes and readers: a file that no state of a table has any more stands for RETENTION_H, for whoever
began to read before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from profagent.lake.lake import PARTITION
from profagent.lake.push import DATABASES, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from profagent.lake.lake import Lake

RETENTION_H = 168
# Tables with rows of single records, samples and calls: the figures that stand for them are in the others. What
# restores sessions goes first: of none is a part restored.
RAW = (DATABASES, "records", "calls", "metrics", "ranges", "inferences")


class Compacted(NamedTuple):
    """A table: how many files it had, how many it has, and how many that nobody reads any more were removed."""

    table: str
    files_before: int
    files: int
    removed: int


class Expired(NamedTuple):
    """A table, and how many of its rows went."""

    table: str
    rows: int


def compact(lake: Lake) -> Iterator[Compacted]:
    """Join the small files of each table, and remove those that no reader may need. Raises LakeError."""
    for table in TABLES:
        joined = lake.change(table, lambda found: found.optimize.compact())
        removed = lake.change(table, lambda found: found.vacuum(RETENTION_H, dry_run=False))
        files = len(lake.required(table).file_uris())
        before = files + joined["numFilesRemoved"] - joined["numFilesAdded"]
        yield Compacted(table, before, files, len(removed))


def expire(lake: Lake, before: date) -> Iterator[Expired]:
    """Delete the rows in RAW of sessions that began before a day (UTC); their figures stay. Raises LakeError."""
    for table in RAW:
        gone = lake.change(table, lambda found: found.delete(f"{PARTITION} < '{before.isoformat()}'"))
        yield Expired(table, gone["num_deleted_rows"] or 0)
