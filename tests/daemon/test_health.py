"""Standard probes of the daemon."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import grpc
import grpc.aio
import pytest

from profagent_wire.health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from profagent_wire.health.v1.health_pb2_grpc import HealthStub
from profagentd.examine import identify
from profagentd.main import JournalFormatter, LineFormatter, is_journal
from tests.daemon.daemon_process import Daemon, running

if TYPE_CHECKING:
    from profagent_wire.health.v1.health_pb2_grpc import HealthAsyncStub


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running("--root", tmp_path_factory.mktemp("root")) as started:
        yield started


@pytest.mark.parametrize("service", ["", "profagent_wire.v1.Board"])
def test_a_daemon_that_runs_serves(daemon: Daemon, service: str) -> None:
    with grpc.insecure_channel(daemon.address) as channel:
        reply = HealthStub(channel).Check(HealthCheckRequest(service=service), timeout=20)
    assert reply.status == HealthCheckResponse.SERVING


def test_a_service_that_is_unknown_is_not_found(daemon: Daemon) -> None:
    with grpc.insecure_channel(daemon.address) as channel, pytest.raises(grpc.RpcError) as error:
        HealthStub(channel).Check(HealthCheckRequest(service="other"), timeout=20)
    assert error.value.code() is grpc.StatusCode.NOT_FOUND


def status_of(reply: object) -> HealthCheckResponse.ServingStatus.ValueType:
    assert isinstance(reply, HealthCheckResponse)
    return reply.status


async def test_a_watch_of_an_unknown_service_says_so(daemon: Daemon) -> None:
    async with grpc.aio.insecure_channel(daemon.address) as channel:
        watch = cast("HealthAsyncStub", HealthStub(channel)).Watch(HealthCheckRequest(service="other"), timeout=30)
        assert status_of(await watch.read()) == HealthCheckResponse.SERVICE_UNKNOWN
        watch.cancel()


async def test_a_watch_sees_the_end_coming(daemon: Daemon) -> None:
    async with grpc.aio.insecure_channel(daemon.address) as channel:
        watch = cast("HealthAsyncStub", HealthStub(channel)).Watch(HealthCheckRequest(), timeout=30)
        assert status_of(await watch.read()) == HealthCheckResponse.SERVING
        stopped = asyncio.get_running_loop().run_in_executor(None, daemon.stop)
        assert status_of(await watch.read()) == HealthCheckResponse.NOT_SERVING
        assert await watch.read() is grpc.aio.EOF
        assert await stopped == 0


# Who the board is, by its files

FILES = {
    "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    "proc/sys/kernel/random/boot_id": "c3b1c1f4-0000-4000-8000-000000000001\n",
    "proc/device-tree/model": "Vendor Board SS928\0",
    "proc/umap/svp_npu": "[SVP_NPU] Version:  [SS928V100 B030 Release], Build Time[Jan 1 2025]\n\n---module---\n",
}


@pytest.fixture
def board(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_board_tells_what_its_files_tell(board: Path) -> None:
    identity = identify(filesystem=board)
    assert identity.identity == "0123456789abcdef0123456789abcdef"
    assert identity.boot_id == "c3b1c1f4-0000-4000-8000-000000000001"
    assert identity.model == "Vendor Board SS928"
    assert identity.sdk_version == "[SVP_NPU] Version:  [SS928V100 B030 Release], Build Time[Jan 1 2025]"
    assert identity.hostname == socket.gethostname()


def test_a_deployed_identity_comes_first(board: Path) -> None:
    (board / "etc/profagent").mkdir()
    (board / "etc/profagent/board-id").write_text("5f0c8f5e-1111-4222-8333-444444444444\n")
    identity = identify(filesystem=board)
    assert identity.identity == "5f0c8f5e-1111-4222-8333-444444444444"


# The log for people, and for the journal


def record(level: int, message: str, error: BaseException | None = None) -> logging.LogRecord:
    given = (type(error), error, error.__traceback__) if error else None
    return logging.LogRecord("profagentd.x", level, __file__, 1, message, (), given)


@pytest.mark.parametrize(
    ("level", "priority"), [("DEBUG", 7), ("INFO", 6), ("WARNING", 4), ("ERROR", 3), ("CRITICAL", 2)]
)
def test_a_line_begins_with_its_priority(level: str, priority: int) -> None:
    line = JournalFormatter("%(name)s: %(message)s").format(record(getattr(logging, level), "found"))
    assert line == f"<{priority}>profagentd.x: found"


def test_what_a_file_is_called_makes_no_line_and_steers_no_terminal() -> None:
    line = LineFormatter("%(message)s").format(record(logging.INFO, "found a\nWARNING b\x1b[31m\udcff ä"))
    assert line == "found a\\nWARNING b\\x1b[31m\\udcff ä"


def test_each_line_of_a_traceback_has_the_priority() -> None:
    try:
        raise ValueError("no")
    except ValueError as error:
        text = JournalFormatter("%(message)s").format(record(logging.ERROR, "failed", error))
    assert len(text.splitlines()) > 2
    assert all(line.startswith("<3>") for line in text.splitlines())


def test_the_journal_is_known_by_device_and_inode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "stream").open("w") as file:
        found = os.fstat(file.fileno())
        for stream, is_right in ((f"{found.st_dev}:{found.st_ino}", True), (f"{found.st_dev}:1", False), ("", False)):
            monkeypatch.setenv("JOURNAL_STREAM", stream)
            assert is_journal(file.fileno()) is is_right
