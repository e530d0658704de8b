"""Clients that do a daemon no good, each from an address of its own: for tests of what they cost it.

Over TLS each has a certificate of its own.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import grpc
import grpc.aio

from profagent_wire.v1 import board_pb2 as wire
from tests.daemon.wire_client import Client, message

BEAT_S = 2.0
PAUSE_S = 0.2
RELAY_BYTES = 1 << 16
FOLLOW = "/profagent_wire.v1.Board/Follow"
# Every client has a channel, and so a connection, of its own.
OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 200))

Stream = grpc.aio.StreamStreamCall[Any, Any]


@dataclass(frozen=True)
class Door:
    """Where a client finds the daemon, and with what it is let in; without credentials in plain text."""

    address: str
    credentials: grpc.ChannelCredentials | None = None

    def channel(self) -> grpc.aio.Channel:
        """A connection of the client's own."""
        if self.credentials is None:
            return grpc.aio.insecure_channel(self.address, options=OPTIONS)
        return grpc.aio.secure_channel(self.address, self.credentials, options=OPTIONS)

    async def socket(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Bare TCP."""
        host, _, port = self.address.rpartition(":")
        return await asyncio.open_connection(host, int(port))


# Turns of the loop in which what was accepted becomes a connection.
ACCEPTING_TURNS = 3
# Turns of the loop in which what was begun, or cancelled, comes to its end.
ENDING_TURNS = 50

Behaviour = Callable[[Door], Awaitable[None]]


@asynccontextmanager
async def from_address(source: str, target: str) -> AsyncIterator[str]:
    """An address that leads to `target`, which sees its connections come from `source`."""
    host, _, port = target.rpartition(":")
    relays: set[asyncio.Task[None]] = set()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there, back = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
            try:
                await asyncio.gather(_pump(reader, back), _pump(there, writer))
            finally:
                back.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(relay(reader, writer))
        relays.add(task)
        # One that is cancelled before it begins has nothing else to close it.
        task.add_done_callback(lambda _: writer.transport.abort())
        task.add_done_callback(relays.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        # A connection that was accepted this moment needs an open server: asyncio would leave its socket unclosed.
        asyncio.get_running_loop().remove_reader(server.sockets[0].fileno())
        for _ in range(ACCEPTING_TURNS):
            await asyncio.sleep(0)
        server.close()
        for _ in range(ENDING_TURNS):
            for task in relays:
                task.cancel()
            # Connections that were accepted a moment ago begin, and what was aborted is closed.
            await asyncio.sleep(0)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(RELAY_BYTES):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


async def never_acknowledges(door: Door) -> None:
    """Take everything, say that nothing is durable."""
    async with _following(door) as client:
        client.acknowledges = False
        await client.start()
        await client.until(lambda: False, patience_s=float("inf"))


async def never_answers(door: Door) -> None:
    """Follow every JOB, and leave every question about its logs open."""
    async with _following(door) as client:
        client.answers = False
        await client.start()
        beat = asyncio.create_task(_beat(client.call))
        try:
            await client.until(lambda: False, patience_s=float("inf"))
        finally:
            beat.cancel()


async def never_reads(door: Door) -> None:
    """Follow every JOB, hold every log that there may be, and read nothing."""
    async with _following(door) as client:
        await client.start()
        await client.until(lambda: client.is_listed)
        await client.until(lambda: client.open_logs > 0)
        await _beat(client.call)


async def opens_and_closes(door: Door) -> None:
    """Open streams and leave them at once, without end."""
    while True:
        async with _following(door) as client:
            await client.start()
            await client.until(lambda client=client: client.welcome is not None)  # type: ignore[misc]


async def selects_and_unselects(door: Door) -> None:
    """Follow a JOB and follow it no longer, without end."""
    async with _following(door) as client:
        await client.start()
        await client.until(lambda: client.is_listed)
        follow = message(select=wire.Select(follow=[1]))
        unfollow = message(select=wire.Select(unfollow=[1]))
        reading = asyncio.create_task(_read_all(client.call))
        try:
            while True:
                await client.say(follow)
                await client.say(unfollow)
        finally:
            reading.cancel()


async def sends_garbage(door: Door) -> None:
    """Send messages that are none, and bytes that are not HTTP/2."""
    dice = random.Random(1)
    while True:
        async with door.channel() as channel:
            call: Stream = channel.stream_stream(FOLLOW)()
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
                await call.write(dice.randbytes(dice.randint(1, 3 << 20)))
                await call.read()
            call.cancel()
        with suppress(OSError):
            _, writer = await door.socket()
            try:
                writer.write(dice.randbytes(1 << 16))
                await writer.drain()
                await asyncio.sleep(PAUSE_S)
            finally:
                writer.transport.abort()


async def says_nothing(door: Door) -> None:
    """Connect, and no more; again when cut off."""
    while True:
        with suppress(OSError):
            reader, writer = await door.socket()
            try:
                await reader.read()
            finally:
                writer.transport.abort()
        await asyncio.sleep(PAUSE_S)


async def opens_nothing(door: Door) -> None:
    """Call Follow, and send no first message."""
    async with door.channel() as channel:
        call: Stream = channel.stream_stream(FOLLOW)()
        await call.wait_for_connection()
        await call.read()


async def stays_in_its_handshake(door: Door) -> None:
    """Begin a handshake of TLS, answer nothing, and begin the next when cut off."""
    while True:
        out = ssl.MemoryBIO()
        session = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost")
        with suppress(ssl.SSLWantReadError):
            session.do_handshake()
        with suppress(OSError):
            reader, writer = await door.socket()
            try:
                writer.write(out.read())
                while await reader.read(RELAY_BYTES):
                    pass
            finally:
                writer.transport.abort()
        await asyncio.sleep(PAUSE_S)


BEHAVIOURS: tuple[Behaviour, ...] = (
    never_acknowledges,
    never_answers,
    never_reads,
    opens_and_closes,
    selects_and_unselects,
    sends_garbage,
    says_nothing,
    opens_nothing,
)


async def misbehave(behaviour: Behaviour, number: int, target: Door) -> None:
    """Behave so against the daemon until cancelled, from an address of its own; again when thrown out."""
    async with from_address(f"127.0.{1 + number // 200}.{1 + number % 200}", target.address) as address:
        door = replace(target, address=address)
        while True:
            with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError, AssertionError):
                await behaviour(door)
            await asyncio.sleep(PAUSE_S)


@asynccontextmanager
async def _following(door: Door) -> AsyncIterator[Client]:
    async with door.channel() as channel:
        call = channel.stream_stream(FOLLOW, wire.ClientMessage.SerializeToString, wire.ServerMessage.FromString)()
        try:
            yield Client(call)
        finally:
            call.cancel()


async def _beat(call: Stream) -> None:
    while True:
        await call.write(message(heartbeat=wire.Heartbeat()))
        await asyncio.sleep(BEAT_S)


async def _read_all(call: Stream) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass
