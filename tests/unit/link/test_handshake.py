"""The first handshake, with boards that do not behave, and with one that takes another's place."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from profagent.errors import RefusedError, UnreachableError, UsageError
from profagent.keys.keys import IssuedCertificate, Keys
from profagent.link import handshake as distrust
from profagent.link.addresses import KnownBoard
from profagent.link.channel import connected
from profagent.link.credentials import Access, Credentials
from profagent.link.handshake import proven_certificate
from profagent_wire.v1 import board_pb2 as pb

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """A CA with two boards at one address."""
    workshop = Keys(tmp_path_factory.mktemp("keys") / "keys")
    workshop.init("lab")
    for name in ("euler", "gauss"):
        workshop.issue_board(name, ("127.0.0.1",))
    return workshop


def folder(keys: Keys, serving: str) -> Path:
    return keys.folder / "boards" / serving


@asynccontextmanager
async def answering(behaviour: Behaviour, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """What answers on a port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, ssl.SSLError):
            await behaviour(reader, writer)
        writer.transport.abort()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def board_context(keys: Keys, serving: str = "euler") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder(keys, serving) / "board.pem", folder(keys, serving) / "board.key")
    return context


async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\0")
    await writer.drain()


async def test_a_board_that_speaks_has_taken_our_certificate(keys: Keys) -> None:
    async with answering(greet, board_context(keys)) as address:
        proven = await proven_certificate(KnownBoard(address, address), Credentials.read(keys.folder))
    assert proven == (folder(keys, "euler") / "board.pem").read_bytes()


async def test_a_connection_that_ends_once_is_no_refusal(keys: Keys) -> None:
    seen: list[object] = []

    async def end_the_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer)
        if len(seen) > 1:
            await greet(reader, writer)
        else:
            writer.close()
            await writer.wait_closed()

    async with answering(end_the_first, board_context(keys)) as address:
        await proven_certificate(KnownBoard(address, address), Credentials.read(keys.folder))
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("said", "error"),
    [(b"HTTP/1.1 400 Bad Request\r\n\r\n", RefusedError), (b"\x16\x03\x03\x00\x05hello", UnreachableError)],
)
async def test_an_answer_that_is_no_tls_and_one_that_is_damaged_are_told_apart(
    keys: Keys, said: bytes, error: type[UnreachableError]
) -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(said)
        await reader.read()

    async with answering(say) as address:
        with pytest.raises(UnreachableError) as caught:
            await proven_certificate(KnownBoard(address, address), Credentials.read(keys.folder))
    assert type(caught.value) is error


@asynccontextmanager
async def serving(keys: Keys, name: str) -> AsyncIterator[int]:
    """A board with its certificate; gives its port."""
    files = ((folder(keys, name) / file).read_bytes() for file in ("board.key", "board.pem", "ca.pem"))
    key, certificate, ca = files
    server = grpc.aio.server()

    async def describe(request: bytes, context: object) -> bytes:
        return pb.Description(identity=name).SerializeToString()

    method: dict[str, Any] = {"Describe": grpc.unary_unary_rpc_method_handler(describe)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("profagent_wire.v1.Board", method)])
    credentials = grpc.ssl_server_credentials([(key, certificate)], ca, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


def leading(ports: list[int]) -> Behaviour:
    """One who leads each connection to the next of these ports, and later ones to the last."""

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = ports.pop(0) if len(ports) > 1 else ports[0]
        there, back = await asyncio.open_connection("127.0.0.1", port)

        async def pour(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError):
                while data := await source.read(65536):
                    target.write(data)
            target.close()

        await asyncio.gather(pour(reader, back), pour(there, writer))

    return lead


async def test_keys_that_are_being_replaced_are_no_end_of_a_capture(keys: Keys, tmp_path: Path) -> None:
    for name, content in (("ca.pem", b""), ("host.pem", b"half of")):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(RefusedError, match=r"host\.key"):
        async with connected("127.0.0.1:1", Access(tmp_path)):
            pass
    with pytest.raises(UsageError, match=r"host\.key"):
        Access(tmp_path).check("127.0.0.1:1")


@pytest.mark.parametrize("second", ["euler", "gauss"])
async def test_only_the_certificate_that_was_proven_is_spoken_to(keys: Keys, second: str) -> None:
    async with (
        serving(keys, "euler") as proven,
        serving(keys, second) as other,
        answering(leading([proven, other])) as address,
        connected(address, Access(keys.folder)) as channel,
    ):
        if second == "euler":
            assert (await channel.describe()).identity == "euler"
        else:
            with pytest.raises(UnreachableError):
                await channel.describe()


# Explanations by certificates and times alone; what real daemons and hosts say stands in the integration tests

NOW = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)
ADDRESS = "192.168.1.20:50151"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    workshop = Keys(tmp_path_factory.mktemp("keys") / "keys", NOW)
    workshop.init("lab", days=30)
    return workshop


@pytest.fixture(scope="module")
def board(lab: Keys) -> IssuedCertificate:
    return lab.issue_board("euler", ("192.168.1.20",), 30)


def test_each_is_a_refusal_with_its_remedy(lab: Keys, board: IssuedCertificate) -> None:
    credentials = Credentials.read(lab.folder)
    for error in (
        distrust.board_distrusted(KnownBoard(ADDRESS, ADDRESS), board.certificate, credentials, NOW, "odd"),
        distrust.board_revoked(ADDRESS, board.certificate, credentials),
        distrust.host_distrusted(ADDRESS, credentials, NOW),
        distrust.no_tls(ADDRESS),
    ):
        assert isinstance(error, RefusedError)
        assert error.exit_code == 3
        assert ADDRESS in str(error)
        assert error.hint
