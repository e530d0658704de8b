"""The gRPC server: its options, its services, its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc.aio

from profagent_wire.health.v1.health_pb2_grpc import add_HealthServicer_to_server
from profagent_wire.v1.board_pb2_grpc import add_BoardServicer_to_server
from profagentd.errors import DaemonError
from profagentd.health import Health
from profagentd.listening import check_address
from profagentd.sealing import Sealing

if TYPE_CHECKING:
    from profagentd.gate import Gate
    from profagentd.servicer import Servicer

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
