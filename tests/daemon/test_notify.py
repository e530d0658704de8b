"""What systemd is told, over a socket as it gives one."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from profagentd.service import Notifier
from tests.daemon.clocks import FakeClock


@pytest.fixture
def systemd() -> Iterator[socket.socket]:
    """The other end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.setblocking(False)
        yield listener


def heard(systemd: socket.socket) -> list[str]:
    """What has come."""
    found = []
    while True:
        try:
            found.append(systemd.recv(4096).decode())
        except BlockingIOError:
            return found


class Stuck(ThreadPoolExecutor):
    """Threads that take work and never come back with it."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        return Future()


@pytest.mark.parametrize("address", ["{}/notify", "\0profagentd-test-{}"], ids=["path", "abstract"])
def test_each_word_is_a_datagram(
    address: str, systemd: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = address.format(os.getpid() if "\0" in address else tmp_path)
    systemd.bind(bound)
    monkeypatch.setenv("NOTIFY_SOCKET", bound.replace("\0", "@"))
    notifier = Notifier()
    notifier.tell("READY=1", "STATUS=serving")
    notifier.tell("WATCHDOG=1")
    notifier.close()
    notifier.tell("STATUS=gone")
    assert heard(systemd) == ["READY=1\nSTATUS=serving", "WATCHDOG=1"]


@pytest.mark.parametrize("is_stuck", [False, True])
async def test_a_sign_of_life_is_one_of_the_loop_and_of_its_threads(
    is_stuck: bool, systemd: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd.bind(str(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    clock, notifier = FakeClock(), Notifier()
    if is_stuck:
        asyncio.get_running_loop().set_default_executor(Stuck())
    telling = asyncio.ensure_future(notifier.keep_telling(clock, lambda: f"at {clock.now}"))
    await asyncio.sleep(0.2)
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)
    notifier.close()
    assert heard(systemd)[:2] == ([] if is_stuck else [f"WATCHDOG=1\nSTATUS=at {at}" for at in (100.0, 103.0)])
