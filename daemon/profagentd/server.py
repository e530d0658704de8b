"""The gRPC server: its options, its services, its end."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from profagent_wire.health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from profagent_wire.health.v1.health_pb2_grpc import HealthServicer, add_HealthServicer_to_server
from profagent_wire.seal import sealed, unsealed
from profagent_wire.v1 import board_pb2 as wire
from profagent_wire.v1.board_pb2_grpc import add_BoardServicer_to_server
from profagentd.errors import DaemonError
from profagentd.refusal import Refusal
from profagentd.roles import caller_of
from profagentd.supervisor import until_first

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable
    from typing import Callable

    from profagentd.gate import Gate

    _Handler = grpc.RpcMethodHandler[Any, Any]
    from profagentd.servicer import Servicer


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


_OTHER = "choose another address with --listen"
_HINTS = {
    errno.EADDRINUSE: "another program has it, maybe another profagentd: end that one, or choose another port with"
    " --listen",
    errno.EADDRNOTAVAIL: "it is no address of this machine: `ip address` shows those that are; 0.0.0.0 is all of them",
    errno.EACCES: "ports below 1024 are root's: choose another one with --listen",
}
_PATH_HINTS = {
    errno.EADDRINUSE: _HINTS[errno.EADDRINUSE],
    errno.EEXIST: "something that is no socket stands there: take it away, or choose another path with --listen",
}
_PROBE_S = 1.0


def check_address(address: str) -> None:
    """Raises DaemonError, with the kernel's reason, where `HOST:PORT` or `unix:PATH` cannot be listened on."""
    try:
        if address.startswith("unix:"):
            _check_path(address[len("unix:") :])
        else:
            _check_port(*address.rsplit(":", 1))
    except socket.gaierror as error:
        raise DaemonError(
            f"cannot listen on {address}: {error.strerror}", hint="name an address of this machine with --listen"
        ) from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise DaemonError(f"cannot listen on {address}: {reason}", hint=_hint(address, error)) from error


def _hint(address: str, error: OSError) -> str:
    if address.startswith("unix:"):
        return _PATH_HINTS.get(error.errno or 0, "name a path in a directory that is there and may be written")
    return _HINTS.get(error.errno or 0, _OTHER)


def _check_port(host: str, port: str) -> None:
    """A name may have several addresses, of which one is enough unless somebody else has another."""
    found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    failed: list[OSError] = []
    for family, kind, protocol, _, where in found:
        try:
            with closing(socket.socket(family, kind, protocol)) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(where)
        except OSError as error:
            failed.append(error)
    in_use = [error for error in failed if error.errno == errno.EADDRINUSE]
    if in_use or len(failed) == len(found):
        raise (in_use or failed)[0]


def _check_path(path: str) -> None:
    """A socket that nobody serves is replaced."""
    directory = os.path.dirname(path) or "."
    os.stat(directory)
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if os.path.lexists(path) and not _is_socket(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    with closing(socket.socket(socket.AF_UNIX)) as probe:
        probe.settimeout(_PROBE_S)
        if probe.connect_ex(path) == 0:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _is_socket(path: str) -> bool:
    return os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode)


class Sealing(grpc.aio.ServerInterceptor):
    """Gives Follow its codecs; a message that is damaged raises DamagedError where it is read."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler | None:
        """The method's handler; gRPC calls it for every call, of whatever service."""
        handler: Any = await continuation(handler_call_details)
        if handler is None or handler.stream_stream is None:
            return handler  # type: ignore[no-any-return]  # gRPC's own
        return grpc.stream_stream_rpc_method_handler(
            handler.stream_stream, partial(unsealed, wire.ClientMessage), sealed
        )


MAX_MESSAGE_BYTES = 4 * 1024 * 1024
# 1,000 entries of a client's messages take 50 KB.
MAX_CLIENT_MESSAGE_BYTES = 256 * 1024
CONNECTIONS = 128
STREAMS_OF_A_CONNECTION = 32
# A connection that has not said what it speaks after so long is closed.
HANDSHAKE_MS = 10_000
WINDOW_BYTES = 64 * 1024
# Each connection holds a buffer for what it reads next; clients say little.
READ_BYTES = 1024
MAX_READ_BYTES = 16 * 1024
# Both sides ping each 10 s, also when nothing is called; gRPC cuts off who pings more often than it was told to expect.
KEEPALIVE_MS = 10_000
KEEPALIVE_TIMEOUT_MS = 4_000
MIN_PING_INTERVAL_MS = 5_000
# Clients that do not leave by themselves are cut off after this.
STOP_S = 2.0

_OPTIONS = [
    ("grpc.max_receive_message_length", MAX_CLIENT_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
    ("grpc.max_allowed_incoming_connections", CONNECTIONS),
    ("grpc.max_concurrent_streams", STREAMS_OF_A_CONNECTION),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
    # What is on its way to or from a client is bounded by a window that does not grow with the link's speed.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
    ("grpc.experimental.tcp_read_chunk_size", READ_BYTES),
    ("grpc.experimental.tcp_max_read_chunk_size", MAX_READ_BYTES),
    # Two daemons on one port would share its clients between them.
    ("grpc.so_reuseport", 0),
]


class Server:
    """Serves from `start` to `stop`."""

    def __init__(self, servicer: Servicer, gate: Gate, credentials: grpc.ServerCredentials | None) -> None:
        """Calls reach the servicer through the gate. Without credentials what is sent can be read by others."""
        self._servicer = servicer
        self._credentials = credentials
        self._health = Health(gate)
        self._server = grpc.aio.server(options=_OPTIONS, interceptors=(gate, Sealing()))
        add_BoardServicer_to_server(servicer, self._server)
        add_HealthServicer_to_server(self._health, self._server)

    async def start(self, address: str) -> str:
        """Listen; the address, with the port that it got. Raises DaemonError when it cannot be had."""
        check_address(address)
        try:
            if self._credentials:
                port = self._server.add_secure_port(address, self._credentials)
            else:
                port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise DaemonError(
                f"cannot listen on {address}: gRPC does not say why", hint="choose another address with --listen"
            ) from error
        await self._server.start()
        return address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"

    async def drain(self) -> None:
        """Say goodbye to each client that has what there is; return when all have left."""
        self._health.stop()
        await self._servicer.drain()

    async def stop(self) -> None:
        """Say goodbye to clients, and end; once more does nothing."""
        self._health.stop()
        self._servicer.close()
        await self._server.stop(STOP_S)
