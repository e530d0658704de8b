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
from functools import partial
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from profagent.errors import StoreError
from profagent.limits import MOST_READING_PROCESSES, PAGES_AHEAD, RECORDS_PER_PAGE
from profagent.store.columns import Segments, pages
from profagent.store.database import (
    READER_SETTINGS,
    data_version,
    fetched,
    fetched_one,
    inode_of,
    read_only,
    readings,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from profagent.formats.names import LogKind
    from profagent.store.columns import PageQuery, RecordTable
    from profagent.store.database import Running

# Of the logs. A process takes half a second to start, in which 100,000 records of 256 bytes are read.
WORTH_PROCESSES_BYTES = 64 << 20
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_CPU_SEGMENTS = "FROM segment g WHERE g.inference = i.inference AND g.kind = 'aicpu' AND g.start_us > 0"
_SPANS = f"""
SELECT c.position, c.inference, c.device_id, c.model, c.name, c.model_id, c.stream_id, c.current_pic_count,
       (SELECT min(us) FROM (SELECT i.start_us AS us UNION ALL SELECT g.start_us {_CPU_SEGMENTS})),
       (SELECT max(us) FROM (SELECT i.end_us AS us UNION ALL SELECT g.end_us {_CPU_SEGMENTS}))
FROM temp.chosen c JOIN inference i USING (inference) WHERE c.position BETWEEN ? AND ? ORDER BY c.position
"""  # noqa: S608 - ours
_BYTES = """
SELECT ifnull(sum(offset), 0) FROM log WHERE log IN (SELECT g.log FROM temp.chosen JOIN segment g USING (inference))
"""


class InferenceSpan(NamedTuple):
    """When a chosen inference ran, from its first begin to its last end on both processors; None where not known."""

    position: int
    inference: int
    device_id: int
    model: int
    model_name: str
    model_id: int
    stream_id: int | None
    current_pic_count: int
    start_us: int | None
    end_us: int | None


class InferencePage(NamedTuple):
    """Chosen inferences of one device and model by their position, with all of their segments and records."""

    spans: list[InferenceSpan]
    segments: Segments
    aicore: RecordTable
    aicpu: RecordTable


T = TypeVar("T")


class _Asked(NamedTuple):
    query: PageQuery
    spans: list[InferenceSpan]
    answer: Future[Any] | None


class PageReader:
    """Reads a database by `connection`, which sees one state of it all along.

    Its processes have connections of their own, which see the same state as long as nobody writes. Once somebody has,
    pages are read here. One reader at a time has processes.
    """

    _is_one_with_processes: ClassVar[bool] = False

    def __init__(self, file: Path, connection: Running, watch: Running) -> None:
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

    async def pages(
        self, make: Callable[[InferencePage], T], names: Mapping[LogKind, Sequence[str]]
    ) -> AsyncIterator[T]:
        """Give what is made of each page of the inferences that a Selection has chosen; `names` are columns."""
        queries = await self.connection.run(partial(_planned, names))
        asked: deque[_Asked] = deque()
        for query in queries:
            spans = await fetched(self.connection, _SPANS, (query.first, query.end - 1))
            shown = [*map(InferenceSpan._make, spans)]
            # The first is needed at once: a process takes longer to begin.
            pool = self._pool if query.first else None
            asked.append(_Asked(query, shown, self._ask(pool, query, shown, make)))
            if len(asked) >= (PAGES_AHEAD if self._pool else 1):
                yield await self._made(asked.popleft(), make)
        while asked:
            yield await self._made(asked.popleft(), make)

    def _ask(
        self,
        pool: ProcessPoolExecutor | None,
        query: PageQuery,
        spans: list[InferenceSpan],
        make: Callable[[InferencePage], T],
    ) -> Future[T] | None:
        with self._ended_told():
            return None if pool is None else pool.submit(_made, query, spans, make)

    async def _made(self, asked: _Asked, make: Callable[[InferencePage], T]) -> T:
        """What is made of a page: by a process, unless somebody has written since."""
        if asked.answer is not None and self._pool is not None:
            with self._ended_told():
                made: T = await asyncio.wrap_future(asked.answer)
            if await self._state() == self._seen:
                return made
            self.end_processes()
        page = await self.connection.run(asked.query.read)
        return make(InferencePage(asked.spans, *page[2:]))

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


def _made(query: PageQuery, spans: list[InferenceSpan], make: Callable[[InferencePage], T]) -> T:
    if not _connections:
        connection = sqlite3.connect(read_only(_files[0]), uri=True, isolation_level=None)
        _connections.append(connection)
        connection.executescript(READER_SETTINGS)
        connection.execute("BEGIN")
    return make(InferencePage(spans, *query.read(_connections[0])[2:]))


def _planned(names: Mapping[LogKind, Sequence[str]], connection: sqlite3.Connection) -> Iterator[PageQuery]:
    """Pages of the inferences that a Selection has chosen, by device and model."""
    groups = connection.execute("SELECT device_id, model FROM temp.chosen ORDER BY position").fetchall()
    connection.execute("CREATE UNIQUE INDEX IF NOT EXISTS temp.chosen_position ON chosen (position)")
    return pages(connection, Segments.chosen(connection), names, groups, RECORDS_PER_PAGE)
