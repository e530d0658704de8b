"""Connections before gRPC has them: who makes room for whom, what a flood comes to, and whom gRPC is told of."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from profagentd import front
from profagentd.front import Front, peer_of

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Served:
    """A front, and in gRPC's place somebody who repeats what was said."""

    def __init__(self, at: Front) -> None:
        self.front, self.port = at, 0
        self.peers: list[bytes] = []
        self._opened: list[asyncio.StreamWriter] = []

    async def repeat(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peers.append(writer.get_extra_info("peername"))
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def host(self, source: str = "127.0.0.1", *, says: bytes = b"") -> Ends:
        """A host that has connected; one that says something has heard it again."""
        ends = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(source, 0))
        self._opened.append(ends[1])
        if says:
            await echoed(ends, says)
        await asyncio.sleep(0.02)  # it is accepted, or refused, in the loop's next turns
        return ends

    def close(self) -> None:
        for writer in self._opened:
            writer.transport.abort()


async def echoed(ends: Ends, data: bytes) -> None:
    ends[1].write(data)
    assert await ends[0].readexactly(len(data)) == data


async def is_over(ends: Ends) -> bool:
    """Whether the other end has closed it; waits for that."""
    try:
        return await ends[0].read() == b""
    except ConnectionError:
        return True


@asynccontextmanager
async def serving(*, tls: bool = False) -> AsyncIterator[Served]:
    served = Served(Front(tls=tls))
    behind = await asyncio.start_unix_server(served.repeat, served.front.path)
    directory = Path(served.front.path).parent
    assert directory.stat().st_mode & 0o777 == 0o700
    served.front.hide()
    assert not directory.exists()
    served.port = served.front.listen("127.0.0.1:0")
    try:
        yield served
    finally:
        served.close()
        served.front.close()
        behind.close()
        await behind.wait_closed()
        await asyncio.sleep(0.01)


async def test_what_is_said_passes_both_ways_whole() -> None:
    data = bytes(range(256)) * 2000
    async with serving() as served:
        reader, writer = await served.host()
        writer.write(data)
        assert await reader.readexactly(len(data)) == data


async def test_grpc_is_told_which_host_it_is() -> None:
    class Context:
        def peer(self) -> str:
            return f"unix-abstract:{name[1:].decode()}"

    async with serving() as served:
        ends = await served.host(says=b"a")
        (name,) = served.peers
        host, port = ends[1].get_extra_info("sockname")
        assert peer_of(Context()) == f"ipv4:{host}:{port}"
        name = b"\0profagentd-0123456789abcdef/ipv4:8.8.8.8:1"
        assert "8.8.8.8" in peer_of(Context())
        assert peer_of(Context()).startswith("unix-abstract:"), "it was not led here"


async def test_the_oldest_that_has_said_nothing_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "CONNECTIONS", 3)
    async with serving() as served:
        speaking = await served.host(says=b"a")
        silent = [await served.host() for _ in range(2)]
        newest = await served.host(says=b"b")
        assert await is_over(silent[0])
        for each in (speaking, newest, silent[1]):
            await echoed(each, b"c")
        assert await is_over(await served.host()), "all others are known"


async def test_over_tls_one_that_stays_in_its_handshake_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "CONNECTIONS", 2)
    async with serving(tls=True) as served:
        half, known = await served.host(says=b"hello"), await served.host(says=b"hello")
        await echoed(known, b"finished")
        newest = await served.host(says=b"hello")
        assert await is_over(half)
        await echoed(newest, b"finished")
        await echoed(known, b"more")


async def test_one_address_takes_no_room_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "CONNECTIONS_OF_AN_ADDRESS", 1)
    async with serving() as served:
        first, other = await served.host("127.0.0.2", says=b"a"), await served.host("127.0.0.3")
        assert await is_over(await served.host("127.0.0.2"))
        await echoed(first, b"b")
        await echoed(other, b"c")


async def test_one_that_says_much_is_read_slowly_and_one_that_goes_on_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(front, "BURST_BYTES", 1000)
    async with serving() as served:
        monkeypatch.setattr(front, "BYTES_PER_S", 1)  # as good as nothing more
        slow = await served.host(says=b"x" * 2000)
        assert len(served.front.throttled) == 1
        fine = await served.host(says=b"y" * 100)
        slow[1].write(b"more")
        await echoed(fine, b"z")
        assert slow[0]._buffer == b"", "it was not read"  # type: ignore[attr-defined]
        monkeypatch.setattr(front, "BYTES_PER_S", 1e9)
        monkeypatch.setattr(front, "FLOOD_S", -1.0)
        flooding = await served.host()
        flooding[1].write(b"x" * 2000)
        assert await is_over(flooding)


async def test_silence_is_borne_for_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "SILENT_S", 0.01)
    async with serving() as served:
        assert await is_over(await served.host())


async def test_all_addresses_are_those_of_both_families() -> None:
    async with serving() as served:
        port = served.front.listen("0.0.0.0:0")
        for host in ("127.0.0.1", "::1"):
            served._opened.append((await asyncio.open_connection(host, port))[1])
        taken = served.front.listen("localhost:0")
        with pytest.raises(OSError, match="in use"):
            served.front.listen(f"localhost:{taken}")


@pytest.mark.parametrize(
    ("address", "network"),
    [
        (("192.0.2.1", 5), "192.0.2.1"),
        (("::ffff:192.0.2.1", 5, 0, 0), "192.0.2.1"),
        (("2001:db8::5", 5, 0, 0), "2001:db8::/64"),
        (("fe80::1%lo", 5, 0, 1), "fe80::/64"),
    ],
)
async def test_an_address_is_a_host_or_its_network(address: Any, network: str) -> None:
    with socket.socket() as one:
        at = Front(tls=False)
        connection = front._HostConnection(at, one, address)
        connection.cut()
        at.close()
    assert connection.network == network
