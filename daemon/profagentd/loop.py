"""Clocks, concurrent tasks, and the threads on which the roots' files are read."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import queue
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Protocol, TypeVar

from profagentd.limits import HANGING_S, ROOT_THREADS

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator


US_PER_S = 1_000_000


class DaemonClock(Protocol):
    """Wall clock, monotonic clock and sleep."""

    def wall_us(self) -> int:
        """Return microseconds since the Unix epoch; this clock may jump."""

    def monotonic(self) -> float:
        """Return seconds that never go back, from an arbitrary zero."""

    async def sleep(self, delay_s: float) -> None:
        """Wait for `delay_s` seconds of the monotonic clock."""


class SystemClock:
    """The clocks of this machine."""

    def wall_us(self) -> int:
        """Return microseconds since the Unix epoch."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Return seconds of the monotonic clock."""
        return time.monotonic()

    async def sleep(self, delay_s: float) -> None:
        """Wait on the running loop."""
        await asyncio.sleep(delay_s)


class ClockReading(NamedTuple):
    """Both clocks, read one right after the other."""

    monotonic: float
    wall_us: int

    def monotonic_of(self, changed_wall_us: int) -> float:
        """Return the monotonic time of a change with this wall-clock date. A date in the future counts as now."""
        return self.monotonic - max(0, self.wall_us - changed_wall_us) / US_PER_S


def read_clocks(clock: DaemonClock) -> ClockReading:
    """Return a reading of both clocks."""
    return ClockReading(clock.monotonic(), clock.wall_us())


async def until_first(*coroutines: Coroutine[Any, Any, object]) -> None:
    """Run all coroutines until the first returns or fails, then cancel the others and wait for their end.

    The first one's exception is raised again. When the caller is cancelled, all coroutines are.
    """
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        # The board's Python may lack TaskGroup, and asyncio.wait leaves its tasks running when it is cancelled.
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        # Awaited also when the caller is cancelled: on return every task has released what it owns.
        results = await asyncio.gather(*tasks, return_exceptions=True)
    failed = [each for task, each in zip(tasks, results) if task in done and isinstance(each, BaseException)]
    if failed:
        raise failed[0]


class Roots:
    """Directories below which JOBs are searched: absolute paths without links, in the order of the settings."""

    def __init__(self, roots: Iterable[bytes]) -> None:
        # Roots are only added: to leave one out takes a restart.
        self._roots = list(roots)
        self._queues: list[asyncio.Queue[bytes]] = []  # one for each running `each`, which takes new roots from it

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._roots)

    def __len__(self) -> int:
        return len(self._roots)

    def add(self, root: bytes) -> None:
        """Add a root; each running `each` begins to work on it."""
        self._roots.append(root)
        for queue_of_roots in self._queues:
            queue_of_roots.put_nowait(root)

    async def each(self, work: Callable[[bytes], Coroutine[Any, Any, None]]) -> None:
        """Run `work` for each root, present or added later, all at once. Raises what the first one raises."""
        roots: asyncio.Queue[bytes] = asyncio.Queue()
        for root in self._roots:
            roots.put_nowait(root)

        async def work_on_next() -> None:
            # Each call works on one root and waits for the next one beside it, so that an error ends all of them.
            root = await roots.get()
            await until_first(work(root), work_on_next())

        self._queues.append(roots)
        try:
            await work_on_next()
        finally:
            self._queues.remove(roots)


_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")

# An idle thread of a root ends after this.
REST_S = 10.0


def on_disk(root: bytes, work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
    """Run `work` on a thread of this root, at once; return a future of its result or exception.

    A caller that is cancelled does not wait for the thread, and a thread that hangs does not keep the process alive:
    the interpreter joins an executor's threads at exit, so these are daemon threads of our own.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if not result.done():
            result.set_exception(error) if error else result.set_result(value)
        # The thread that was given up is back: the root can be used again.
        elif _LATE.get(root) is result:
            del _LATE[root]

    def run() -> None:
        value, failure = None, None
        try:
            value = work(*arguments)
        except BaseException as error:  # noqa: BLE001 - raised again by the future
            failure = error
        # A closed loop raises RuntimeError, and then nobody waits for the result.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, value, failure)

    _POOLS.setdefault(root, _Pool(root)).put(run)
    return result


class NoAnswerError(OSError):
    """A root did not answer in time, or is still working on the call that did not end in time."""


async def in_time(root: bytes, work: Callable[..., T], *arguments: Any, patience_s: float = HANGING_S) -> T:
    """Run `work` on a thread of this root; return its result, or raise what it raises.

    Raises NoAnswerError when that takes longer than `patience_s`, and at once for later calls until the thread is back:
    each further call would cost one of the root's few threads.
    """
    if is_late(root):
        raise NoAnswerError(errno.ETIMEDOUT, "it has not answered for long")
    result = on_disk(root, work, *arguments)

    def give_up() -> None:
        if not result.done():
            _LATE[root] = result
            _LOGGER.warning("%s does not answer: its JOBs are not read until it does", os.fsdecode(root))
            result.set_exception(NoAnswerError(errno.ETIMEDOUT, f"it did not answer within {patience_s:g} s"))

    timer = asyncio.get_running_loop().call_later(patience_s, give_up)
    try:
        return await result
    finally:
        timer.cancel()


def is_late(root: bytes) -> bool:
    """Return True if a call of `in_time` for this root gave up and its thread is still busy."""
    late = _LATE.get(root)
    return late is not None and not late.get_loop().is_closed()


class _Pool:
    """Threads of one root, and the queue of work for them."""

    def __init__(self, root: bytes) -> None:
        self._name = f"files of {root!r}"
        # Calls in the order of `put`.
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards both counters: a thread ends only if it sees the queue empty under it
        self._pending = 0  # calls that are queued or running
        self._threads = 0  # running or idle threads, at most ROOT_THREADS

    def put(self, run: Callable[[], None]) -> None:
        """Queue `run`, and start a thread if there is none for it."""
        with self._lock:
            self._pending += 1
            is_short = self._threads < min(ROOT_THREADS, self._pending)
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
                    # `put` may have queued a call since the timeout, and have counted on this thread.
                    if self._queue.empty():
                        self._threads -= 1
                        return
                continue
            run()
            del run  # an idle thread must not keep the call's objects alive
            with self._lock:
                self._pending -= 1


# By root. Threads outlive event loops, so these tables belong to the process.
_POOLS: dict[bytes, _Pool] = {}
# By root: the call that did not end in time. The entry goes when its thread is back.
_LATE: dict[bytes, asyncio.Future[Any]] = {}
