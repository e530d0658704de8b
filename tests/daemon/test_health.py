"""Standard probes of the daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import grpc
import grpc.aio
import pytest

from profagent_wire.health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from profagent_wire.health.v1.health_pb2_grpc import HealthStub
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
