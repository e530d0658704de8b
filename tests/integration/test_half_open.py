"""A link that is half open: what swallows packets without a word is found out on both ends within 15 s."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from profagent.link import channel
from profagentd.follow import server
from tests.integration.board import running
from tests.integration.host import started

if TYPE_CHECKING:
    import pytest

FOUND_S = 15.0
# What a busy machine takes to start a thread or to print a line.
SLACK_S = 5.0
# In this time a host that is ten times as fast has sent more pings than it may that are too many.
PINGS_S = 6.0
BLOCK_BYTES = 1 << 16


class SwallowingProxy:
    """Passes bytes on between a host and a board, until it swallows those of the connections that there are."""

    def __init__(self, board: str) -> None:
        self._open: list[list[bool]] = []
        self._board, _, port = board.rpartition(":")
        self._port = int(port)

    def swallow(self) -> None:
        """Nothing more comes on any connection, and nobody is told."""
        for has_swallowed in self._open:
            has_swallowed[0] = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        has_swallowed = [False]
        self._open.append(has_swallowed)
        board_reader, board_writer = await asyncio.open_connection(self._board, self._port)
        try:
            await asyncio.gather(
                self._pass(reader, board_writer, has_swallowed), self._pass(board_reader, writer, has_swallowed)
            )
        finally:
            writer.close()
            board_writer.close()

    @staticmethod
    async def _pass(source: asyncio.StreamReader, target: asyncio.StreamWriter, has_swallowed: list[bool]) -> None:
        while block := await source.read(BLOCK_BYTES):
            if not has_swallowed[0]:
                target.write(block)
                await target.drain()
        if not has_swallowed[0]:
            target.write_eof()


@asynccontextmanager
async def swallowing_proxy(board: str) -> AsyncIterator[tuple[SwallowingProxy, str]]:
    """A proxy before a board, and its address."""
    proxy = SwallowingProxy(board)
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    try:
        yield proxy, f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()


async def test_both_ends_find_out_within_fifteen_seconds_and_come_together_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "root").mkdir()
    with running("--root", tmp_path / "root") as board:
        async with swallowing_proxy(board.address) as (proxy, address):
            with started("record", "--board", address, "--workspace", tmp_path / "workspace") as host:
                await asyncio.to_thread(host.err.until, "recording")
                proxy.swallow()
                begun = time.monotonic()
                log, found_s = "", {"host": 0.0, "daemon": 0.0}
                while not all(found_s.values()) and time.monotonic() - begun < 2 * FOUND_S:
                    await asyncio.sleep(0.1)
                    log += capfd.readouterr().err
                    seen = {"host": any("retrying in" in line for line in host.err), "daemon": " left\n" in log}
                    now_s = time.monotonic() - begun
                    found_s = {end: found_s[end] or seen[end] * now_s for end in seen}
                assert 0 < found_s["host"] < FOUND_S + SLACK_S
                assert 0 < found_s["daemon"] < FOUND_S + SLACK_S
                await asyncio.to_thread(host.err.until, "recording", 2)
                ended = await asyncio.to_thread(host.interrupt)
                assert ended.code == 0, ended.out


async def _say_nothing(requests: Any, context: Any) -> None:
    await asyncio.Event().wait()


def _faster(options: Any, times: int) -> list[tuple[str, Any]]:
    """The same settings of time, in less of it."""
    return [(name, value // times if name.endswith("_ms") else value) for name, value in options]


async def test_keepalive_on_an_idle_link_is_not_taken_for_too_many_pings() -> None:
    """As the two are set it is not; by a daemon as it is set, a host that is ten times as fast is."""
    as_set, too_often = await asyncio.gather(_said_of_pings(10), _said_of_pings(1))
    assert as_set == ""
    assert "too many pings" in too_often.lower()


async def _said_of_pings(daemon_times: int) -> str:
    """What a host that pings ten times as often as ours hears within PINGS_S, beside a daemon so many times as fast."""
    served = grpc.aio.server(options=_faster(server._OPTIONS, daemon_times))
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {"Idle": grpc.stream_stream_rpc_method_handler(_say_nothing)}
    served.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", handlers),))
    port = served.add_insecure_port("127.0.0.1:0")
    await served.start()
    try:
        options = _faster(channel._OPTIONS, 10)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as opened:
            call: Any = opened.stream_stream("/test/Idle")()
            await call.write(b"")
            reading = asyncio.ensure_future(call.read())
            done, _ = await asyncio.wait([reading], timeout=PINGS_S)
            said = str(reading.exception()) if done else ""
            call.cancel()
            await asyncio.wait([reading])
            return said
    finally:
        await served.stop(None)
