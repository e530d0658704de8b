"""Another minor version works, older or newer, on either side; another major one is refused with both versions."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
import pytest

from profagent.errors import ProtocolError
from profagent.link.messages import Holding, Welcome
from profagent.link.session import Announcement, Happened, Session, chunk_crc
from profagent.link.translate import from_wire
from profagent_wire.seal import sealed, unsealed
from profagent_wire.v1 import board_pb2 as wire
from profagent_wire.v1.board_pb2_grpc import BoardStub
from tests.fakes.malicious_board import Talk, malicious, welcome
from tests.integration.board import content, running, sample
from tests.integration.host import profagent
from tests.unit.link.board import BOARD

STREAMS = Path(__file__).parents[1] / "data" / "streams"
# A field, number 1000 and of two bytes, that no version knows yet.
UNKNOWN = b"\xc2\x3e\x02hi"
# How the messages of older versions are written: since 1.1 each has a check value.
ENCODINGS: dict[str, Callable[[Any], bytes]] = {"1.0": lambda message: message.SerializeToString(), "1.1": sealed}
EACH_VERSION = pytest.mark.parametrize(
    ("version", "more"), [*product(ENCODINGS, (b"", UNKNOWN))], ids=["1.0", "1.0 and more", "1.1", "1.1 and more"]
)
FOLLOW = "/profagent_wire.v1.Board/Follow"

M = TypeVar("M", wire.ClientMessage, wire.ServerMessage)


def recorded(name: str) -> Iterator[bytes]:
    """The messages of a recorded stream."""
    data, at = (STREAMS / name).read_bytes(), 0
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        yield data[at + 4 : at + 4 + size]
        at += 4 + size


def said(kind: type[M], name: str, more: bytes) -> Iterator[M]:
    """What was recorded, and with more in each message as of a later version; without its check value."""
    for data in recorded(name):
        message = unsealed(kind, data)
        message.ClearField("check")
        message.MergeFromString(more)
        yield message


def copied(messages: Iterable[bytes]) -> dict[bytes, bytes]:
    """What a host of today makes of a daemon's messages."""
    session, copies = Session(), dict[bytes, bytes]()
    for data in messages:
        message = from_wire(unsealed(wire.ServerMessage, data))
        for event in session.receive(message) if message else ():
            if isinstance(event, Announcement):
                for log in event.logs:
                    session.hold(Holding(log.handle))
                    copies[log.path] = b""
            if isinstance(event, Happened) and event.log is not None:
                copies[event.log.path] += getattr(event.event, "data", b"")
    return copies


@EACH_VERSION
def test_a_daemon_of_another_minor_version_is_understood(tmp_path: Path, version: str, more: bytes) -> None:
    job = sample(tmp_path, "runtime-reload")
    later = map(ENCODINGS[version], said(wire.ServerMessage, f"server-{version}", more))
    assert copied([more, *later] if more else recorded(f"server-{version}")) == content(job)


@pytest.mark.parametrize("version", ENCODINGS)
def test_a_damaged_chunk_of_an_older_daemon_is_known_by_its_own_check_value(version: str) -> None:
    messages = [*said(wire.ServerMessage, f"server-{version}", b"")]
    chunks = [each.chunk for message in messages for each in message.batch.events if each.HasField("chunk")]
    chunks[-1].crc ^= 1
    with pytest.raises(ProtocolError, match="damaged on the way"):
        copied(map(ENCODINGS[version], messages))


@EACH_VERSION
async def test_a_client_of_another_minor_version_is_served(tmp_path: Path, version: str, more: bytes) -> None:
    job = sample(tmp_path, "runtime-reload")
    opened, select, _, acknowledge = said(wire.ClientMessage, f"client-{version}", more)
    told = said(wire.ServerMessage, f"server-{version}", b"")
    paths = {log.handle: log.path for message in told for log in message.announced.logs}
    copies: dict[bytes, bytes] = {}
    handles: dict[bytes, int] = {}
    released: set[int] = set()
    complete: set[int] | None = None  # handles that the client has acknowledged as complete
    with running("--root", tmp_path) as board:
        async with grpc.aio.insecure_channel(board.address) as channel:
            call: Any = channel.stream_stream(FOLLOW, ENCODINGS[version], partial(unsealed, wire.ServerMessage))()
            await call.write(opened)
            if more:
                await call.write(wire.ClientMessage.FromString(more))
            await call.write(select)
            while released != complete:
                message = await call.read()
                assert isinstance(message, wire.ServerMessage)
                released |= {*message.released.handles}
                for log in message.announced.logs:
                    handles[log.path], copies[log.path] = log.handle, b""
                if message.announced.logs:
                    held = [wire.Holding(handle=log.handle) for log in message.announced.logs]
                    await call.write(wire.ClientMessage(holdings=wire.Holdings(logs=held)))
                by_handle = {handle: path for path, handle in handles.items()}
                for event in message.batch.events:
                    if event.HasField("chunk"):
                        place = event.chunk.handle, event.chunk.generation, event.chunk.offset
                        assert event.chunk.crc == chunk_crc(*place, event.chunk.data)
                        copies[by_handle[event.chunk.handle]] += event.chunk.data
                if message.job_status.caught_up and complete is None:
                    # Handles are the stream's own: the recorded client's are those of the same logs.
                    for durable in acknowledge.acknowledge.logs:
                        durable.handle = handles[paths[durable.handle]]
                    complete = {durable.handle for durable in acknowledge.acknowledge.logs if durable.complete}
                    await call.write(acknowledge)
            call.cancel()
    assert copies == content(job)


async def test_a_client_of_another_major_version_is_refused_with_both_versions(tmp_path: Path) -> None:
    with running("--root", tmp_path) as board:
        async with grpc.aio.insecure_channel(board.address) as channel:
            call: Any = BoardStub(channel).Follow()  # type: ignore[call-arg]
            version = wire.ProtocolVersion(major=2, minor=7)
            await call.write(wire.ClientMessage(open=wire.Open(protocol=version, consumer="test", client="test")))
            assert await call.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert await call.details() == "the client speaks protocol 2.7, this daemon 1.3"


@pytest.mark.parametrize("verb", ["watch", "record"])
def test_a_command_refuses_a_daemon_of_another_major_version(verb: str, tmp_path: Path) -> None:
    def later(talk: Talk) -> Iterator[wire.ServerMessage]:
        talk.until("open")
        yield welcome(protocol=wire.ProtocolVersion(major=2, minor=7))
        yield from talk.beats()

    where = ("--workspace", tmp_path / "ws") if verb == "record" else ()
    with malicious(later) as board:
        ended = profagent(verb, "--board", board.address, *where)
    assert ended.code == 3
    assert "the board speaks protocol 2.7, this profagent 1.3" in ended.err
    assert "upgrade profagent on both ends" in ended.err


def test_a_daemon_of_another_major_version_is_refused_with_both_versions() -> None:
    with pytest.raises(ProtocolError, match=r"the board speaks protocol 2\.7, this profagent 1\.3"):
        Session().receive(Welcome(replace(BOARD, protocol=(2, 7)), 4_000_000))
