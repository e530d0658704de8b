"""A transaction of a connection that has none open."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

__all__ = ["transaction"]


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """What is written within is there as a whole when it ends, and nothing of it on any error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite has rolled back by itself when the disk is full.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
