"""What the event loop waits for: time, the first of several works, the roots and their threads."""

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
    """Wall clock, monotonic clock and waiting."""

    def wall_us(self) -> int:
        """Real-time clock in microseconds since the Unix epoch; it may jump."""

    def monotonic(self) -> float:
        """Seconds that never go back; the zero is arbitrary."""

    async def sleep(self, delay_s: float) -> None:
        """Wait for `delay_s` seconds of the monotonic clock."""


class SystemClock:
    """The clocks of this machine."""

    def wall_us(self) -> int:
        """Microseconds since the Unix epoch."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    async def sleep(self, delay_s: float) -> None:
        """Wait on the running loop."""
        await asyncio.sleep(delay_s)


class ClockReading(NamedTuple):
    """Both clocks, read one right after the other."""

    monotonic: float
    wall_us: int

    def seen(self, changed_wall_us: int) -> float:
        """Monotonic time of a change that the wall clock dates; a date in the future counts as now."""
        return self.monotonic - max(0, self.wall_us - changed_wall_us) / US_PER_S


def moment(clock: DaemonClock) -> ClockReading:
    """Both clocks now."""
    return ClockReading(clock.monotonic(), clock.wall_us())


async def until_first(*works: Coroutine[Any, Any, object]) -> None:
    """Run all of them until the first returns or fails; then cancel the others and wait for their end.

    What the first one raised is raised again. When the caller is cancelled, all are.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    failed = [each for task, each in zip(tasks, results) if task in done and isinstance(each, BaseException)]
    if failed:
        raise failed[0]


class Roots:
    """The directories below which JOBs are looked for: absolute paths without links, as they were named."""

    def __init__(self, roots: Iterable[bytes]) -> None:
        self._roots = list(roots)
        self._waiting: list[asyncio.Queue[bytes]] = []

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._roots)

    def __len__(self) -> int:
        return len(self._roots)

    def add(self, root: bytes) -> None:
        """Works that run for each root begin for this one."""
        self._roots.append(root)
        for each in self._waiting:
            each.put_nowait(root)

    async def each(self, work: Callable[[bytes], Coroutine[Any, Any, None]]) -> None:
        """Do the work for each root that there is or comes, all at once; what the first one raises is raised."""
        roots: asyncio.Queue[bytes] = asyncio.Queue()
        for root in self._roots:
            roots.put_nowait(root)

        async def work_on_next() -> None:
            root = await roots.get()
            await until_first(work(root), work_on_next())

        self._waiting.append(roots)
        try:
            await work_on_next()
        finally:
            self._waiting.remove(roots)


_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")

REST_S = 10.0


def on_disk(root: bytes, work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
    """What `work` gives or raises, on a thread of this root; it begins at once.

    Whoever is cancelled does not wait for the thread, and a thread that hangs does not keep the process alive.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if not result.done():
            result.set_exception(error) if error else result.set_result(value)
        elif _LATE.get(root) is result:
            del _LATE[root]

    def run() -> None:
        value, failure = None, None
        try:
            value = work(*arguments)
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            failure = error
        # Where the loop is closed nobody waits any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, value, failure)

    _POOLS.setdefault(root, _Pool(root)).put(run)
    return result


class NoAnswerError(OSError):
    """A root did not answer in time, or has not answered yet since then."""


async def in_time(root: bytes, work: Callable[..., T], *arguments: Any, patience_s: float = HANGING_S) -> T:
    """What `work` gives or raises. NoAnswerError when that takes too long, and for whatever comes until it is over."""
    if is_late(root):
        raise NoAnswerError(errno.ETIMEDOUT, "it has not answered for long")
    result = on_disk(root, work, *arguments)

    def give_up() -> None:
        if not result.done():
            _LATE[root] = result
            _LOGGER.warning("%s does not answer: what is there waits", os.fsdecode(root))
            result.set_exception(NoAnswerError(errno.ETIMEDOUT, f"it did not answer within {patience_s:g} s"))

    timer = asyncio.get_running_loop().call_later(patience_s, give_up)
    try:
        return await result
    finally:
        timer.cancel()


def is_late(root: bytes) -> bool:
    """Whether work that was to be done in time has still not ended."""
    late = _LATE.get(root)
    return late is not None and not late.get_loop().is_closed()


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
                    if self._queue.empty():
                        self._threads -= 1
                        return
                continue
            run()
            del run  # what it holds is not kept while the thread rests
            with self._lock:
                self._pending -= 1


_POOLS: dict[bytes, _Pool] = {}
_LATE: dict[bytes, asyncio.Future[Any]] = {}
