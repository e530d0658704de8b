"""Settings that change while the daemon serves, with a real one."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from profagent_wire.v1 import board_pb2 as wire
from tests.daemon.daemon_process import AICORE_DONE, Daemon, make_job, running
from tests.daemon.waiting import until
from tests.daemon.wire_client import PATIENCE_S, following


class Reloaded:
    """A daemon with a file of settings, and its log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "daemon.toml"
        self.log = folder / "log"
        self.daemon: Daemon | None = None
        for name in ("roots.d", "a", "b"):
            (folder / name).mkdir()

    def write(self, more: str = "", roots: str = "a") -> None:
        """Other settings."""
        self.config.write_text(f"roots = ['{self.folder / roots}']\nroots_d = '{self.folder}/roots.d'\n{more}")

    def name_root(self, *names: str) -> None:
        """A file of roots."""
        (self.folder / "roots.d/app.conf").write_text("".join(f"{self.folder / name}\n" for name in names))

    def reload(self, words: str = "the settings were read again") -> str:
        """Have them read; the log since then, once it has these words."""
        assert self.daemon is not None
        begun = len(self.log.read_text())
        self.daemon.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE_S
        while words not in self.log.read_text()[begun:]:
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)
        return self.log.read_text()[begun:]


@pytest.fixture
def reloaded(tmp_path: Path) -> Reloaded:
    board = Reloaded(tmp_path)
    board.write()
    return board


@contextmanager
def served(board: Reloaded) -> Iterator[Daemon]:
    with board.log.open("w") as log, running("--config", board.config, log=log) as daemon:
        board.daemon = daemon
        yield daemon


async def test_a_root_that_comes_is_followed_by_those_who_are_there(reloaded: Reloaded) -> None:
    job = make_job(reloaded.folder / "b")
    with served(reloaded) as daemon:
        async with following(daemon.address) as client:
            await client.start()
            await client.until(lambda: client.is_listed)
            reloaded.name_root("b")
            assert f"{reloaded.folder}/b is a root from now on" in reloaded.reload()
            await client.until(lambda: job.name in client.jobs)
            later = make_job(reloaded.folder / "b", 1)
            await client.until(lambda: later.name in client.jobs)


def test_mistakes_change_nothing_and_are_named(reloaded: Reloaded) -> None:
    with served(reloaded) as daemon:
        reloaded.write("depth = 99\nlog_level = 'error'\nscan = 1\n")
        said = reloaded.reload("the settings stay as they were")
        assert f"{reloaded.config}: depth = 99; depth is" in said
        assert f"{reloaded.config}: scan = 1; scan is" in said
        assert daemon.process.poll() is None


def test_what_takes_a_restart_is_named_each_time(reloaded: Reloaded) -> None:
    with served(reloaded):
        reloaded.write("depth = 2\nidentity = 'other'\n", roots="b")
        for _ in range(2):
            said = reloaded.reload()
            assert "another depth takes a restart" in said
            assert "another identity takes a restart" in said
            assert f"{reloaded.folder}/a is a root still: to leave it out takes a restart" in said
            assert "another listen" not in said


async def test_another_retention_is_told_anew_by_clients_that_come_back(reloaded: Reloaded) -> None:
    with served(reloaded) as daemon:
        async with following(daemon.address) as client:
            await client.start()
            await client.until(lambda: client.is_listed)
            reloaded.write("retain = 'delivered'\nretain_for = ['test']\n")
            reloaded.reload()
            await client.until_ended()
            assert client.goodbye is not None
            assert client.goodbye.reason == "another retention holds from now on"
        job = make_job(reloaded.folder / "a")
        data = job / "data/aicore.0.m.3.0.1.1.1"
        data.write_bytes(bytes(256))
        data.with_name(f"{data.name}.done").write_bytes(AICORE_DONE % 256)
        async with following(daemon.address) as client:
            await client.start()
            await client.until(lambda: client.welcome is not None)
            assert client.welcome is not None
            assert client.welcome.description.retention.policy == wire.RETENTION_POLICY_DELIVERED
            hearing = asyncio.ensure_future(client.until_ended())
            await until(lambda: not data.exists())
            hearing.cancel()


def test_without_anything_to_read_the_signal_ends_it(tmp_path: Path) -> None:
    # Whoever ignores it, as under nohup, hands that down.
    was = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with running("--root", tmp_path) as daemon:
            os.kill(daemon.process.pid, signal.SIGHUP)
            assert daemon.process.wait(PATIENCE_S) == -signal.SIGHUP
    finally:
        signal.signal(signal.SIGHUP, was)
