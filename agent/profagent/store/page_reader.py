"""Pages of chosen inferences, read in processes beside this one where there is much to read.

Most of the time goes into making Python's objects of SQLite's rows, for which threads have to wait for each other.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sqlite3
import threading
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import asynccontextmanager, contextmanager
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar

from profagent.errors import StoreError
from profagent.limits import MOST_READING_PROCESSES, PAGES_AHEAD
from profagent.store.database import READER_SETTINGS, data_version, fetched_one, inode_of, read_only, readings
from profagent.store.placed import FIRST_INFERENCES, PagePlan, fetched_page, plan_page, read_page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    import aiosqlite

    from profagent.store.placed import Page

# Of the logs. A process takes half a second to start, in which 100,000 records of 256 bytes are read.
WORTH_PROCESSES_BYTES = 64 << 20
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_BYTES = """
SELECT ifnull(sum(offset), 0) FROM log WHERE log IN (SELECT g.log FROM temp.chosen JOIN segment g USING (inference))
"""


class Made(Protocol):
    """Made of a page: it tells how many records that has."""

    records: int


T = TypeVar("T", bound=Made)


class _Asked(NamedTuple):
    inferences: int
    plan: PagePlan
    answer: Future[Any] | None


class PageReader:
    """Reads a database by `connection`, which sees one state of it all along.

    Its processes have connections of their own, which see the same state as long as nobody writes. Once somebody has,
    pages are read here. One reader at a time has processes.
    """

    _is_one_with_processes: ClassVar[bool] = False

    def __init__(self, file: Path, connection: aiosqlite.Connection, watch: aiosqlite.Connection) -> None:
        self.connection = connection
        self._file, self._watch = file, watch
        self._seen: tuple[int | None, int] | None = None
        self._pool: ProcessPoolExecutor | None = None

    @classmethod
    @asynccontextmanager
    async def of(cls, file: Path) -> AsyncIterator[PageReader]:
        """A reader whose processes end with it. Raises StoreError."""
        async with readings(file, 2) as (connection, watch):
            reader = cls(file, connection, watch)
            reader._seen = await reader._state()
            await watch.execute("COMMIT")
            try:
                yield reader
            finally:
                reader.end_processes()

    async def start_processes(self) -> None:
        """Have processes, where what a Selection has chosen is worth them, and no other reader has some."""
        if PageReader._is_one_with_processes or await self._state() != self._seen:
            return
        (size,) = await fetched_one(self.connection, _BYTES)
        processes = min(len(os.sched_getaffinity(0)), MOST_READING_PROCESSES)
        if processes > 1 and size >= WORTH_PROCESSES_BYTES:
            PageReader._is_one_with_processes = True
            # Forking a process that has threads is not safe.
            self._pool = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (self._file,))
            # They inherit that no signal ends them, as early as they start: whoever started them is who ends them.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
            try:
                for _ in range(processes):
                    self._pool.submit(os.getpid)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    async def pages(self, make: Callable[[Page], T], *, has_ratios: bool) -> AsyncIterator[T]:
        """What is made of each page of the inferences that a Selection has chosen."""
        first, inferences = 0, FIRST_INFERENCES
        asked: deque[_Asked] = deque()
        while True:
            if asked and (asked[0].plan.first, asked[0].inferences) != (first, inferences):
                _cancel(asked)
            # A page's size follows from the page before: those ahead are asked for as if all were alike.
            pool, after = self._pool if first else None, asked[-1].plan.end if asked else first
            while len(asked) < (PAGES_AHEAD if pool else 1):
                plan = await plan_page(self.connection, after, inferences, has_ratios=has_ratios)
                if plan is None:
                    break
                asked.append(_Asked(inferences, plan, self._ask(pool, plan, make)))
                after = plan.end
            if not asked:
                return
            _, plan, answer = asked.popleft()
            made = await self._answer(answer)
            if made is None:
                made = make(await read_page(self.connection, plan))
            yield made
            first, inferences = plan.end, plan.inferences_next(made.records)

    def _ask(self, pool: ProcessPoolExecutor | None, plan: PagePlan, make: Callable[[Page], T]) -> Future[T] | None:
        with self._ended_told():
            return None if pool is None else pool.submit(_made, plan, make)

    async def _answer(self, answer: Future[T] | None) -> T | None:
        """What a process made of a page; None where that is to be done here."""
        if answer is None or self._pool is None:
            return None
        with self._ended_told():
            made = await asyncio.wrap_future(answer)
        if await self._state() == self._seen:
            return made
        self.end_processes()
        return None

    @contextmanager
    def _ended_told(self) -> Iterator[None]:
        """Raises StoreError where a process has ended by itself: pages that come later are refused then."""
        try:
            yield
        except BrokenProcessPool as error:
            hint = "it may have been ended for want of memory: make room, or leave some out with --last N"
            raise StoreError(f"a process that reads {self._file} has ended: {error}", hint=hint) from error

    async def _state(self) -> tuple[int | None, int]:
        """It changes as somebody writes, or puts another file there."""
        return inode_of(self._file), await data_version(self._watch)

    def end_processes(self) -> None:
        """Read here what is asked for from now on."""
        if self._pool is not None:
            if self._pool._broken:  # noqa: SLF001 - there is no other way to know
                # Who reads on, or waits for a lock that the dead one held, is sent a SIGTERM only, which is blocked.
                for process in [*self._pool._processes.values()]:  # noqa: SLF001 - as above
                    process.kill()
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
            PageReader._is_one_with_processes = False


def _cancel(asked: deque[_Asked]) -> None:
    for each in asked:
        if each.answer is not None:
            each.answer.cancel()
    asked.clear()


_files: list[Path] = []
_connections: list[sqlite3.Connection] = []


def _begin(file: Path) -> None:
    """Begin a process."""
    end_with_parent()
    # Rows are many objects and no cycles: looking for these takes a third of the time.
    gc.disable()
    _files.append(file)


def end_with_parent() -> None:
    """Let this process end as soon as the one that started it has, however that was."""
    threading.Thread(target=_await_parent, daemon=True).start()


def _await_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _made(plan: PagePlan, make: Callable[[Page], T]) -> T:
    if not _connections:
        connection = sqlite3.connect(read_only(_files[0]), uri=True, isolation_level=None)
        _connections.append(connection)
        connection.executescript(READER_SETTINGS)
        connection.execute("BEGIN")
    return make(fetched_page(_connections[0], plan))
