"""The channel against a real gRPC server."""

from __future__ import annotations

import asyncio
import subprocess
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from profagent.errors import ProtocolError, RefusedError, UnreachableError
from profagent.link.channel import Channel, _translated, connected
from profagent.link.credentials import Access
from profagent.link.messages import JobsListed, Open
from profagent.link.translate import NpuFacts
from profagent_wire.checksum import encode_checked
from profagent_wire.v1 import board_pb2 as pb
from profagent_wire.v1 import board_pb2_grpc
from tests.fakes.ports import own_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class ScriptedBoard(board_pb2_grpc.BoardServicer):
    """Answers calls as the test says; after `messages` it answers a stream, or aborts it with `refusal`."""

    def __init__(self, refusal: tuple[grpc.StatusCode, str] | None = None) -> None:
        self.refusal = refusal
        self.opened: list[str] = []
        self.messages = 1
        self.major = 1

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.Description:
        return pb.Description(identity="scripted", protocol=pb.ProtocolVersion(major=self.major))

    async def Examine(self, request: pb.ExamineRequest, context: Any) -> pb.Examination:
        return pb.Examination(npu=pb.NpuFacts(has_device=True))

    async def MeasureJob(self, request: pb.MeasureJobRequest, context: Any) -> pb.JobMeasure:
        if self.refusal is not None:
            await context.abort(*self.refusal)
        return pb.JobMeasure(logs=len(request.name), bytes=2, inferences=1)

    async def SyncClock(self, request: pb.SyncClockRequest, context: Any) -> pb.SyncClockReply:
        clocks = pb.Clocks(wall_us=1_000, monotonic_us=10)
        return pb.SyncClockReply(received=clocks, sent=pb.Clocks(wall_us=1_001, monotonic_us=11))

    async def Follow(self, requests: AsyncIterator[pb.ClientMessage], context: Any) -> None:  # type: ignore[override]
        async for message in requests:
            self.opened.append(message.open.consumer)
            if len(self.opened) < self.messages:
                continue
            if self.refusal is not None:
                await context.abort(*self.refusal)
            await context.write(pb.ServerMessage())
            await context.write(pb.ServerMessage(jobs_listed=pb.JobsListed()))
            return


@asynccontextmanager
async def serving(board: ScriptedBoard) -> AsyncIterator[str]:
    server = grpc.aio.server()
    board_pb2_grpc.add_BoardServicer_to_server(board, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def test_a_stream_of_a_board_that_is_not_reached_can_be_finished() -> None:
    async with connected(f"127.0.0.1:{own_port()}", Access()) as channel, channel.follow() as stream:
        await stream.finish()
        with pytest.raises(UnreachableError):
            await stream.ready()


async def test_a_board_describes_itself_and_tells_its_clocks() -> None:
    async with serving(ScriptedBoard()) as address, connected(address) as channel:
        assert (await channel.describe()).identity == "scripted"
        received, sent = await channel.clocks()
        assert (received.wall_us, sent.wall_us) == (1_000, 1_001)
        assert (await channel.examine()).npu == NpuFacts(has_device=True)


async def test_of_a_job_that_is_not_there_nothing_is_told() -> None:
    board = ScriptedBoard((grpc.StatusCode.NOT_FOUND, "no"))
    async with serving(board) as address, connected(address) as channel:
        assert await channel.measure("JOB") is None


async def test_a_stream_skips_messages_of_newer_versions_and_tells_its_end() -> None:
    board = ScriptedBoard()
    async with serving(board) as address, connected(address) as channel, channel.follow() as stream:
        await stream.send(Open("me", "test"))
        assert await stream.receive() == JobsListed()
        with pytest.raises(UnreachableError, match="ended the stream"):
            await stream.receive()
    assert board.opened == ["me"]


async def test_who_waits_for_a_stream_that_was_ended_here_is_told_why() -> None:
    board = ScriptedBoard()
    board.messages = 9
    async with serving(board) as address, connected(address) as channel, channel.follow() as stream:
        await stream.send(Open("me", "test"))
        waiting = asyncio.create_task(stream.receive())
        await asyncio.sleep(0)
        stream.cancel("nobody listens")
        with pytest.raises(UnreachableError, match="nobody listens"):
            await waiting


async def damaged(request: bytes, context: Any) -> bytes:
    return b"\xff" * 40


RELEASED = encode_checked(pb.ServerMessage(released=pb.Released(handles=[7])))


@pytest.mark.parametrize("spoilt", [RELEASED.replace(b"\x07", b"\x06"), RELEASED[:-5]], ids=["changed", "unchecked"])
async def test_what_was_damaged_on_the_way_is_no_message(spoilt: bytes) -> None:
    async def damaged_stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for _ in requests:
            yield encode_checked(pb.ServerMessage(jobs_listed=pb.JobsListed()))
            yield spoilt

    server = grpc.aio.server()
    handlers: dict[str, Any] = {
        name: grpc.unary_unary_rpc_method_handler(damaged) for name in ("Describe", "SyncClock")
    }
    handlers["Follow"] = grpc.stream_stream_rpc_method_handler(damaged_stream)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("profagent_wire.v1.Board", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with connected(f"127.0.0.1:{port}") as channel, channel.follow() as stream:
            for call in (channel.describe, channel.clocks):
                with pytest.raises(UnreachableError, match="damaged on the way"):
                    await call()
            await stream.send(Open("me", "test"))
            assert await stream.receive() == JobsListed()
            with pytest.raises(UnreachableError, match="damaged on the way"):
                await stream.receive()
    finally:
        await server.stop(None)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (grpc.StatusCode.FAILED_PRECONDITION, ProtocolError),
        (grpc.StatusCode.INVALID_ARGUMENT, ProtocolError),
        (grpc.StatusCode.UNAUTHENTICATED, RefusedError),
        (grpc.StatusCode.PERMISSION_DENIED, RefusedError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, UnreachableError),
        (grpc.StatusCode.UNAVAILABLE, UnreachableError),
    ],
)
async def test_a_refusal_says_why(code: grpc.StatusCode, error: type[UnreachableError]) -> None:
    async with (
        serving(ScriptedBoard((code, "it is so"))) as address,
        connected(address) as channel,
        channel.follow() as stream,
    ):
        await stream.send(Open("me", "test"))
        with pytest.raises(error, match="it is so") as caught:
            await stream.receive()
        assert caught.type is error


NONE_OF_ALL = "failed to connect to all addresses; last error: UNKNOWN:"
NO_FILE = "no such file or directory"


async def test_nobody_there_is_unreachable() -> None:
    async with serving(ScriptedBoard()) as address:
        pass
    async with connected(address) as channel:
        with pytest.raises(UnreachableError, match=f"{address}: connection refused$"):
            await channel.describe()


async def test_a_host_that_is_not_found_may_be_a_name_that_is_not_known() -> None:
    async with connected("lab1.invalid", Access(insecure=True)) as channel:
        with pytest.raises(UnreachableError, match="the host name cannot be resolved") as error:
            await channel.describe()
    assert "`profagent boards`" in error.value.hint


@pytest.mark.parametrize(
    ("details", "plain"),
    [
        (f"{NONE_OF_ALL} ipv4:1.2.3.4:5: Timeout occurred: FD Shutdown", "no answer"),
        (f"{NONE_OF_ALL} unix:/s: connect failed: addr: unix:/s error: No such file or directory", NO_FILE),
        ("recvmsg:Connection reset by peer", "connection reset by peer"),
        (f"{NONE_OF_ALL} ipv4:1.2.3.4:5: Odd", "Odd"),
        ("the stream is over", "the stream is over"),
    ],
)
def test_grpcs_words_are_told_in_plain_ones(details: str, plain: str) -> None:
    nothing = grpc.aio.Metadata()
    error = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, details)
    assert str(_translated(error, "euler")) == f"cannot reach the board at euler: {plain}"


@pytest.fixture
def credentials(tmp_path: Path) -> grpc.ServerCredentials:
    """Those of a daemon whose certificate nobody has issued but itself."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    subprocess.run([*request, "-subj", "/CN=board", "-keyout", key, "-out", certificate], check=True)
    return grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])


async def test_a_daemon_that_is_not_trusted_is_refused(credentials: grpc.ServerCredentials) -> None:
    server = grpc.aio.server()
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials()) as opened:
            with pytest.raises(RefusedError, match="do not trust each other"):
                await Channel("there", opened, print).describe()
    finally:
        await server.stop(None)


def test_a_board_that_has_no_room_is_not_taken_for_one_that_is_not_there() -> None:
    nothing = grpc.aio.Metadata()
    error = grpc.aio.AioRpcError(grpc.StatusCode.RESOURCE_EXHAUSTED, nothing, nothing, "64 streams are open already")
    told = _translated(error, "euler")
    assert str(told) == "the board at euler has no free connection: 64 streams are open already"
    assert "stop another profagent" in told.hint
