"""Work on a root's files, on threads of that root alone: a file system that hangs holds up no other."""

from __future__ import annotations

import asyncio
import queue
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

# Threads of one root, at most; they are made when they are needed, and end when they have rested.
THREADS = 2
REST_S = 10.0
# Who does work on several roots waits so long for one of them.
PATIENCE_S = 1.0


def on_disk(root: bytes, work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
    """What `work` gives or raises, on a thread of this root; it begins at once.

    Whoever is cancelled does not wait for the thread, and a thread that hangs does not keep the process alive.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            tell: Callable[[], None] = _given(result, work(*arguments))
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            tell = _raised(result, error)
        # Where the loop is closed nobody waits any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(tell)

    _POOLS.setdefault(root, _Pool(root)).put(run)
    return result


class Patience:
    """Waits for work on roots, but not for long: what is late is left alone, until it is over."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._late: dict[bytes, asyncio.Future[Any]] = {}

    def is_late(self, root: bytes) -> bool:
        """Whether work on this root is still waited for; raises what it raised once it is over."""
        work = self._late.get(root)
        if work is None or not work.done():
            return work is not None
        del self._late[root]
        work.result()
        return False

    async def wait(self, root: bytes, work: Coroutine[Any, Any, T] | asyncio.Future[T]) -> asyncio.Future[T]:
        """The work, which is done, or late from now on. Raises what it raised in time."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task}, timeout=self._patience_s)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.done():
            task.result()
        else:
            self._late[root] = task
        return task

    def close(self) -> None:
        """Wait for nothing more."""
        for task in self._late.values():
            task.cancel()


def _given(result: asyncio.Future[T], value: T) -> Callable[[], None]:
    return lambda: None if result.done() else result.set_result(value)


def _raised(result: asyncio.Future[T], error: BaseException) -> Callable[[], None]:
    return lambda: None if result.done() else result.set_exception(error)


class _Pool:
    """A queue of work, and the threads that are there for it."""

    def __init__(self, root: bytes) -> None:
        self._name = f"files of {root!r}"
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._pending = 0  # works that are put and not over
        self._threads = 0

    def put(self, run: Callable[[], None]) -> None:
        """Have it run."""
        with self._lock:
            self._pending += 1
            is_short = self._threads < min(THREADS, self._pending)
            self._threads += is_short
            self._queue.put(run)
        if is_short:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                run = self._queue.get(timeout=REST_S)
            except queue.Empty:
                with self._lock:
                    if self._queue.empty():
                        self._threads -= 1
                        return
                continue
            run()
            del run  # what it holds is not kept while the thread rests
            with self._lock:
                self._pending -= 1


_POOLS: dict[bytes, _Pool] = {}
