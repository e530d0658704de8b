"""The gRPC server: the Board and Health services, the options, start and stop."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import stat
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from profagent_wire.checksum import DamagedError, decode_checked, encode_checked
from profagent_wire.health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from profagent_wire.health.v1.health_pb2_grpc import HealthServicer, add_HealthServicer_to_server
from profagent_wire.v1 import board_pb2 as wire
from profagent_wire.v1.board_pb2_grpc import BoardServicer, add_BoardServicer_to_server
from profagentd import __version__
from profagentd.access import caller_of
from profagentd.errors import DaemonError, Fault, Refusal
from profagentd.follow import messages
from profagentd.follow.client import STOPPING, ClientStream
from profagentd.follow.table import Quota
from profagentd.front import Front, peer_of
from profagentd.limits import (
    CONNECTIONS,
    HANDSHAKE_MS,
    KEEPALIVE_TIMEOUT_MS,
    MAX_CLIENT_MESSAGE_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_READ_BYTES,
    MEASURE_S,
    MIN_PING_INTERVAL_MS,
    READ_BYTES,
    STOP_S,
    STREAMS,
    STREAMS_OF_A_CLIENT,
    STREAMS_OF_A_CONNECTION,
    WINDOW_BYTES,
)
from profagentd.loop import NoAnswerError, in_time, read_clocks, until_first
from profagentd.sources.files import JobGone
from profagentd.sources.walk import Measure, measure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable
    from typing import Callable

    from profagentd.access import AccessControl
    from profagentd.examine import Examiner
    from profagentd.follow.registry import JobRegistry
    from profagentd.follow.watcher import LogDiscovery
    from profagentd.loop import DaemonClock
    from profagentd.retention.reaper import RetentionKeeper

    _Handler = grpc.RpcMethodHandler[Any, Any]


def address_of(peer: str) -> str:
    """Return the address of a client, without the port, from gRPC's name of the peer."""
    return peer if peer.startswith("unix:") else peer.rpartition(":")[0]


_LOGGER = logging.getLogger(__name__)


class Servicer(BoardServicer):
    """Service Board, as defined in board.proto."""

    def __init__(
        self,
        registry: JobRegistry,
        discovery: LogDiscovery,
        clock: DaemonClock,
        retention: RetentionKeeper,
        identity: wire.Description,
        access: AccessControl,
        examiner: Examiner,
        *,
        simulated: bool,
    ) -> None:
        self.registry = registry
        self.clock = clock
        self.retention = retention
        self._access = access
        self._examiner = examiner
        self._discovery = discovery
        self._identity = identity
        self._simulated = simulated
        self._streams: dict[ClientStream, str] = {}  # each with its client: a certificate's fingerprint, or an address
        self._stream_ended = asyncio.Event()  # set when a stream ends, for `drain`
        self._is_draining = False  # streams end once their clients have everything
        self.quota = Quota()  # shared by all streams

    async def ready(self) -> None:
        """Wait until the existing JOBs are found and examined."""
        await self._discovery.ready.wait()
        await self.registry.wait_until_examined()

    def catch_up(self) -> None:
        """Handle the kernel's events that wait: the changes that they report came before this call."""
        self._discovery.catch_up()

    @property
    def has_searched(self) -> bool:
        """True if no search for JOBs is due or under way."""
        return self._discovery.has_searched

    @property
    def streams(self) -> int:
        """Number of open streams."""
        return len(self._streams)

    async def drain(self) -> None:
        """Let each stream end once its client has everything; return when all have ended."""
        self._is_draining = True
        for stream in self._streams:
            stream.drain()
        while self._streams:
            self._stream_ended.clear()
            await self._stream_ended.wait()

    def close(self, reason: str = STOPPING) -> None:
        """Send each client a Goodbye."""
        for stream in self._streams:
            stream.close(reason)

    def describe(self) -> wire.Description:
        """Return the description of the board and its daemon now."""
        description = wire.Description(
            daemon_version=__version__,
            protocol=messages.protocol(),
            capabilities=messages.CAPABILITIES,
            simulated=self._simulated,
            clocks=messages.clocks(read_clocks(self.clock)),
            roots=[messages.text(root) for root in self._discovery.roots],
            retention=messages.retention(self.retention.policy),
            insecure=self._access.insecure,
        )
        description.MergeFrom(self._identity)
        return description

    async def Describe(self, _request: wire.DescribeRequest, _context: Any) -> wire.Description:
        """Answer the RPC of this name: identity, versions, clocks, roots."""
        return self.describe()

    async def SyncClock(self, _request: wire.SyncClockRequest, _context: Any) -> wire.SyncClockReply:
        """Answer with both clocks at receipt and at sending."""
        received = messages.clocks(read_clocks(self.clock))
        return wire.SyncClockReply(received=received, sent=messages.clocks(read_clocks(self.clock)))

    async def Examine(self, _request: wire.ExamineRequest, _context: Any) -> wire.Examination:
        """Answer with the facts for a diagnosis."""
        return await self._examiner.examine()

    async def MeasureJob(self, request: wire.MeasureJobRequest, context: Any) -> wire.JobMeasure:
        """Answer with the number of a JOB's files, inferences and bytes."""
        await self._discovery.ready.wait()
        # Only registered JOBs are measured: a client's name never becomes a path.
        job = next((each for each in self.registry.jobs if each.name == request.name), None)
        found = Measure(0, 0, 0, is_all=False)
        try:
            if job:
                found = await in_time(job.place.root, measure, job.place, job.source, MEASURE_S)
        except JobGone:
            job = None
        except NoAnswerError:
            _LOGGER.info("the size of %s is unknown: its root does not answer", request.name)
        if job is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such JOB")
        return wire.JobMeasure(**found._asdict())

    async def Follow(  # type: ignore[override]  # grpc.aio also takes a coroutine that writes
        self, request_iterator: AsyncIterator[wire.ClientMessage], context: Any
    ) -> None:
        """Serve one client's stream until it ends. Refusals end it with their status."""
        caller = caller_of(context)
        stream = ClientStream(self, request_iterator, context.write, caller)
        refusal: Refusal | None = None
        try:
            self._admit(stream, caller.fingerprint or address_of(peer_of(context)))
            await until_first(stream.run(), self._access.watch_over(caller))
        except Refusal as raised:
            refusal = raised
        except DamagedError as error:
            refusal = Refusal(Fault.DAMAGED, str(error))
        except grpc.aio.InternalError:
            # gRPC raises this for a message that was being written when the client left.
            _LOGGER.info("%s disconnected during a stream", peer_of(context))
        finally:
            self._streams.pop(stream, None)
            self._stream_ended.set()
        if refusal:
            _LOGGER.warning("refused a stream of %s: %s", peer_of(context), refusal)
            await context.abort(grpc.StatusCode[refusal.fault.value], str(refusal))

    def _admit(self, stream: ClientStream, client: str) -> None:
        if len(self._streams) >= STREAMS:
            raise Refusal(Fault.EXHAUSTED, f"{STREAMS} streams are open already")
        if list(self._streams.values()).count(client) >= STREAMS_OF_A_CLIENT:
            raise Refusal(Fault.EXHAUSTED, f"{STREAMS_OF_A_CLIENT} streams of this client are open already")
        self._streams[stream] = client
        # A stream that is admitted during the drain has to end with it.
        if self._is_draining:
            stream.drain()


# The empty name stands for the server as a whole.
_SERVICES = frozenset(("", "profagent_wire.v1.Board"))


class Health(HealthServicer):
    """Service grpc.health.v1: SERVING from the start until `stop`."""

    def __init__(self) -> None:
        self._stopping = asyncio.Event()  # set once, when the daemon begins to end

    def stop(self) -> None:
        """Report NOT_SERVING from now on."""
        self._stopping.set()

    async def Check(self, request: HealthCheckRequest, context: Any) -> HealthCheckResponse:
        """Answer with the present status."""
        if request.service not in _SERVICES:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service!r}")
        return self._response(request.service)

    async def Watch(self, request: HealthCheckRequest, _context: Any) -> AsyncIterator[HealthCheckResponse]:
        """Send the present status, and the next one when it changes."""
        yield self._response(request.service)
        await self._stopping.wait()
        if request.service in _SERVICES:
            yield self._response(request.service)

    def _response(self, service: str) -> HealthCheckResponse:
        if service not in _SERVICES:
            return HealthCheckResponse(status=HealthCheckResponse.SERVICE_UNKNOWN)
        is_over = self._stopping.is_set()
        return HealthCheckResponse(status=HealthCheckResponse.NOT_SERVING if is_over else HealthCheckResponse.SERVING)


_HINTS = {
    errno.EADDRINUSE: "another program has it, maybe another profagentd: end that one, or choose another address with"
    " --listen",
    errno.EADDRNOTAVAIL: "it is no address of this machine: `ip address` shows those that are; 0.0.0.0 is all of them",
    errno.EACCES: "ports below 1024 are root's, and a directory may be another's: choose another with --listen",
    errno.EEXIST: "something that is no socket stands there: take it away, or choose another path with --listen",
}
_ADDRESS_HINT = "name an address of this machine, or a path in a directory that is there, with --listen"
_PROBE_S = 1.0


def check_address(address: str) -> None:
    """Check that `HOST:PORT` or `unix:PATH` can be listened on. Raises DaemonError with the kernel's reason.

    gRPC does not report that reason itself.
    """
    try:
        if address.startswith("unix:"):
            _check_path(address[len("unix:") :])
        else:
            host, _, port = address.rpartition(":")
            family, kind, _, _, where = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
            with closing(socket.socket(family, kind)) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(where)
    except UnicodeError as error:
        why = "a part of the host's name is empty, or over 63 characters"
        raise DaemonError(f"cannot listen on {address}: {why}", hint=_ADDRESS_HINT) from error
    except OSError as error:
        reason = error.strerror or os.strerror(error.errno or errno.EIO)
        hint = _HINTS.get(error.errno or 0, _ADDRESS_HINT)
        raise DaemonError(f"cannot listen on {address}: {reason}", hint=hint) from error


def _check_path(path: str) -> None:
    """Check the path of a Unix socket. A socket that nobody serves is no obstacle: gRPC replaces it."""
    if not os.access(os.path.dirname(path) or ".", os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "its directory is not there, or not to be written")
    if os.path.lexists(path) and not (os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode)):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    with closing(socket.socket(socket.AF_UNIX)) as probe:
        probe.settimeout(_PROBE_S)
        if probe.connect_ex(path) == 0:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


class CheckedMessages(grpc.aio.ServerInterceptor):
    """Interceptor that gives Follow its codecs with a checksum.

    A damaged message raises DamagedError when it is read.
    """

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler | None:
        """Return the method's handler. gRPC calls this for each call of each service."""
        handler: Any = await continuation(handler_call_details)
        if handler is None or handler.stream_stream is None:
            return handler  # type: ignore[no-any-return]  # gRPC's own
        return grpc.stream_stream_rpc_method_handler(
            handler.stream_stream, partial(decode_checked, wire.ClientMessage), encode_checked
        )


# Both sides ping at this interval, also between calls. gRPC disconnects a peer that pings more often than expected.
KEEPALIVE_MS = 10_000

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
    # The bytes under way to or from a client are bounded by a window that does not grow with the link's speed.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
    ("grpc.experimental.tcp_read_chunk_size", READ_BYTES),
    ("grpc.experimental.tcp_max_read_chunk_size", MAX_READ_BYTES),
    # Two daemons on one port would share its clients between them.
    ("grpc.so_reuseport", 0),
]


class Server:
    """gRPC server behind its front. It serves from `start` to `stop`."""

    def __init__(self, servicer: Servicer, access: AccessControl, credentials: grpc.ServerCredentials | None) -> None:
        """Check each call with `access`. Without credentials the connection is not encrypted."""
        self._servicer = servicer
        self._credentials = credentials
        self._health = Health()
        self._front: Front | None = None  # none for a Unix socket: its clients are on the board
        # The access check wraps every method, of both services; the codecs only Follow.
        self._server = grpc.aio.server(options=_OPTIONS, interceptors=(access, CheckedMessages()))
        add_BoardServicer_to_server(servicer, self._server)
        add_HealthServicer_to_server(self._health, self._server)

    async def start(self, address: str) -> str:
        """Listen; return the address with the port in use. Raises DaemonError where that fails."""
        check_address(address)
        if address.startswith("unix:"):
            await self._serve(address)
            return address
        try:
            self._front = Front(tls=self._credentials is not None)
            await self._serve(f"unix:{self._front.path}")
            # The path goes before the front accepts: nobody may reach gRPC past the front's limits.
            self._front.hide()
            return f"{address.rpartition(':')[0]}:{self._front.listen(address)}"
        except OSError as error:
            await self.stop()
            hint = _HINTS.get(error.errno or 0, _ADDRESS_HINT)
            raise DaemonError(f"cannot listen on {address}: {error.strerror or error}", hint=hint) from error

    async def _serve(self, target: str) -> None:
        try:
            if self._credentials:
                self._server.add_secure_port(target, self._credentials)
            else:
                self._server.add_insecure_port(target)
        except RuntimeError as error:
            raise DaemonError(
                f"cannot listen on {target}: gRPC does not say why", hint="choose another address with --listen"
            ) from error
        await self._server.start()

    async def drain(self) -> None:
        """Send a Goodbye to each client once it has everything; return when all have left."""
        self._health.stop()
        await self._servicer.drain()

    async def stop(self) -> None:
        """Send a Goodbye to all clients, and end. A second call does nothing."""
        self._health.stop()
        self._servicer.close()
        if self._front is not None:
            # No new connections while streams end. The front itself still carries the Goodbyes.
            self._front.close_door()
        await self._server.stop(STOP_S)
        if self._front is not None:
            self._front.close()
