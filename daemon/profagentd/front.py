"""The front: connections of hosts before they reach gRPC, bounded in number, by address and in bytes a second.

TLS passes through unread. gRPC itself listens on a Unix socket that nobody else can find. A connection is joined to it
once its host has sent its first bytes. The joining socket is bound to an abstract name that holds the host's address,
where `peer_of` finds it.

When there are too many connections, the oldest silent one gives way, then the oldest that has not finished its
handshake. Hosts send little: one that sends much is read slowly, and disconnected if it does not stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import ipaddress
import logging
import os
import shutil
import socket
import tempfile
from typing import TYPE_CHECKING, Any, Optional
from urllib.parse import unquote

from profagentd.limits import (
    ACCEPTED_TOGETHER,
    BACKLOG,
    BURST_BYTES,
    BYTES_PER_S,
    BYTES_PER_S_OF_ALL,
    CONNECTIONS,
    CONNECTIONS_OF_AN_ADDRESS,
    FLOOD_S,
    FRONT_READ_BYTES,
    SILENT_S,
    WAITING_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOGGER = logging.getLogger(__name__)

_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - names that a user gives
# After a failed accept, e.g. for want of descriptors, none is tried for this long.
ACCEPT_AGAIN_S = 1.0
# Interval of warnings about refused connections.
WARN_INTERVAL_S = 60.0
# IPv6 addresses are counted by network: whoever has one address has a whole network.
_NETWORK_BITS = 64
# Prefix of the abstract names of this process's joining sockets. It is random, so nobody else can forge a peer.
_NAME_PREFIX = f"profagentd-{os.urandom(8).hex()}/"


def peer_of(context: Any) -> str:
    """Return gRPC's name of the host that makes a call, `ipv4:ADDRESS:PORT`, also where a front has led it here."""
    peer: str = unquote(context.peer())
    before, led, name = peer.partition(_NAME_PREFIX)
    return name if led and before.startswith("unix-abstract:") else peer


class Stage(enum.Enum):
    """Progress of a connection, as far as the front can see without reading TLS."""

    SILENT = "silent"  # accepted, and nothing received
    SPOKEN = "spoken"  # the host has sent its first bytes
    ANSWERED = "answered"  # the board has answered them
    REPLIED = "replied"  # the host has replied to the answer
    KNOWN = "known"  # the board has accepted the reply: the handshake is over


# Next stage when the host sends, and when the board does.
_HOST_TRANSITIONS = {Stage.SILENT: Stage.SPOKEN, Stage.ANSWERED: Stage.REPLIED}
_BOARD_TRANSITIONS = {Stage.SPOKEN: Stage.ANSWERED, Stage.REPLIED: Stage.KNOWN}
_BOARD_TRANSITIONS_WITHOUT_TLS = {Stage.SPOKEN: Stage.KNOWN}


class Front:
    """Listener at TCP addresses, and table of the connections that it joins to gRPC's socket. It lives on one loop."""

    def __init__(self, *, tls: bool) -> None:
        """Make the directory of gRPC's socket. With `tls` a host is known only after its reply to the certificate."""
        self.board_transitions = _BOARD_TRANSITIONS if tls else _BOARD_TRANSITIONS_WITHOUT_TLS
        self.throttled: set[_HostConnection] = set()  # connections that are not read now, as they sent too much
        self._connections: dict[_HostConnection, None] = {}  # the oldest first
        self._listening: list[socket.socket] = []  # one for each address
        self._joins: set[asyncio.Task[None]] = set()  # tasks that join a host to gRPC
        self._warned_s = float("-inf")  # loop time of the last warning
        runtime = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
        # Only this user may enter the directory, so nobody can connect to gRPC past the front.
        self._directory = tempfile.mkdtemp(prefix="profagentd-", dir=runtime or None)
        self._socket = -1  # gRPC's, once it is hidden

    @property
    def path(self) -> str:
        """Path of the Unix socket on which gRPC has to listen."""
        return os.path.join(self._directory, "grpc")

    def hide(self) -> None:
        """Remove gRPC's socket from the file system, once gRPC listens: a daemon that is killed leaves nothing."""
        self._socket = os.open(self.path, os.O_PATH | os.O_CLOEXEC)
        shutil.rmtree(self._directory)

    @property
    def bytes_per_s(self) -> float:
        """Bytes a second that each throttled connection may send."""
        return min(BYTES_PER_S, BYTES_PER_S_OF_ALL / max(1, len(self.throttled)))

    def listen(self, address: str) -> int:
        """Listen at HOST:PORT, at each address that the host has; return the port. Raises OSError if at none."""
        host, _, wanted = address.rpartition(":")
        host, port, failed, before = host.strip("[]"), int(wanted), None, len(self._listening)
        # All addresses of one family stand for those of both.
        for each in _WILDCARDS if host in _WILDCARDS else (host,):
            for family, kind, _, _, where in socket.getaddrinfo(each, port, type=socket.SOCK_STREAM):
                try:
                    port = self._listen_at(family, kind, (where[0], port, *where[2:]))
                except OSError as error:  # one family may not be there
                    failed = failed or error
        if failed and len(self._listening) == before:
            raise failed
        return port

    def _listen_at(self, family: int, kind: int, where: tuple[Any, ...]) -> int:
        with contextlib.ExitStack() as failing:
            listening = failing.enter_context(socket.socket(family, kind))
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WAITING_BYTES)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(where)
            listening.listen(BACKLOG)
            # Nothing failed, so the socket stays open.
            failing.pop_all()
        self._listening.append(listening)
        self._accept_from(listening)
        port: int = listening.getsockname()[1]
        return port

    def close_door(self) -> None:
        """Accept no more connections."""
        for listening in self._listening:
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()
        self._listening.clear()

    def close(self) -> None:
        """Abort all connections and free everything."""
        self.close_door()
        for connection in [*self._connections]:
            connection.cut()
        for task in self._joins:
            task.cancel()
        shutil.rmtree(self._directory, ignore_errors=True)
        if self._socket >= 0:
            os.close(self._socket)
            self._socket = -1

    def forget(self, connection: _HostConnection) -> None:
        """Forget a connection that is over."""
        self._connections.pop(connection, None)
        self.throttled.discard(connection)

    def connect(self, connection: _HostConnection) -> None:
        """Join a host that has sent its first bytes to gRPC."""
        task = asyncio.get_running_loop().create_task(connection.join(f"/proc/self/fd/{self._socket}"))
        self._joins.add(task)
        task.add_done_callback(self._joins.discard)

    def warn(self, what: str, network: str) -> None:
        """Log a refusal, at most once in WARN_INTERVAL_S: strangers must not fill the log."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._warned_s >= WARN_INTERVAL_S:
            self._warned_s = now_s
            _LOGGER.warning("%s of %s (this message appears at most once a minute)", what, network)

    def _accept_from(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_TOGETHER):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening)
                loop.call_later(ACCEPT_AGAIN_S, self._accept_from, listening)
                _LOGGER.warning("cannot accept connections: %s", error.strerror)
                return
            accepted.setblocking(False)
            self._admit(_HostConnection(self, accepted, address))

    def _admit(self, connection: _HostConnection) -> None:
        of_address = [each for each in self._connections if each.network == connection.network]
        is_full = len(self._connections) >= CONNECTIONS
        # One address may hold half of all connections, so that a single host cannot keep the others out.
        if is_full or len(of_address) >= CONNECTIONS_OF_AN_ADDRESS:
            self.warn("too many connections", connection.network)
            # Hosts that finished the handshake are never disconnected for newcomers.
            oldest = next(self._dispensable([*self._connections] if is_full else of_address), None)
            if oldest is None:
                connection.cut()
                return
            oldest.cut()
        self._connections[connection] = None
        connection.listen()

    @staticmethod
    def _dispensable(connections: list[_HostConnection]) -> Iterator[_HostConnection]:
        yield from (each for each in connections if each.stage is Stage.SILENT)
        yield from (each for each in connections if each.stage is not Stage.KNOWN)


class _HostConnection:
    """Connection of a host, and the one that joins it to gRPC."""

    def __init__(self, front: Front, host: socket.socket, address: Any) -> None:
        self._front, self._socket = front, host
        ip = ipaddress.ip_address(address[0].partition("%")[0])
        ip = getattr(ip, "ipv4_mapped", None) or ip
        is_v4 = isinstance(ip, ipaddress.IPv4Address)
        # Counted by network for IPv6, where a host has as many addresses as it likes.
        self.network = str(ip if is_v4 else ipaddress.ip_network((ip, _NETWORK_BITS), strict=False))
        self._peer = f"ipv4:{ip}:{address[1]}" if is_v4 else f"ipv6:[{ip}]:{address[1]}"
        # It decides who gives way when there are too many connections.
        self.stage = Stage.SILENT
        self._is_joining = self._is_over = False  # `join` is under way; the connection has ended
        self.host, self.board = _End(self), _End(self)
        loop = asyncio.get_running_loop()
        self._now = loop.time
        # Loop times: when the allowance was last at least half full, and when it was last updated.
        self._calm_s = self._counted_s = loop.time()
        # Bytes that it may still send at once. Below zero it is not read until the debt is paid, at the front's rate.
        self._allowed_bytes = float(BURST_BYTES)
        self._timer = loop.call_later(SILENT_S, self.cut)  # the end of silence, later the end of throttling

    def listen(self) -> None:
        """Wait for the host's first bytes."""
        asyncio.get_running_loop().add_reader(self._socket, self._on_first_bytes)

    def _on_first_bytes(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._timer.cancel()
        self.stage, self._is_joining = _HOST_TRANSITIONS[self.stage], True
        self._front.connect(self)

    async def join(self, path: str) -> None:
        """Connect to gRPC at `path`, and let bytes flow both ways."""
        loop: Any = asyncio.get_running_loop()
        leading = socket.socket(socket.AF_UNIX)
        try:
            leading.setblocking(False)
            leading.bind(f"\0{_NAME_PREFIX}{self._peer}")
            leading.connect(path)
            await loop.connect_accepted_socket(lambda: self.board, leading)
            await loop.connect_accepted_socket(lambda: self.host, self._socket)
        except OSError:
            self._is_over = True
        finally:
            self._is_joining = False
            # A transport closes its own socket; without one nobody else would.
            if self.board.transport is None:
                leading.close()
            if self._is_over or self.host.transport is None:
                self.cut()
        if not self._is_over:
            self.board.begin(self.host)
            self.host.begin(self.board)

    def cut(self) -> None:
        """Abort both sides at once."""
        self._finish()
        if self._is_joining:
            return  # `join` sees `_is_over`, and closes both sockets
        for end in (self.host, self.board):
            if end.transport is not None:
                end.transport.abort()
        if self.host.transport is None:
            if self._socket.fileno() >= 0:
                asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()

    def end(self) -> None:
        """Close both sides once everything under way is sent."""
        self._finish()
        for end in (self.host, self.board):
            if end.transport is not None:
                end.transport.close()

    def _finish(self) -> None:
        self._is_over = True
        self._timer.cancel()
        self._front.forget(self)

    def count_received(self, end: _End, count: int) -> None:
        """Count bytes received at an end, and advance the stage."""
        transitions = _HOST_TRANSITIONS if end is self.host else self._front.board_transitions
        self.stage = transitions.get(self.stage, self.stage)
        if end is self.host:
            self._spend(count)

    def _spend(self, count: int) -> None:
        now_s = self._now()
        allowed_bytes = self._allowed_bytes + (now_s - self._counted_s) * self._front.bytes_per_s
        if allowed_bytes >= BURST_BYTES / 2:
            self._calm_s = now_s
        self._allowed_bytes, self._counted_s = min(BURST_BYTES, allowed_bytes) - count, now_s
        if self._allowed_bytes >= 0:
            return
        if now_s - self._calm_s > FLOOD_S:
            self._front.warn("a flood is cut off", self._peer)
            self.cut()
            return
        self._front.throttled.add(self)
        self.host.hold(is_held=True)
        self._timer = asyncio.get_running_loop().call_later(
            -self._allowed_bytes / self._front.bytes_per_s, self._release
        )

    def _release(self) -> None:
        self._front.throttled.discard(self)
        self.host.hold(is_held=False)


# One buffer for all connections: bytes read into it are written to the other end, or copied, before the next read.
_BUFFER = memoryview(bytearray(FRONT_READ_BYTES))


class _End(asyncio.BufferedProtocol):
    """One end of a connection: what it receives is written to the other end."""

    def __init__(self, connection: _HostConnection) -> None:
        self._connection = connection
        self.transport: Optional[Any] = None  # noqa: UP045 - evaluated on Python 3.9
        self._other: Optional[_End] = None  # noqa: UP045
        self._is_held = self._is_full = False  # reading pauses: the host is throttled; the other end cannot write
        self._early_bytes = b""  # received before the other end was there

    def connection_made(self, transport: Any) -> None:
        """Read nothing before the other end is there, and hold no more than is being written.

        Python before 3.11 begins to read nevertheless: such bytes are kept for the few turns of the loop until then.
        """
        self.transport = transport
        transport.set_write_buffer_limits(high=0)
        transport.pause_reading()

    def begin(self, other: _End) -> None:
        """Forward from now on to the other end."""
        self._other = other
        early, self._early_bytes = self._early_bytes, b""
        if early:
            self._forward(early)
        self._update_reading()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's interface
        """Return the buffer to read into."""
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """Forward what was received."""
        if self._other is None:
            self._early_bytes += _BUFFER[:nbytes]
        else:
            self._forward(bytes(_BUFFER[:nbytes]))

    def _forward(self, data: bytes) -> None:
        assert self._other is not None
        assert self._other.transport is not None
        self._other.transport.write(data)
        self._connection.count_received(self, len(data))

    def hold(self, *, is_held: bool) -> None:
        """Pause or resume reading because of throttling."""
        self._is_held = is_held
        self._update_reading()

    def pause_writing(self) -> None:
        """Stop reading at the other end, as this end cannot write."""
        if self._other is not None:
            self._other.set_peer_full(is_full=True)

    def resume_writing(self) -> None:
        """Read at the other end again."""
        if self._other is not None:
            self._other.set_peer_full(is_full=False)

    def set_peer_full(self, *, is_full: bool) -> None:
        """Pause or resume reading, as the other end cannot or can write."""
        self._is_full = is_full
        self._update_reading()

    def _update_reading(self) -> None:
        assert self.transport is not None
        if self.transport.is_closing():
            return
        if self._is_held or self._is_full:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def eof_received(self) -> bool:
        """End the connection: half-closed HTTP/2 is over."""
        self._connection.end()
        return False

    def connection_lost(self, exc: Optional[Exception]) -> None:  # noqa: UP045
        """End the other side as well."""
        if exc is None:
            self._connection.end()
        else:
            self._connection.cut()
