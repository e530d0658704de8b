"""A TCP relay that counts what passes, each way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

READ_BYTES = 1 << 18


@dataclass(slots=True)
class Counted:
    """Bytes that a relay has passed on: `down` from the board to the host, `up` the other way."""

    address: str
    down: int = 0
    up: int = 0


@asynccontextmanager
async def counting(address: str) -> AsyncIterator[Counted]:
    """A relay to the daemon at `address`; its own address and counts."""
    host, _, port = address.rpartition(":")
    counted = Counted("")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        await asyncio.gather(_pass(reader, back, counted, "up"), _pass(there, writer, counted, "down"))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    counted.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield counted
    finally:
        server.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counted: Counted, way: str) -> None:
    try:
        while data := await reader.read(READ_BYTES):
            setattr(counted, way, getattr(counted, way) + len(data))
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # the other side has left
    finally:
        writer.close()
