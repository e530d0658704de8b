"""Pages of chosen inferences, read in helper processes where there is much to read.

Most of the time goes into Python objects of SQLite's rows, for which threads would wait for each other.
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

# Size of the logs from which processes pay off. Starting one takes half a second, in which 100,000 records of 256 bytes
# are read.
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
    """Time of a chosen inference, from its first begin to its last end on both processors; None if unknown."""

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
    """Chosen inferences of one device and model by position, with all of their segments and records."""

    spans: list[InferenceSpan]
    segments: Segments
    aicore: RecordTable
    aicpu: RecordTable


T = TypeVar("T")


class _PageRequest(NamedTuple):
    query: PageQuery
    spans: list[InferenceSpan]
    answer: Future[Any] | None


class PageReader:
    """Reader of a database by `connection`, which sees one state throughout.

    Its processes have connections of their own, which see the same state as long as nobody writes; once somebody has,
    pages are read in this process. One reader at a time has processes.
    """

    # True while some reader of this process has helpers: more of them would compete for the same processors.
    _is_one_with_processes: ClassVar[bool] = False

    def __init__(self, file: Path, connection: Running, watch: Running) -> None:
        self.connection = connection
        self._file, self._watch = file, watch
        # State of the file when the reader was opened, which `_watch` compares with.
        self._seen: tuple[int | None, int] | None = None
        # Helper processes, None where they are not worth it or were ended.
        self._pool: ProcessPoolExecutor | None = None

    @classmethod
    @asynccontextmanager
    async def of(cls, file: Path) -> AsyncIterator[PageReader]:
        """Open a reader, and end its processes at the end. Raises StoreError."""
        async with readings(file, 2) as (connection, watch):
            reader = cls(file, connection, watch)
            reader._seen = await reader._state()
            # A connection inside a transaction would never see that another process wrote.
            await watch.execute("COMMIT")
            try:
                yield reader
            finally:
                reader.end_processes()

    async def start_processes(self) -> None:
        """Start helper processes, if the Selection is large enough and no other reader has some."""
        if PageReader._is_one_with_processes or await self._state() != self._seen:
            return
        (size,) = await fetched_one(self.connection, _BYTES)
        processes = min(len(os.sched_getaffinity(0)), MOST_READING_PROCESSES)
        if processes > 1 and size >= WORTH_PROCESSES_BYTES:
            PageReader._is_one_with_processes = True
            # Spawned, because forking a process that has threads is not safe.
            self._pool = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (self._file,))
            # Helpers inherit the blocked signals from their very start: Ctrl-C reaches the whole group, but only their
            # parent may end them.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
            try:
                for _ in range(processes):
                    self._pool.submit(os.getpid)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    async def pages(
        self, make: Callable[[InferencePage], T], names: Mapping[LogKind, Sequence[str]]
    ) -> AsyncIterator[T]:
        """Yield the result of `make` for each page of a Selection's inferences; `names` are the columns to read."""
        queries = await self.connection.run(partial(_planned, names))
        requests: deque[_PageRequest] = deque()
        for query in queries:
            spans = await fetched(self.connection, _SPANS, (query.first, query.end - 1))
            shown = [*map(InferenceSpan._make, spans)]
            # The first page is needed at once, and a process takes longer to start than the page takes to read.
            pool = self._pool if query.first else None
            requests.append(_PageRequest(query, shown, self._ask(pool, query, shown, make)))
            if len(requests) >= (PAGES_AHEAD if self._pool else 1):
                yield await self._made(requests.popleft(), make)
        while requests:
            yield await self._made(requests.popleft(), make)

    def _ask(
        self,
        pool: ProcessPoolExecutor | None,
        query: PageQuery,
        spans: list[InferenceSpan],
        make: Callable[[InferencePage], T],
    ) -> Future[T] | None:
        with self._ended_reported():
            return None if pool is None else pool.submit(_made, query, spans, make)

    async def _made(self, request: _PageRequest, make: Callable[[InferencePage], T]) -> T:
        """Return what is made of a page: by a process, unless somebody has written since."""
        if request.answer is not None and self._pool is not None:
            with self._ended_reported():
                made: T = await asyncio.wrap_future(request.answer)
            # Checked after the answer: only then is it certain that the process saw the same state.
            if await self._state() == self._seen:
                return made
            self.end_processes()
        page = await self.connection.run(request.query.read)
        return make(InferencePage(request.spans, *page[2:]))

    @contextmanager
    def _ended_reported(self) -> Iterator[None]:
        """Raise StoreError if a process has died."""
        try:
            yield
        except BrokenProcessPool as error:
            hint = "it may have been killed when memory ran out: free memory, or read less with --last N"
            raise StoreError(f"a process that reads {self._file} has ended: {error}", hint=hint) from error

    async def _state(self) -> tuple[int | None, int]:
        """Return a value that changes when somebody writes, or replaces the file."""
        return inode_of(self._file), await data_version(self._watch)

    def end_processes(self) -> None:
        """End the helper processes; pages are read in this process from now on."""
        if self._pool is not None:
            if self._pool._broken:  # noqa: SLF001 - there is no other way to know
                # The pool only sends SIGTERM, which the survivors block; one that waits for a lock of the dead process
                # would never end.
                for process in [*self._pool._processes.values()]:  # noqa: SLF001 - as above
                    process.kill()
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
            PageReader._is_one_with_processes = False


# Of a helper process: the file that it reads, and its connection once it has one.
_files: list[Path] = []
_connections: list[sqlite3.Connection] = []


def _begin(file: Path) -> None:
    end_with_parent()
    # Rows are many objects without cycles: the search for cycles would take a third of the time.
    gc.disable()
    _files.append(file)


def end_with_parent() -> None:
    """Have this process end as soon as its parent has ended, in whatever way."""
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
    groups = connection.execute("SELECT device_id, model FROM temp.chosen ORDER BY position").fetchall()
    connection.execute("CREATE UNIQUE INDEX IF NOT EXISTS temp.chosen_position ON chosen (position)")
    return pages(connection, Segments.chosen(connection), names, groups, RECORDS_PER_PAGE)
