"""A link that is half open: what swallows packets without a word is found out on both ends within 15 s."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from profagent.link import channel
from profagentd.follow import server
from tests.faults.proxy import FaultProxy
from tests.integration.board import running
from tests.integration.host import started

if TYPE_CHECKING:
    import pytest

FOUND_S = 15.0
# What a busy machine takes to start a thread or to print a line.
SLACK_S = 5.0
# In this time a host that is ten times as fast has sent more pings than it may that are too many.
PINGS_S = 6.0


async def test_both_ends_find_out_within_fifteen_seconds_and_come_together_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "root").mkdir()
    with (
        running("--root", tmp_path / "root") as board,
        FaultProxy(board.address, seed=1) as proxy,
        started("record", "--board", proxy.address, "--workspace", tmp_path / "workspace") as host,
    ):
        await asyncio.to_thread(host.err.until, "recording")
        proxy.abandon()
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
