"""The store: one database, one writer thread, one session being written.

Python's own sqlite3 on a thread of its own: a whole batch is one call, so no statement pays for a hop between threads.
"""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

from profagent.errors import StoreError
from profagent.store.database import open_for_writing
from profagent.store.logs import path_from_sql, path_to_sql
from profagent.store.rings import note_full_rings
from profagent.store.sessions import SessionStart, begin_session, end_session
from profagent.store.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from profagent.ingest.changes import JobChanges

T = TypeVar("T")
# SQLite's own limit of variables in a statement is far above.
PATHS_PER_QUERY = 500
# A log that is gone from the board keeps the digest that the board vouched for.
_UNSETTLED = (
    "SELECT path FROM log JOIN job USING (job) WHERE board = ? AND job.name = ? AND complete <> 1 AND digest IS NULL"
    " AND kind IN ('aicore', 'aicpu', 'acl_api')"
)
_ORPHANS = (
    "SELECT d.path FROM log d JOIN job USING (job) WHERE board = ? AND job.name = ? AND d.kind = 'done' AND NOT EXISTS"
    " (SELECT 1 FROM log x WHERE x.job = d.job AND x.path = substr(d.path, 1, length(d.path) - 5))"
)


@dataclass(frozen=True, slots=True)
class HeldLog:
    """What the database says of a log: its bytes up to `offset` are in the mirror; a complete one has a digest."""

    generation: int
    offset: int
    complete: bool
    digest: bytes | None = None


class Store:
    """The writing side of a database. Use as an asynchronous context manager; it owns its thread and connection."""

    def __init__(self, file: Path, *, durable: bool = True) -> None:
        """`durable` False is for a database that is thrown away when its writing is interrupted."""
        self.file = file
        self._durable = durable
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="profagent-store")
        self._connection: sqlite3.Connection | None = None
        self._writer: Writer | None = None
        self._board = 0
        self.session = 0

    async def __aenter__(self) -> Self:
        """Open the database; StoreError when that fails."""
        try:
            self._connection = await self._run(lambda: open_for_writing(self.file, durable=self._durable))
        except BaseException:
            self._thread.shutdown(wait=False)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection and end the thread."""
        await asyncio.shield(self._run(self._close))
        self._thread.shutdown()

    async def begin(self, start: SessionStart) -> int:
        """Begin a session, or go on with the board's unfinished one; returns its number."""
        self.session, self._board = await self._run(begin_session, self._opened, start)
        self._writer = Writer(self._opened, self.session, self._board)
        return self.session

    async def end(self, ended_us: int) -> None:
        """Mark the session as finished: no later record goes on with it."""
        await self._run(end_session, self._opened, self.session, ended_us)

    async def apply(self, changes: Sequence[JobChanges]) -> None:
        """Write changes in one durable transaction."""
        assert self._writer is not None, "begin() comes before apply()"
        await self._run(self._writer.apply, changes)

    async def held(self, job: str, paths: Sequence[str]) -> dict[str, HeldLog]:
        """What is stored of these logs; those that are not known are left out."""
        return await self._run(self._held, job, paths)

    async def unsettled_logs(self, job: str) -> list[str]:
        """Data logs of a JOB that the board never vouched for."""
        return await self._run(self._paths, _UNSETTLED, job)

    async def orphan_dones(self, job: str) -> list[str]:
        """`.done` files of a JOB that have no data beside them."""
        return await self._run(self._paths, _ORPHANS, job)

    async def note_full_rings(self, job: str) -> None:
        """Note where the runtime's ring of calls may have overflowed."""
        await self._run(note_full_rings, self._opened, self.session, self._board, job)

    async def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query that belongs to the writing side."""
        return await self._run(lambda: self._opened.execute(sql, parameters).fetchall())

    async def read(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """The answer to a question that takes several queries."""
        return await self._run(question, self._opened)

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """A statement outside of the records, in a transaction of its own."""
        await self._run(self._opened.execute, sql, parameters)

    @property
    def board(self) -> int:
        """The number of the session's board."""
        return self._board

    @property
    def _opened(self) -> sqlite3.Connection:
        assert self._connection is not None, "used outside of its context"
        return self._connection

    def _held(self, job: str, paths: Sequence[str]) -> dict[str, HeldLog]:
        found: dict[str, HeldLog] = {}
        by_stored = {path_to_sql(path): path for path in paths}
        stored = list(by_stored)
        for start in range(0, len(stored), PATHS_PER_QUERY):
            page = stored[start : start + PATHS_PER_QUERY]
            marks = ",".join("?" * len(page))
            rows = self._opened.execute(
                "SELECT path, generation, offset, complete = 1, digest FROM log"  # noqa: S608 - question marks only
                f" WHERE job = (SELECT job FROM job WHERE board = ? AND name = ?) AND path IN ({marks})",
                (self._board, job, *page),
            )
            for path, generation, offset, complete, digest in rows:
                found[by_stored[path]] = HeldLog(generation, offset, bool(complete), digest)
        return found

    def _paths(self, sql: str, job: str) -> list[str]:
        rows = self._opened.execute(sql, (self._board, job)).fetchall()
        return [path_from_sql(path) for (path,) in rows]

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _run(self, function: Callable[..., T], *arguments: object) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)
        except sqlite3.Error as error:
            raise StoreError(
                f"the database {self.file} cannot be used: {error}",
                hint="check the free space and the permissions; what was committed before is safe",
            ) from error
