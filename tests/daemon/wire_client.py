"""A small client of the board's service, which keeps copies in memory and holds the server to its contract."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, cast

import grpc
import grpc.aio

from profagent_wire.v1 import board_pb2 as wire
from profagent_wire.v1.board_pb2_grpc import BoardStub

if TYPE_CHECKING:
    from profagent_wire.v1.board_pb2_grpc import BoardAsyncStub

# Much more than anything takes; a test that waits so long has failed.
PATIENCE_S = 40.0
WINDOW = 4096
PAGE = 1000
CHUNK_BYTES = 256 * 1024

Key = tuple[str, bytes]


def digest(data: bytes) -> bytes:
    """The wire's digest."""
    return hashlib.blake2b(data, digest_size=16).digest()


def message(**parts: object) -> wire.ClientMessage:
    """A client's message."""
    return wire.ClientMessage(**parts)  # type: ignore[arg-type]


def open_message(consumer: str = "test", major: int = 1, minor: int = 0) -> wire.ClientMessage:
    """The first message of a stream."""
    version = wire.ProtocolVersion(major=major, minor=minor)
    return message(open=wire.Open(protocol=version, consumer=consumer, client="wire_client 1"))


def in_parts(event: wire.Event) -> Iterator[wire.Event]:
    """What comes with the start of a log, as if it came after it."""
    yield event
    begun = event.started
    if begun.data:
        yield wire.Event(
            chunk=wire.Chunk(handle=begun.handle, generation=begun.generation, offset=begun.offset, data=begun.data)
        )
    if begun.digest:
        size = begun.offset + len(begun.data)
        yield wire.Event(
            completed=wire.Completed(handle=begun.handle, generation=begun.generation, size=size, digest=begun.digest)
        )


@dataclass
class Copy:
    """What the client holds of one log."""

    kind: int = 0
    generation: int = 0
    data: bytearray = field(default_factory=bytearray)
    starts: list[int] = field(default_factory=list)  # reasons
    completed: int = 0  # how often
    is_complete: bool = False
    is_removed: bool = False
    removed: wire.Removed | None = None
    announced: int = 0  # how often


class Client:
    """One Follow stream. `wants` decides what is answered to an announced log."""

    def __init__(self, call: grpc.aio.StreamStreamCall[Any, Any]) -> None:
        self.call = call
        self.unasked: list[Key] = []
        self.copies: dict[Key, Copy] = {}
        self.jobs: dict[str, wire.JobStatus] = {}
        self.states: list[tuple[str, int]] = []
        self.losses: list[wire.Loss] = []
        self.heartbeats: list[wire.Heartbeat] = []
        self.released: list[int] = []
        self.synced = 0  # the number of the Sync that was answered last
        self.is_listed = False
        self.goodbye: wire.Goodbye | None = None
        self.welcome: wire.Welcome | None = None
        self.chunks = 0
        self.is_mute = False
        self.acknowledges = True
        self.answers = True
        self.follows: Callable[[str], bool] = lambda _: True
        self.wants: Callable[[Key], bool] = lambda _: True
        self._open: dict[int, Key] = {}  # announced and not over
        self._names: dict[int, str] = {}
        self._last_handle = 0
        self._passed_over: set[int] = set()  # handles of logs that come unasked, though not as this client wants

    async def start(self, consumer: str = "test") -> None:
        """Open the stream."""
        await self.say(open_message(consumer))

    async def say(self, said: wire.ClientMessage) -> None:
        """Send a message, unless the server was asked to end the stream: gRPC would then hide its status by its own."""
        if not self.is_mute:
            await self.call.write(said)

    async def until(self, is_so: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        """Take messages until something is so."""

        async def take() -> None:
            while not is_so():
                received = await self.call.read()
                assert received is not grpc.aio.EOF, f"the stream ended: {await self.call.code()}"
                await self.take(cast("wire.ServerMessage", received))

        await asyncio.wait_for(take(), patience_s)

    async def until_ended(self) -> grpc.StatusCode:
        """Take messages until the server ends the stream; its status."""

        async def take() -> grpc.StatusCode:
            with suppress(grpc.aio.AioRpcError):
                while (received := await self.call.read()) is not grpc.aio.EOF:
                    await self.take(cast("wire.ServerMessage", received))
            return await self.call.code()

        return await asyncio.wait_for(take(), PATIENCE_S)

    async def take(self, received: wire.ServerMessage) -> None:
        """Take one message, check it, and answer it."""
        kind = received.WhichOneof("message")
        assert kind is not None
        assert received.ByteSize() < 4 * 1024 * 1024
        await getattr(self, f"_on_{kind}")(getattr(received, kind))

    def copy(self, name: str, job: str | None = None) -> Copy:
        """The copy of a file of `data/` in the only, or the named, JOB."""
        return self.copies[self.key(name, job)]

    def has(self, name: str, job: str | None = None) -> bool:
        """Whether that log is known."""
        return self.key(name, job) in self.copies

    def key(self, name: str, job: str | None = None) -> Key:
        """The key of a file of `data/`."""
        return (job or next(iter(self.jobs), ""), b"data/" + name.encode())

    def mirror(self, job: str) -> dict[bytes, bytes]:
        """The bytes held of each path of a JOB that is not removed."""
        copies = {path: copy for (name, path), copy in self.copies.items() if name == job}
        return {path: bytes(copy.data) for path, copy in copies.items() if not copy.is_removed}

    async def _on_welcome(self, welcome: wire.Welcome) -> None:
        self.welcome = welcome

    async def _on_jobs_listed(self, _: wire.JobsListed) -> None:
        self.is_listed = True

    async def _on_heartbeat(self, heartbeat: wire.Heartbeat) -> None:
        self.heartbeats.append(heartbeat)
        await self.say(message(heartbeat=wire.Heartbeat()))

    async def _on_synced(self, synced: wire.Synced) -> None:
        self.synced = synced.number

    async def _on_goodbye(self, goodbye: wire.Goodbye) -> None:
        self.goodbye = goodbye

    async def _on_job_status(self, status: wire.JobStatus) -> None:
        is_new = status.handle not in self._names
        self._names[status.handle] = status.name
        self.jobs[status.name] = status
        self.states.append((status.name, status.state))
        if is_new and self.follows(status.name):
            await self.say(message(select=wire.Select(follow=[status.handle])))

    async def _on_announced(self, announced: wire.Announced) -> None:
        assert announced.logs
        await self._announce(announced.logs, is_asked=True)

    async def _announce(self, logs: Sequence[wire.AnnouncedLog], *, is_asked: bool) -> None:
        assert len(logs) <= PAGE
        holdings = []
        for log in logs:
            assert log.handle > self._last_handle, "handles are not used twice"
            self._last_handle = log.handle
            key = (self._names[log.job], log.path)
            assert key not in self._open.values(), "a log has one handle at a time"
            self._open[log.handle] = key
            holding = self._holding(log, key)
            if not is_asked:
                self.unasked.append(key)
            elif holding.skip:
                del self._open[log.handle]
            if is_asked or holding.skip or holding.generation:
                holdings.append(holding)
                self._passed_over |= set() if is_asked else {log.handle}
        assert len(self._open) <= WINDOW
        if self.answers and holdings:
            await self.say(message(holdings=wire.Holdings(logs=holdings)))

    def _holding(self, log: wire.AnnouncedLog, key: Key) -> wire.Holding:
        copy = self.copies.setdefault(key, Copy())
        copy.kind = log.kind
        copy.announced += 1
        copy.is_removed = False
        if not self.wants(key):
            return wire.Holding(handle=log.handle, skip=True)
        return wire.Holding(
            handle=log.handle, generation=copy.generation, offset=len(copy.data), prefix_digest=digest(bytes(copy.data))
        )

    async def _on_batch(self, batch: wire.Batch) -> None:
        assert batch.made or batch.events
        assert sum(len(event.chunk.data) + len(event.started.data) for event in batch.events) <= CHUNK_BYTES
        await self._announce(batch.made, is_asked=False)
        acknowledged = []
        for event in itertools.chain.from_iterable(map(in_parts, batch.events)):
            kind = event.WhichOneof("event")
            assert kind is not None
            said = getattr(event, kind)
            if said.handle in self._passed_over and kind != "removed":
                continue
            self._passed_over.discard(said.handle)
            acknowledgement = getattr(self, f"_on_{kind}")(said)
            acknowledged += [acknowledgement] if acknowledgement else []
        if acknowledged and self.acknowledges:
            await self.say(message(acknowledge=wire.Acknowledge(logs=acknowledged)))

    def _on_started(self, started: wire.Started) -> None:
        copy = self.copies[self._open[started.handle]]
        copy.starts.append(started.reason)
        if started.reason in (wire.START_REASON_NEW, wire.START_REASON_SAME):
            assert started.offset == len(copy.data)
            assert started.generation == (copy.generation or 1)
        else:
            assert started.offset == 0
            assert started.generation == copy.generation + 1
            copy.data.clear()
        copy.generation = started.generation
        copy.is_complete = False

    def _on_chunk(self, chunk: wire.Chunk) -> wire.Acknowledgement:
        copy = self.copies[self._open[chunk.handle]]
        assert 0 < len(chunk.data) <= CHUNK_BYTES
        assert (chunk.generation, chunk.offset) == (copy.generation, len(copy.data))
        copy.data += chunk.data
        copy.is_complete = False
        self.chunks += 1
        return wire.Acknowledgement(handle=chunk.handle, generation=chunk.generation, offset=len(copy.data))

    def _on_completed(self, completed: wire.Completed) -> wire.Acknowledgement:
        copy = self.copies[self._open[completed.handle]]
        assert (completed.generation, completed.size) == (copy.generation, len(copy.data))
        assert completed.digest == digest(bytes(copy.data))
        copy.is_complete = True
        copy.completed += 1
        return wire.Acknowledgement(
            handle=completed.handle, generation=completed.generation, offset=completed.size, complete=True
        )

    def _on_removed(self, removed: wire.Removed) -> None:
        copy = self.copies[self._open.pop(removed.handle)]
        copy.is_removed = True
        copy.removed = removed

    def _on_loss(self, loss: wire.Loss) -> None:
        self.losses.append(loss)

    async def _on_released(self, released: wire.Released) -> None:
        assert 0 < len(released.handles) <= PAGE
        for handle in released.handles:
            self._open.pop(handle)
            self._passed_over.discard(handle)
            self.released.append(handle)

    @property
    def open_logs(self) -> int:
        """Logs that are announced and not over."""
        return len(self._open)


@asynccontextmanager
async def connect(address: str, credentials: grpc.ChannelCredentials | None = None) -> AsyncIterator[BoardAsyncStub]:
    """The service at an address; with credentials over TLS."""
    options = [("grpc.max_receive_message_length", 4 * 1024 * 1024)]
    opened = (
        grpc.aio.secure_channel(address, credentials, options=options)
        if credentials
        else grpc.aio.insecure_channel(address, options=options)
    )
    async with opened as channel:
        yield cast("BoardAsyncStub", BoardStub(channel))


@asynccontextmanager
async def following(address: str, credentials: grpc.ChannelCredentials | None = None) -> AsyncIterator[Client]:
    """A client whose stream is not opened yet; it is cancelled at the end."""
    async with connect(address, credentials) as stub:
        call = stub.Follow()
        try:
            yield Client(call)
        finally:
            call.cancel()
