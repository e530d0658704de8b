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

from profagentd.service import Notifier, report
from tests.daemon.clocks import FakeClock


class Systemd:
    """The other end."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.setblocking(False)

    def heard(self) -> list[str]:
        """What has come."""
        found = []
        while True:
            try:
                found.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return found


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    listener = Systemd(str(tmp_path / "notify"))
    yield listener
    listener.socket.close()


def notifier(systemd: Systemd, clock: FakeClock, **environment: str) -> Notifier:
    return Notifier(clock, {"NOTIFY_SOCKET": systemd.socket.getsockname(), **environment})


def test_each_word_is_a_datagram(systemd: Systemd) -> None:
    telling = notifier(systemd, FakeClock())
    telling.ready("serving")
    telling.status("busy")
    telling.alive()
    telling.stopping("going")
    telling.close()
    telling.status("gone")
    expected = ["READY=1\nSTATUS=serving", "STATUS=busy", "WATCHDOG=1", "STOPPING=1\nSTATUS=going"]
    assert systemd.heard() == expected


def test_a_reload_has_the_time_at_which_it_began(systemd: Systemd) -> None:
    clock = FakeClock()
    telling = notifier(systemd, clock)
    telling.reloading()
    telling.close()
    assert systemd.heard() == [f"RELOADING=1\nMONOTONIC_USEC={int(clock.monotonic() * 1e6)}"]


def test_an_abstract_address_begins_with_an_at_sign() -> None:
    name = f"profagentd-test-{os.getpid()}"
    systemd = Systemd("\0" + name)
    telling = Notifier(FakeClock(), {"NOTIFY_SOCKET": f"@{name}"})
    telling.status("heard")
    assert systemd.heard() == ["STATUS=heard"]
    telling.close()
    systemd.socket.close()


def test_a_systemd_that_is_gone_is_of_no_consequence(tmp_path: Path) -> None:
    telling = Notifier(FakeClock(), {"NOTIFY_SOCKET": str(tmp_path / "gone")})
    telling.ready("serving")
    telling.close()


def test_without_systemd_nothing_is_said() -> None:
    telling = Notifier(FakeClock(), {})
    assert (telling.is_heard, telling.watchdog_s) == (False, None)
    telling.ready("serving")


@pytest.mark.parametrize(
    ("environment", "watchdog_s"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_for_the_process_that_it_names(environment: dict[str, str], watchdog_s: float | None) -> None:
    assert Notifier(FakeClock(), environment).watchdog_s == watchdog_s


class HeldClock(FakeClock):
    """Who sleeps wakes when the test lets the time pass."""

    def __init__(self) -> None:
        super().__init__()
        self.sleepers: list[tuple[float, asyncio.Event]] = []
        self.news = asyncio.Event()

    async def sleep(self, delay_s: float) -> None:
        woken = asyncio.Event()
        self.sleepers.append((self.now + delay_s, woken))
        self.news.set()
        await woken.wait()

    def pass_by(self, delay_s: float) -> None:
        """Let time pass."""
        self.advance(delay_s)
        for due, woken in self.sleepers:
            if due <= self.now:
                woken.set()


class Stuck(ThreadPoolExecutor):
    """Threads that take work and never come back with it."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        return Future()


async def until_heard(systemd: Systemd, *expected: str) -> None:
    """These have come, in any order, and nothing else."""
    heard: list[str] = []
    while len(heard) < len(expected):
        heard += systemd.heard()
        await asyncio.sleep(0.01)
    assert sorted(heard) == sorted(expected)


async def settled(clock: HeldClock, sleepers: int) -> None:
    """So many works sleep."""
    while sum(not woken.is_set() for _, woken in clock.sleepers) < sleepers:
        clock.news.clear()
        await clock.news.wait()


async def test_status_is_told_when_it_changes_and_life_twice_in_a_period(systemd: Systemd) -> None:
    clock, statuses = HeldClock(), ["one"]
    telling = notifier(systemd, clock, WATCHDOG_USEC="10000000")
    reporting = asyncio.ensure_future(report(telling, clock, lambda: statuses[0]))
    await until_heard(systemd, "STATUS=one", "WATCHDOG=1")
    await settled(clock, 2)
    statuses[0] = "two"
    clock.pass_by(4.9)
    await until_heard(systemd, "STATUS=two")
    await settled(clock, 2)
    clock.pass_by(0.2)
    await until_heard(systemd, "WATCHDOG=1")
    reporting.cancel()
    await asyncio.gather(reporting, return_exceptions=True)
    telling.close()


async def test_without_threads_that_work_there_is_no_sign_of_life(systemd: Systemd) -> None:
    clock = HeldClock()
    asyncio.get_running_loop().set_default_executor(Stuck())
    telling = notifier(systemd, clock, WATCHDOG_USEC="10000000")
    reporting = asyncio.ensure_future(report(telling, clock, lambda: f"at {clock.now}"))
    await until_heard(systemd, "STATUS=at 100.0")
    await settled(clock, 1)
    clock.pass_by(20.0)
    await until_heard(systemd, "STATUS=at 120.0")
    reporting.cancel()
    await asyncio.gather(reporting, return_exceptions=True)
    telling.close()
