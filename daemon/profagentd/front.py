"""Connections of hosts before gRPC has them: how many there may be, by address and in all, and how much each may say.

TLS passes through. gRPC itself listens on a Unix socket that nobody else can find, and is led a connection when its
host has said its first word. The socket that leads there is bound to an abstract name that holds the host's address,
from which `peer_of` has it.

When there are too many, the oldest that has said nothing makes room, then the oldest that has not come through its
handshake. Hosts say little: one that says much is read slowly, and is cut off when it goes on.
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
# Without descriptors nothing is accepted for so long.
ACCEPT_AGAIN_S = 1.0
# What is refused is told so often.
TELL_EACH_S = 60.0
# Whoever has an IPv6 address has a network of them.
_NETWORK_BITS = 64
# In the names that sockets of this process are bound to; nobody else is believed to lead hosts here.
_LED = f"profagentd-{os.urandom(8).hex()}/"


def peer_of(context: Any) -> str:
    """Return gRPC's name of the host that makes a call, `ipv4:ADDRESS:PORT`, also where a front has led it here."""
    peer: str = unquote(context.peer())
    before, led, told = peer.partition(_LED)
    return told if led and before.startswith("unix-abstract:") else peer


class Stage(enum.Enum):
    """How far a connection has come."""

    SILENT = "silent"
    SPOKEN = "spoken"  # the host has said its first word
    ANSWERED = "answered"  # the board has said something to that
    REPLIED = "replied"  # and the host to that
    KNOWN = "known"  # it has come through the handshake


# What follows when the host says something, and when the board does.
_HOST_SAYS = {Stage.SILENT: Stage.SPOKEN, Stage.ANSWERED: Stage.REPLIED}
_BOARD_SAYS = {Stage.SPOKEN: Stage.ANSWERED, Stage.REPLIED: Stage.KNOWN}
_BOARD_SAYS_WITHOUT_TLS = {Stage.SPOKEN: Stage.KNOWN}


class Front:
    """Listens at TCP addresses, and leads what may pass to gRPC's socket. Made, started and closed in a loop."""

    def __init__(self, *, tls: bool) -> None:
        """With `tls` a host has to answer the board's certificate before it counts as one."""
        self.board_says = _BOARD_SAYS if tls else _BOARD_SAYS_WITHOUT_TLS
        self.throttled: set[_Connection] = set()
        self._connections: dict[_Connection, None] = {}  # the oldest first
        self._listening: list[socket.socket] = []
        self._leading: set[asyncio.Task[None]] = set()
        self._told_s = float("-inf")
        runtime = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
        self._directory = tempfile.mkdtemp(prefix="profagentd-", dir=runtime or None)
        self._socket = -1  # gRPC's, once it is hidden

    @property
    def path(self) -> str:
        """Where gRPC has to listen, on a Unix socket."""
        return os.path.join(self._directory, "grpc")

    def hide(self) -> None:
        """Take the socket, on which gRPC listens now, out of the file system: one that is killed leaves nothing."""
        self._socket = os.open(self.path, os.O_PATH | os.O_CLOEXEC)
        shutil.rmtree(self._directory)

    @property
    def bytes_per_s(self) -> float:
        """How much a connection may say that says more than it may at once."""
        return min(BYTES_PER_S, BYTES_PER_S_OF_ALL / max(1, len(self.throttled)))

    def listen(self, address: str) -> int:
        """Listen at HOST:PORT from now on, at each address that the host has; the port. OSError if at none."""
        host, _, wanted = address.rpartition(":")
        host, port, failed, before = host.strip("[]"), int(wanted), None, len(self._listening)
        # Who names all addresses of one family means all.
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
            failing.pop_all()
        self._listening.append(listening)
        self._accept_from(listening)
        port: int = listening.getsockname()[1]
        return port

    def close_door(self) -> None:
        """Accept nobody any more."""
        for listening in self._listening:
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()
        self._listening.clear()

    def close(self) -> None:
        """Cut off whoever is there, and leave nothing behind."""
        self.close_door()
        for connection in [*self._connections]:
            connection.cut()
        for task in self._leading:
            task.cancel()
        shutil.rmtree(self._directory, ignore_errors=True)
        if self._socket >= 0:
            os.close(self._socket)
            self._socket = -1

    def left(self, connection: _Connection) -> None:
        """Forget a connection that is over."""
        self._connections.pop(connection, None)
        self.throttled.discard(connection)

    def lead(self, connection: _Connection) -> None:
        """Lead a host that has said its first word to gRPC."""
        task = asyncio.get_running_loop().create_task(connection.join(f"/proc/self/fd/{self._socket}"))
        self._leading.add(task)
        task.add_done_callback(self._leading.discard)

    def tell(self, what: str, network: str) -> None:
        """Say now and then what is refused: what strangers do must not fill the log."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._told_s >= TELL_EACH_S:
            self._told_s = now_s
            _LOGGER.warning("%s of %s; this is told once a minute at most", what, network)

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
                _LOGGER.warning("no connection can be accepted: %s", error.strerror)
                return
            accepted.setblocking(False)
            self._admit(_Connection(self, accepted, address))

    def _admit(self, connection: _Connection) -> None:
        of_address = [each for each in self._connections if each.network == connection.network]
        is_full = len(self._connections) >= CONNECTIONS
        if is_full or len(of_address) >= CONNECTIONS_OF_AN_ADDRESS:
            self.tell("too many connections", connection.network)
            oldest = next(self._strangers([*self._connections] if is_full else of_address), None)
            if oldest is None:
                connection.cut()
                return
            oldest.cut()
        self._connections[connection] = None
        connection.listen()

    @staticmethod
    def _strangers(connections: list[_Connection]) -> Iterator[_Connection]:
        yield from (each for each in connections if each.stage is Stage.SILENT)
        yield from (each for each in connections if each.stage is not Stage.KNOWN)


class _Connection:
    """A host's connection, and the one that leads it to gRPC."""

    def __init__(self, front: Front, host: socket.socket, address: Any) -> None:
        self._front, self._socket = front, host
        ip = ipaddress.ip_address(address[0].partition("%")[0])
        ip = getattr(ip, "ipv4_mapped", None) or ip
        is_v4 = isinstance(ip, ipaddress.IPv4Address)
        self.network = str(ip if is_v4 else ipaddress.ip_network((ip, _NETWORK_BITS), strict=False))
        self._peer = f"ipv4:{ip}:{address[1]}" if is_v4 else f"ipv6:[{ip}]:{address[1]}"
        self.stage = Stage.SILENT
        self._is_joining = self._is_over = False
        self.host, self.board = _End(self), _End(self)
        loop = asyncio.get_running_loop()
        self._now = loop.time
        self._calm_s = self._counted_s = loop.time()
        self._left_bytes = float(BURST_BYTES)  # what it may say at once; less than nothing: it is held
        self._timer = loop.call_later(SILENT_S, self.cut)

    def listen(self) -> None:
        """Wait for its first word."""
        asyncio.get_running_loop().add_reader(self._socket, self._speaks)

    def _speaks(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._timer.cancel()
        self.stage, self._is_joining = _HOST_SAYS[self.stage], True
        self._front.lead(self)

    async def join(self, path: str) -> None:
        """Connect both ends."""
        loop: Any = asyncio.get_running_loop()
        leading = socket.socket(socket.AF_UNIX)
        try:
            leading.setblocking(False)
            leading.bind(f"\0{_LED}{self._peer}")
            leading.connect(path)
            await loop.connect_accepted_socket(lambda: self.board, leading)
            await loop.connect_accepted_socket(lambda: self.host, self._socket)
        except OSError:
            self._is_over = True
        finally:
            self._is_joining = False
            if self.board.transport is None:
                leading.close()
            if self._is_over or self.host.transport is None:
                self.cut()
        if not self._is_over:
            self.board.begin(self.host)
            self.host.begin(self.board)

    def cut(self) -> None:
        """End it at once."""
        self._finish()
        if self._is_joining:
            return  # which ends what it has made
        for end in (self.host, self.board):
            if end.transport is not None:
                end.transport.abort()
        if self.host.transport is None:
            if self._socket.fileno() >= 0:
                asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()

    def end(self) -> None:
        """End it when what is under way has been sent."""
        self._finish()
        for end in (self.host, self.board):
            if end.transport is not None:
                end.transport.close()

    def _finish(self) -> None:
        self._is_over = True
        self._timer.cancel()
        self._front.left(self)

    def came(self, end: _End, count: int) -> None:
        """Count what came at an end."""
        says = _HOST_SAYS if end is self.host else self._front.board_says
        self.stage = says.get(self.stage, self.stage)
        if end is self.host:
            self._spend(count)

    def _spend(self, count: int) -> None:
        now_s = self._now()
        left = self._left_bytes + (now_s - self._counted_s) * self._front.bytes_per_s
        if left >= BURST_BYTES / 2:
            self._calm_s = now_s
        self._left_bytes, self._counted_s = min(BURST_BYTES, left) - count, now_s
        if self._left_bytes >= 0:
            return
        if now_s - self._calm_s > FLOOD_S:
            self._front.tell("a flood is cut off", self._peer)
            self.cut()
            return
        self._front.throttled.add(self)
        self.host.hold(is_held=True)
        self._timer = asyncio.get_running_loop().call_later(-self._left_bytes / self._front.bytes_per_s, self._go_on)

    def _go_on(self) -> None:
        self._front.throttled.discard(self)
        self.host.hold(is_held=False)


# What is read is written at once, or copied.
_BUFFER = memoryview(bytearray(FRONT_READ_BYTES))


class _End(asyncio.BufferedProtocol):
    """One end of a connection: what comes here is written to the other."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self.transport: Optional[Any] = None  # noqa: UP045 - evaluated on Python 3.9
        self._other: Optional[_End] = None  # noqa: UP045
        self._is_held = self._is_full = False
        self._early = b""

    def connection_made(self, transport: Any) -> None:
        """Read nothing before the other end is there, and hold no more than is being written.

        Python before 3.11 begins to read nevertheless: what comes so early is kept for the few turns until then.
        """
        self.transport = transport
        transport.set_write_buffer_limits(high=0)
        transport.pause_reading()

    def begin(self, other: _End) -> None:
        """Let what comes go to the other end."""
        self._other = other
        early, self._early = self._early, b""
        if early:
            self._hand_on(early)
        self._read_on()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's interface
        """Return the room for what comes."""
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """Hand on what came."""
        if self._other is None:
            self._early += _BUFFER[:nbytes]
        else:
            self._hand_on(bytes(_BUFFER[:nbytes]))

    def _hand_on(self, data: bytes) -> None:
        assert self._other is not None
        assert self._other.transport is not None
        self._other.transport.write(data)
        self._connection.came(self, len(data))

    def hold(self, *, is_held: bool) -> None:
        """Read nothing meanwhile."""
        self._is_held = is_held
        self._read_on()

    def pause_writing(self) -> None:
        """What is written here waits: nothing more is read at the other end."""
        if self._other is not None:
            self._other.fill(is_full=True)

    def resume_writing(self) -> None:
        """It has been written."""
        if self._other is not None:
            self._other.fill(is_full=False)

    def fill(self, *, is_full: bool) -> None:
        """Know whether the other end takes more."""
        self._is_full = is_full
        self._read_on()

    def _read_on(self) -> None:
        assert self.transport is not None
        if self.transport.is_closing():
            return
        if self._is_held or self._is_full:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def eof_received(self) -> bool:
        """It says nothing more: a connection of HTTP/2 is over then."""
        self._connection.end()
        return False

    def connection_lost(self, exc: Optional[Exception]) -> None:  # noqa: UP045
        """It is gone."""
        if exc is None:
            self._connection.end()
        else:
            self._connection.cut()
