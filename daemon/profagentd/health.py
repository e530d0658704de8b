"""The standard health service, so that standard probes can ask whether the daemon serves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc

from profagent_wire.health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from profagent_wire.health.v1.health_pb2_grpc import HealthServicer
from profagentd.refusal import Refusal
from profagentd.roles import caller_of
from profagentd.supervisor import until_first

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from profagentd.gate import Gate

# Empty: the server as a whole.
_SERVICES = frozenset(("", "profagent_wire.v1.Board"))


class Health(HealthServicer):
    """SERVING from the start to `stop`."""

    def __init__(self, gate: Gate) -> None:
        """A watch ends when the gate turns its caller away."""
        self._gate = gate
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """The daemon is about to end."""
        self._stopping.set()

    async def Check(self, request: HealthCheckRequest, context: Any) -> HealthCheckResponse:
        """The status now."""
        if request.service not in _SERVICES:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service!r}")
        return HealthCheckResponse(status=self._status(request.service))

    async def Watch(self, request: HealthCheckRequest, context: Any) -> AsyncIterator[HealthCheckResponse]:
        """The status now, and when it changes."""
        yield HealthCheckResponse(status=self._status(request.service))
        try:
            await until_first(self._stop(), self._gate.watch_over(caller_of(context)))
        except Refusal as refusal:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(refusal))
        if request.service in _SERVICES:
            yield HealthCheckResponse(status=self._status(request.service))

    async def _stop(self) -> None:
        await self._stopping.wait()

    def _status(self, service: str) -> HealthCheckResponse.ServingStatus.ValueType:
        if service not in _SERVICES:
            return HealthCheckResponse.SERVICE_UNKNOWN
        return HealthCheckResponse.NOT_SERVING if self._stopping.is_set() else HealthCheckResponse.SERVING
