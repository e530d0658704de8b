"""A link that is half open: what swallows packets without a word is found out on both ends, within 15 s as set."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from profagent.limits import LONGEST_HEARTBEAT_S, SILENT_HEARTBEATS
from profagent.link import channel
from profagentd.follow import server
from profagentd.limits import SILENCE_S
from tests.faults.proxy import FaultProxy
from tests.integration.board import running
from tests.integration.host import hurry, started
from tests.integration.hurried_daemon import faster

if TYPE_CHECKING:
    import pytest

FOUND_S = 15.0
# The times of both ends are divided by this.
TIMES = 2
# What a busy machine takes to start a thread or to print a line.
SLACK_S = 5.0
# Pings of a host that is so many times as fast; in this time it has sent more than it may that are too many.
PING_TIMES, PINGS_S = 20, 3.0
LONG_S = 60.0


def test_each_end_pings_often_enough() -> None:
    for options in (channel._OPTIONS, server._OPTIONS):
        times_ms = dict(options)
        assert times_ms["grpc.keepalive_time_ms"] + times_ms["grpc.keepalive_timeout_ms"] < 1000 * FOUND_S
    assert max(SILENT_HEARTBEATS * LONGEST_HEARTBEAT_S, SILENCE_S) <= FOUND_S


async def test_both_ends_find_out_in_time_and_come_together_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch, "profagent.link.channel", "_OPTIONS", faster(channel._OPTIONS, TIMES))
    monkeypatch.setenv("LINK_TIMES", str(TIMES))
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
        while not all(found_s.values()) and time.monotonic() - begun < LONG_S:
            await asyncio.sleep(0.1)
            log += capfd.readouterr().err
            seen = {"host": any("retrying in" in line for line in host.err), "daemon": " disconnected\n" in log}
            now_s = time.monotonic() - begun
            found_s = {end: found_s[end] or seen[end] * now_s for end in seen}
        assert 0 < found_s["host"] < FOUND_S / TIMES + SLACK_S
        assert 0 < found_s["daemon"] < FOUND_S / TIMES + SLACK_S
        await asyncio.to_thread(host.err.until, "recording", 2)
        ended = await asyncio.to_thread(host.interrupt)
        assert ended.code == 0, ended.out


async def _say_nothing(requests: Any, context: Any) -> None:
    await asyncio.Event().wait()


async def test_keepalive_on_an_idle_link_is_not_taken_for_too_many_pings() -> None:
    """As the two are set it is not; by a daemon as it is set, a host that is so many times as fast is."""
    as_set, too_often = await asyncio.gather(_said_of_pings(PING_TIMES, PINGS_S), _said_of_pings(1, LONG_S))
    assert "too many pings" not in as_set.lower()
    assert "too many pings" in too_often.lower()


async def _said_of_pings(daemon_times: int, within_s: float) -> str:
    """What a host that pings faster than ours hears in some time, beside a daemon that is so many times as fast."""
    served = grpc.aio.server(options=faster(server._OPTIONS, daemon_times))
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {"Idle": grpc.stream_stream_rpc_method_handler(_say_nothing)}
    served.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", handlers),))
    port = served.add_insecure_port("127.0.0.1:0")
    await served.start()
    try:
        options = faster(channel._OPTIONS, PING_TIMES)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as opened:
            call: Any = opened.stream_stream("/test/Idle")()
            await call.write(b"")
            reading = asyncio.ensure_future(call.read())
            done, _ = await asyncio.wait([reading], timeout=within_s)
            said = str(reading.exception()) if done else ""
            call.cancel()
            await asyncio.wait([reading])
            return said
    finally:
        await served.stop(None)
