"""A TCP proxy that breaks what passes through it, on a thread of its own, as the test that owns it says."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.faults.connection import BOTH, Connection, Ending, Faults, Way, reset

__all__ = ["BOTH", "Ending", "FaultProxy", "Faults", "Way"]

T = TypeVar("T")

# A link that is slow does not hide megabytes in the kernel.
BUFFER_BYTES = 32 << 10
CALL_S = 30.0


class FaultProxy:
    """Stands between a host and a board; a context manager. Its methods are for the test's thread."""

    def __init__(self, target: str, seed: int, faults: Faults | None = None) -> None:
        """`target` is the board's HOST:PORT; nobody need listen there yet."""
        self.faults = faults or Faults()
        self.address = ""
        self.accepted = 0
        self.carried = dict.fromkeys(Way, 0)
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._chance = random.Random(seed)
        self._connections: set[Connection] = set()
        self._stalled: frozenset[Way] = frozenset()
        self._tasks: set[asyncio.Task[None]] = set()
        self._progress = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy")

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._on_loop(self._listen())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._on_loop(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self, ending: Ending) -> int:
        """End every connection; how many there were."""
        return self._each(lambda connection: connection.end(ending))

    def stall(self, ways: frozenset[Way] = BOTH) -> None:
        """Let nothing pass in these directions, in connections that are made later neither, and close none."""
        self._stalled = ways
        self._each(lambda connection: connection.stall(ways))

    def resume(self) -> None:
        """Let everything pass again."""
        self.stall(frozenset())

    def heal(self) -> None:
        """No fault any more, in connections that are made from now on and in those that can be mended."""
        self.faults.delay_s = 0.0
        self.faults.bytes_per_s = self.faults.reset_within_bytes = None
        self.faults.flips_left = 0
        self.resume()

    def abandon(self, ways: frozenset[Way] = BOTH) -> int:
        """Let nothing pass ever again in the connections that there are, and close none; how many there were."""
        return self._each(lambda connection: connection.abandon(ways))

    def half_close(self, way: Way) -> int:
        """End one direction of every connection; how many there were."""
        return self._each(lambda connection: connection.half_close(way))

    def has_accepted(self, count: int) -> bool:
        """Wait for so many connections since the beginning."""
        return self.wait_for(lambda: self.accepted >= count)

    def wait_for(self, holds: Callable[[], bool], timeout_s: float = 60.0) -> bool:
        """Wait until something holds that changes as bytes pass; False when it does not in time."""
        with self._progress:
            return self._progress.wait_for(holds, timeout_s)

    def _each(self, act: Callable[[Connection], None]) -> int:
        async def acted() -> int:
            for connection in self._connections:
                act(connection)
            return len(self._connections)

        return self._on_loop(acted())

    def _on_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_S)

    async def _listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    async def _end(self) -> None:
        self._server.close()
        for connection in self._connections:
            connection.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            board = await self._connect()
        except OSError:
            reset(writer)
            return
        connection = Connection((reader, writer), board, self.faults, self._chance, self._pass)
        connection.stall(self._stalled)
        self._connections.add(connection)
        self.accepted += 1
        self._note()
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            self._note()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        sock = socket.socket()
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            await self._loop.sock_connect(sock, self._target)
        except BaseException:
            sock.close()
            raise
        return await asyncio.open_connection(sock=sock)

    def _pass(self, way: Way, count: int) -> None:
        self.carried[way] += count
        self._note()

    def _note(self) -> None:
        with self._progress:
            self._progress.notify_all()
