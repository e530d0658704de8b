"""The store: one database, one connection, one thread that writes it, for any number of sessions at a time.

Python's own sqlite3 on a thread of its own: a whole batch is one call, so no statement pays for a hop between threads.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from profagent.errors import SameBoardError, StoreError
from profagent.files import disk_full, is_full_database
from profagent.store.database import open_for_writing
from profagent.store.sessions import begin_session
from profagent.store.stored_session import StoredSession
from profagent.store.writer import Writer, write_together

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from profagent.ingest.changes import JobChanges
    from profagent.store.sessions import SessionStart


@dataclass(slots=True, eq=False)
class Waiting:
    """A session's changes that wait for the store's thread; `error` is why they could not be written."""

    writer: Writer
    changes: Sequence[JobChanges]
    error: Exception | None = None


class WriteGroup:
    """Changes that wait. They are added on any thread and written on the store's."""

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()

    def add(self, writer: Writer, changes: Sequence[JobChanges]) -> Waiting:
        """Let changes wait; each is written by the next `write`, whoever calls it."""
        waiting = Waiting(writer, changes)
        self._waiting.append(waiting)
        return waiting

    def write(self, connection: sqlite3.Connection, asked: Waiting) -> None:
        """Write all that waits, unless it was written before; raises why `asked` was not.

        Where the transaction fails that all share, each has one of its own, and fails or not by itself.
        """
        together = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not _is_written(connection, together):
            for each in together:
                _is_written(connection, [each])
        if asked.error is not None:
            raise asked.error


def _is_written(connection: sqlite3.Connection, together: Sequence[Waiting]) -> bool:
    if not together:
        return True
    try:
        write_together(connection, [(each.writer, each.changes) for each in together])
    except Exception as error:  # noqa: BLE001 - it is raised to whoever asked for these changes
        if len(together) == 1:
            together[0].error = error
            return True
        return False
    return True


T = TypeVar("T")
P = ParamSpec("P")


class Store:
    """The writing side of a database. Use as an asynchronous context manager; it owns its thread and connection."""

    def __init__(self, file: Path, *, durable: bool = True) -> None:
        """`durable` False is for a database that is thrown away when its writing is interrupted."""
        self.file = file
        self._durable = durable
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="profagent-store")
        self._connection: sqlite3.Connection | None = None
        self.group = WriteGroup()
        # Where each board that a session was begun of was reached, by the board's identity.
        self._addresses: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        """Open the database; StoreError when that fails."""
        try:
            self._connection = await self._on_thread(lambda: open_for_writing(self.file, durable=self._durable))
        except BaseException:
            self._thread.shutdown(wait=False)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection and end the thread."""
        await asyncio.shield(self._on_thread(self._close))
        self._thread.shutdown()

    async def begin(self, start: SessionStart) -> StoredSession:
        """Begin a session, or go on with the board's unfinished one.

        Raises SameBoardError when one of this board was begun before: its rows have one writer.
        """
        if start.identity in self._addresses:
            raise SameBoardError(start.address, self._addresses[start.identity], start.identity)
        self._addresses[start.identity] = start.address
        try:
            writer = await self.run(
                lambda connection: Writer(connection, *begin_session(connection, start), start.peak_bytes_per_s)
            )
        except BaseException:
            del self._addresses[start.identity]
            raise
        return StoredSession(self, writer)

    async def run(
        self, function: Callable[Concatenate[sqlite3.Connection, P], T], *arguments: P.args, **options: P.kwargs
    ) -> T:
        """Let a function use the connection on the store's thread; what SQLite refuses raises StoreError."""
        assert self._connection is not None, "used outside of its context"
        connection = self._connection
        return await self._on_thread(lambda: function(connection, *arguments, **options))

    async def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query that belongs to the writing side."""
        return await self.run(lambda connection: connection.execute(sql, parameters).fetchall())

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """A statement outside of the records, in a transaction of its own."""
        await self.run(lambda connection: connection.execute(sql, parameters))

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _on_thread(self, function: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function)
        except sqlite3.Error as error:
            if is_full_database(error, self.file.parent):
                raise disk_full(self.file) from error
            raise StoreError(
                f"the database {self.file} cannot be used: {error}",
                hint="check the free space and the permissions; what was committed before is safe",
            ) from error
