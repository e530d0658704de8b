"""The daemon's caps at their edge and past it, by real clients; what a cap's text says is the number of its table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from profagent_wire.v1 import board_pb2 as wire
from profagentd import limits
from tests.daemon.daemon_process import Daemon, make_job, running
from tests.daemon.wire_client import Client, message, open_message
from tests.daemon.wire_client import following as connected
from tests.fakes.misbehaving import FOLLOW, OPTIONS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "wire.md"
KIB = 1024

Raw = grpc.aio.StreamStreamCall[Any, Any]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that serves an empty JOB."""
    make_job(tmp_path)
    with running("--root", tmp_path, "--log-level", "error") as started:
        yield started


async def called(address: str, stack: AsyncExitStack) -> Client:
    """A stream on a connection of its own, on which nothing is said; it ends with the stack."""
    channel = await stack.enter_async_context(grpc.aio.insecure_channel(address, options=OPTIONS))
    call = channel.stream_stream(FOLLOW, wire.ClientMessage.SerializeToString, wire.ServerMessage.FromString)()
    stack.callback(call.cancel)
    return Client(call)


async def opened(address: str, stack: AsyncExitStack) -> Client:
    """The same, with its first message sent."""
    client = await called(address, stack)
    with suppress(grpc.aio.AioRpcError):  # it may have been refused already
        await client.start()
    return client


async def is_welcomed(client: Client) -> bool:
    """Whether the daemon lets the stream in."""
    try:
        return await client.call.read() is not grpc.aio.EOF
    except grpc.aio.AioRpcError:
        return False


async def refusal(client: Client) -> tuple[grpc.StatusCode, str]:
    """How the daemon ends the stream."""
    client.is_mute = True
    return await client.until_ended(), await client.call.details()


def padded(size: int) -> bytes:
    """A Heartbeat of so many bytes, most of them in a field that nobody knows."""
    beat = message(heartbeat=wire.Heartbeat()).SerializeToString()
    for padding in range(size, 0, -1):
        length, left = b"", padding
        while left:
            length += bytes([(left & 0x7F) | (0x80 if left > 0x7F else 0)])
            left >>= 7
        whole = beat + b"\xfa\x7f" + length
        if len(whole) + padding == size:
            return whole + bytes(padding)
    raise AssertionError(size)


async def test_a_client_has_eight_streams_and_no_more(daemon: Daemon) -> None:
    async with AsyncExitStack() as stack:
        clients = [await opened(daemon.address, stack) for _ in range(limits.STREAMS_OF_A_CLIENT)]
        for client in clients:
            await client.until(lambda client=client: client.is_listed)  # type: ignore[misc]
        code, text = await refusal(await called(daemon.address, stack))
        assert (code, text) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "8 streams of this client are open already")
        clients[0].call.cancel()
        while not await is_welcomed(await opened(daemon.address, stack)):
            pass  # the daemon has not seen yet that one is over


async def test_a_clients_message_is_of_256_kib_and_no_more(daemon: Daemon) -> None:
    async with grpc.aio.insecure_channel(daemon.address) as channel:
        call: Raw = channel.stream_stream(FOLLOW)()
        await call.write(open_message().SerializeToString())
        await call.write(padded(limits.MAX_CLIENT_MESSAGE_BYTES))
        for _ in range(3):  # Welcome, the JOB, JobsListed
            assert await call.read()
        await call.write(padded(limits.MAX_CLIENT_MESSAGE_BYTES + 1))
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert str(limits.MAX_CLIENT_MESSAGE_BYTES) in await call.details()


async def test_a_clients_name_can_stand_in_the_log(daemon: Daemon) -> None:
    for name, is_fine in {"x" * 256: True, "x" * 257: False, "\x1b[2J": False, "\u202eevil": False}.items():
        await _named(daemon, name, is_fine=is_fine)


async def _named(daemon: Daemon, client: str, *, is_fine: bool) -> None:
    async with connected(daemon.address) as follower:
        said = open_message()
        said.open.client = client
        await follower.say(said)
        if is_fine:
            await follower.until(lambda: follower.welcome is not None)
        else:
            code, text = await refusal(follower)
            assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert "256" in text


def test_the_page_about_the_wire_has_every_cap() -> None:
    rows = re.findall(r"^\| ([^|]+?) \| \*\*([\d,]+)(?: (KiB|MiB|/s))?\*\* \|", PAGE.read_text("utf-8"), re.MULTILINE)
    scale = {"": 1, "/s": 1, "KiB": KIB, "MiB": KIB * KIB}
    assert {name: int(number.replace(",", "")) * scale[unit] for name, number, unit in rows} == {
        "a message of the server": limits.MAX_MESSAGE_BYTES,
        "a message of a client": limits.MAX_CLIENT_MESSAGE_BYTES,
        "a chunk's data": limits.CHUNK_BYTES,
        "entries of a message": limits.PAGE_ENTRIES,
        "characters of a consumer's name": 64,
        "characters of a client's name": limits.MAX_CLIENT_NAME,
        "bytes of a log's path": 1024,
        "logs of all streams, announced and not over": limits.COMMON_LOGS,
        "streams of a client": limits.STREAMS_OF_A_CLIENT,
        "streams": limits.STREAMS,
        "connections": limits.CONNECTIONS,
        "connections of an address (of IPv6, a /64 network)": limits.CONNECTIONS_OF_AN_ADDRESS,
        "calls of a connection at a time": limits.STREAMS_OF_A_CONNECTION,
    }
