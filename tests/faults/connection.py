"""One connection through the fault proxy: what comes on one side goes out on the other, with what befalls it."""

from __future__ import annotations

import asyncio
import enum
import random
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

READ_BYTES = 16 << 10
# Pieces under way in one direction: with a delay of 0.2 s far more than a test's link carries.
PIECES = 64
# At a limited rate, pieces go out this often.
TICK_S = 0.05
_RESET = struct.pack("ii", 1, 0)


class Way(enum.Enum):
    """A direction."""

    UP = "to the board"
    DOWN = "to the host"


BOTH = frozenset(Way)


class Ending(enum.Enum):
    """How a connection ends."""

    FIN = "fin"
    RST = "rst"


@dataclass
class Faults:
    """How bytes are treated, and what that came to; a test changes it while they pass."""

    delay_s: float = 0.0
    bytes_per_s: float | None = None
    # A connection is reset after 1 to so many bytes for the host, drawn for each.
    reset_within_bytes: int | None = None
    # One bit is turned in about so many bytes, `flips_left` times in all.
    flip_each_bytes: int = 0
    flips_left: int = 0
    resets: int = 0
    flips: int = 0


class Connection:
    """Lives on the proxy's loop; `run` lasts until both directions have ended or `end` was called."""

    def __init__(
        self,
        host: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        board: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        faults: Faults,
        chance: random.Random,
        passed: Callable[[Way, int], None],
    ) -> None:
        """`passed` is told of bytes that go out."""
        self._from = {Way.UP: host[0], Way.DOWN: board[0]}
        self._to = {Way.UP: board[1], Way.DOWN: host[1]}
        self._faults = faults
        self._chance = chance
        self._passed = passed
        self._flows = {way: asyncio.Event() for way in Way}
        self._over = asyncio.Event()
        self._abandoned: frozenset[Way] = frozenset()
        self._until_reset = chance.randint(1, faults.reset_within_bytes) if faults.reset_within_bytes else None
        self._until_flip = {way: self._next_flip() for way in Way}

    async def run(self) -> None:
        """Carry bytes; both sockets are closed afterwards."""
        pumps = [asyncio.ensure_future(self._pump(way)) for way in Way]
        over = asyncio.ensure_future(self._over.wait())
        both = asyncio.ensure_future(asyncio.wait(pumps))
        try:
            await asyncio.wait([both, over], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*pumps, both, over):
                task.cancel()
            await asyncio.gather(*pumps, both, over, return_exceptions=True)
            await self._close()

    async def _close(self) -> None:
        """Bytes that were sent on still go out, unless this is cancelled."""
        try:
            for writer in self._to.values():
                writer.close()
            await asyncio.gather(*(writer.wait_closed() for writer in self._to.values()), return_exceptions=True)
        except asyncio.CancelledError:
            self.abort()
            raise

    def abort(self) -> None:
        """Close both sockets whatever is still to be sent."""
        for writer in self._to.values():
            writer.transport.abort()

    def end(self, ending: Ending) -> None:
        """Close both sides."""
        for writer in self._to.values():
            if ending is Ending.RST:
                reset(writer)
        self._over.set()

    def stall(self, ways: frozenset[Way]) -> None:
        """Let nothing pass in these directions, and everything in the others."""
        for way, flow in self._flows.items():
            if way in ways or way in self._abandoned:
                flow.clear()
            else:
                flow.set()

    def abandon(self, ways: frozenset[Way]) -> None:
        """Let nothing pass ever again, and close nothing."""
        self._abandoned = ways
        self.stall(ways)

    def half_close(self, way: Way) -> None:
        """Whoever reads this direction sees its end; the other direction goes on."""
        self._flows[way] = asyncio.Event()
        with suppress(OSError):
            self._to[way].write_eof()

    async def _pump(self, way: Way) -> None:
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(PIECES)
        taking = asyncio.ensure_future(self._take(way, pieces))
        try:
            await self._send(way, pieces)
        except OSError:
            self.end(Ending.RST)
        finally:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)

    async def _take(self, way: Way, pieces: asyncio.Queue[tuple[float, bytes]]) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await self._from[way].read(READ_BYTES):
                await pieces.put((loop.time() + self._faults.delay_s, data))
        except OSError:
            await self._flows[way].wait()
            self.end(Ending.RST)
        else:
            await pieces.put((loop.time() + self._faults.delay_s, b""))

    async def _send(self, way: Way, pieces: asyncio.Queue[tuple[float, bytes]]) -> None:
        loop, writer = asyncio.get_running_loop(), self._to[way]
        while True:
            due, data = await pieces.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            for piece in self._portions(data):
                await self._flows[way].wait()
                if way is Way.DOWN and self._is_reset_by(piece):
                    return
                writer.write(self._flipped(way, piece))
                await writer.drain()
                self._passed(way, len(piece))
                if self._faults.bytes_per_s:
                    await asyncio.sleep(len(piece) / self._faults.bytes_per_s)
            if not data:
                await self._flows[way].wait()
                writer.write_eof()
                return

    def _portions(self, data: bytes) -> list[bytes]:
        rate = self._faults.bytes_per_s
        size = max(1, int(rate * TICK_S)) if rate else READ_BYTES
        return [data[at : at + size] for at in range(0, len(data), size)]

    def _is_reset_by(self, piece: bytes) -> bool:
        """Whether the connection ends within these bytes; those up to the very place are sent."""
        if self._until_reset is None:
            return False
        at, self._until_reset = self._until_reset, self._until_reset - len(piece)
        if self._until_reset > 0:
            return False
        self._to[Way.DOWN].write(piece[:at])
        self._faults.resets += 1
        self.end(Ending.RST)
        self._passed(Way.DOWN, at)
        return True

    def _flipped(self, way: Way, piece: bytes) -> bytes:
        """The bytes as they are sent on: a bit of them may be turned."""
        damaged = bytearray(piece)
        while self._until_flip[way] < len(piece) and self._faults.flips_left:
            damaged[self._until_flip[way]] ^= 1 << self._chance.randrange(8)
            self._until_flip[way] += 1 + self._next_flip()
            self._faults.flips_left -= 1
            self._faults.flips += 1
        self._until_flip[way] = max(0, self._until_flip[way] - len(piece))
        return bytes(damaged)

    def _next_flip(self) -> int:
        return self._chance.randrange(2 * self._faults.flip_each_bytes + 1)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection so that its peer is told of a reset."""
    sock = writer.get_extra_info("socket")
    if sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
