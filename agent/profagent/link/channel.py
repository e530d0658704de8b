"""The gRPC channel to a board: thin calls that give plain values and profagent's own errors."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeVar, cast

import grpc
import grpc.aio

from profagent.errors import ProtocolError, RefusedError, UnreachableError, UsageError
from profagent.limits import CALL_TIMEOUT_S, LARGEST_MESSAGE_BYTES, PING_MS, PING_TIMEOUT_MS
from profagent.link.credentials import BY_ADDRESS, Certificate
from profagent.link.handshake import proven_certificate
from profagent.link.messages import Welcome
from profagent.link.translate import (
    board_from_wire,
    clocks_from_wire,
    examination_from_wire,
    from_wire,
    measure_from_wire,
    to_wire,
)
from profagent_wire.checksum import DamagedError, decode_checked, encode_checked, has_checksum
from profagent_wire.v1 import board_pb2 as pb
from profagent_wire.v1 import board_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from profagent.link.addresses import KnownBoard
    from profagent.link.credentials import Access
    from profagent.link.messages import Board, ClientMessage, Clocks, JobMeasure, ServerMessage
    from profagent.link.translate import Examination


M = TypeVar("M")

UPGRADE = "upgrade profagent on both ends"
_OPTIONS = (
    ("grpc.keepalive_time_ms", PING_MS),
    ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", LARGEST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", LARGEST_MESSAGE_BYTES),
    ("grpc.enable_retries", 0),
    # Each channel makes a connection of its own, and takes none that is dead without being known to be.
    ("grpc.use_local_subchannel_pool", 1),
    # What is under way stays small: on a link that becomes slow, proof of life does not wait behind megabytes.
    ("grpc.http2.bdp_probe", 0),
)
_FOLLOW = f"/{pb.DESCRIPTOR.services_by_name['Board'].full_name}/Follow"
_REFUSED_CODES = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
# How a TLS handshake fails for good, in BoringSSL's words. One that was cut, and damaged bytes, are not meant.
_REFUSED_HANDSHAKE = re.compile(
    r"certificate|unknown_ca|access_denied|handshake_failure|wrong_version_number|protocol_version|peer name",
    re.IGNORECASE,
)
# gRPC's words for a message over LARGEST_MESSAGE_BYTES, and for bytes that are no message.
_BROKEN = re.compile(r"message larger than max|deserializing", re.IGNORECASE)
# gRPC's words for a host that has no address, and for a connection that does not come to be.
_NO_HOST = re.compile(r"errors resolving|domain name not found|dns resolution failed", re.IGNORECASE)
_NO_ANSWER = re.compile(r"time[d ]*out|deadline", re.IGNORECASE)
# The operating system's words in those of gRPC.
_WHY = re.compile(
    r"connection (?:refused|reset by peer|aborted)|no route to host|network is unreachable|no such file or directory"
    r"|permission denied|broken pipe|socket closed",
    re.IGNORECASE,
)
_FINAL_CODES = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED)


class Stream:
    """One running Follow call."""

    def __init__(
        self,
        address: str,
        call: grpc.aio.StreamStreamCall[bytes, bytes],
        check_identity: Callable[[str], None],
        ask: Callable[[], Awaitable[object]],
    ) -> None:
        """`ask` makes another call, and fails with what the board says to it."""
        self._address = address
        self._check_identity = check_identity
        self._call = call
        self._ask = ask
        self._is_checked = False  # the board's messages have check values
        self._why = "the stream has ended"  # why it was ended from here
        # gRPC fails a call that is given a message while another is still being sent.
        self._sending = asyncio.Lock()

    async def ready(self) -> None:
        """Wait until the board is connected. Raises UnreachableError."""
        try:
            await self._call.wait_for_connection()
        except grpc.aio.AioRpcError as error:
            raise _translated(error, self._address) from error

    async def send(self, message: ClientMessage) -> None:
        """Send one message in its turn; waits while the board does not read. UnreachableError or ProtocolError."""
        data = encode_checked(to_wire(message))
        try:
            async with self._sending:
                await self._call.write(data)
        except asyncio.CancelledError as error:
            raise self._cut(error) from None
        except grpc.aio.AioRpcError as error:
            raise await self._reason(error) from error
        except (grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            raise await self._ended() from error

    async def receive(self) -> ServerMessage:
        """The next message that this version knows. UnreachableError, ProtocolError, RefusedError (another board)."""
        while True:
            try:
                data = await self._call.read()
            except asyncio.CancelledError as error:
                raise self._cut(error) from None
            except grpc.aio.AioRpcError as error:
                raise await self._reason(error) from error
            if not isinstance(data, bytes):
                raise UnreachableError.at(self._address, "the board ended the stream")
            try:
                message = decode_checked(pb.ServerMessage, data)
                self._is_checked = has_checksum(message, before=self._is_checked)
            except DamagedError as error:
                raise UnreachableError.at(self._address, str(error)) from error
            value = from_wire(message)
            if isinstance(value, Welcome):
                self._check_identity(value.board.identity)
            if value is not None:
                return value

    async def _reason(self, error: grpc.aio.AioRpcError) -> UnreachableError:
        # gRPC forgets why a stream has ended when the end comes while something is being sent.
        is_forgotten = error.code() is grpc.StatusCode.INTERNAL
        return await self._ended() if is_forgotten else _translated(error, self._address)

    async def _ended(self) -> UnreachableError:
        """The error for an end of which no reason is known: what the board says to another call."""
        try:
            await self._ask()
        except UnreachableError as error:
            return error
        return UnreachableError.at(self._address, "the stream has ended")

    async def finish(self) -> None:
        """Tell the board that nothing more comes: it ends the stream once it has heard all."""
        # A stream that fails meanwhile has nobody to be told: a board that was not reached yet, for one.
        with suppress(grpc.aio.InternalError):
            async with self._sending:
                await self._call.done_writing()

    def cancel(self, why: str = "") -> None:
        """End the stream; what is on its way either way may be lost. Whoever reads or sends is told why."""
        self._why = why or self._why
        self._call.cancel()

    def _cut(self, error: asyncio.CancelledError) -> BaseException:
        # gRPC cancels whoever waits for a call that is cancelled; a task that is cancelled itself ends.
        task = asyncio.current_task()
        return error if task is None or task.cancelling() else UnreachableError.at(self._address, self._why)


class Channel:
    """Calls to one board."""

    def __init__(self, address: str, channel: grpc.aio.Channel, check_identity: Callable[[str], None]) -> None:
        """`check_identity` is told who the board says that it is; it raises RefusedError when that cannot be."""
        self.address = address
        self._check_identity = check_identity
        # The generated types have a name of their own for a stub on an asyncio channel.
        self._stub = cast("board_pb2_grpc.BoardAsyncStub", board_pb2_grpc.BoardStub(channel))
        # Bytes both ways: what a codec of gRPC's raises is not told to whoever reads.
        self._follow: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(_FOLLOW)

    async def describe(self) -> Board:
        """Who the board is. Raises UnreachableError; RefusedError for another one than is known by the name."""
        board = board_from_wire(await self._answer(self._stub.Describe(pb.DescribeRequest(), timeout=CALL_TIMEOUT_S)))
        self._check_identity(board.identity)
        return board

    async def examine(self) -> Examination:
        """What the board sees of itself. Raises UnreachableError."""
        return examination_from_wire(
            await self._answer(self._stub.Examine(pb.ExamineRequest(), timeout=CALL_TIMEOUT_S))
        )

    async def measure(self, job: str) -> JobMeasure | None:
        """How much a JOB holds; None when it is not there. Raises UnreachableError."""
        call = self._stub.MeasureJob(pb.MeasureJobRequest(name=job), timeout=CALL_TIMEOUT_S)
        try:
            return measure_from_wire(await self._answer(call))
        except UnreachableError:
            if await call.code() is grpc.StatusCode.NOT_FOUND:
                return None
            raise

    async def clocks(self) -> tuple[Clocks, Clocks]:
        """The board's clocks at the request's arrival and at the reply's leaving. Raises UnreachableError."""
        reply = await self._answer(self._stub.SyncClock(pb.SyncClockRequest(), timeout=CALL_TIMEOUT_S))
        return clocks_from_wire(reply.received), clocks_from_wire(reply.sent)

    async def _answer(self, call: Awaitable[M | None]) -> M:
        """The board's answer to a call. Raises UnreachableError."""
        try:
            reply = await call
        except grpc.aio.AioRpcError as error:
            raise _translated(error, self.address) from error
        if reply is None:  # of one that cannot be read gRPC gives nothing
            raise UnreachableError.at(self.address, "its answer was damaged on the way")
        return reply

    @asynccontextmanager
    async def follow(self) -> AsyncIterator[Stream]:
        """A Follow stream; it is ended when the context is left."""
        stream = Stream(self.address, self._follow(), self._check_identity, self.describe)
        try:
            yield stream
        finally:
            stream.cancel()


@asynccontextmanager
async def connected(board: str, access: Access = BY_ADDRESS) -> AsyncIterator[Channel]:
    """A channel to a board by its name, or to `HOST[:PORT]`.

    In plain text nothing is sent before the first call; over TLS a handshake is.

    Raises RefusedError, also for keys that cannot be used (now: they may be on their way), and UnreachableError.
    """
    known = access.named(board)
    try:
        opened, shown = await _opened(known, access)
    except UsageError as error:
        raise RefusedError(str(error), hint=error.hint) from error
    async with opened as channel:
        yield Channel(known.shown, channel, lambda identity: access.check_identity(known, identity, shown))


async def _opened(board: KnownBoard, access: Access) -> tuple[grpc.aio.Channel, Certificate | None]:
    """A channel, and the certificate that the board has shown."""
    target = board.address
    credentials = await asyncio.to_thread(access.credentials, board)
    if credentials is None:
        return grpc.aio.insecure_channel(target, options=_OPTIONS), None
    # The board's own certificate is all that is trusted, so what was proven of it holds for this channel too.
    proven = await proven_certificate(board, credentials)
    shown = Certificate.read(proven, board.place)
    board.check_fingerprint(shown.fingerprint)
    tls = grpc.ssl_channel_credentials(proven, credentials.key_pem, credentials.own_pem)
    named = (("grpc.ssl_target_name_override", board.tls_name),) if board.tls_name else ()
    return grpc.aio.secure_channel(target, tls, options=(*_OPTIONS, ("grpc.enable_http_proxy", 0), *named)), shown


def _translated(error: grpc.aio.AioRpcError, address: str) -> UnreachableError:
    details = (error.details() or error.code().name).strip()
    if error.code() in _REFUSED_CODES:
        return RefusedError(
            f"the board at {address} refuses this host: {details}",
            hint="have a certificate issued that it takes: `profagent keys issue host`",
        )
    if error.code() is grpc.StatusCode.UNAVAILABLE and _REFUSED_HANDSHAKE.search(details):
        return RefusedError(
            f"the board at {address} and this host do not trust each other: {details}",
            hint="check both ends' keys and certificates, and the board's clock",
        )
    if _BROKEN.search(details):
        return ProtocolError(f"the board at {address} broke the protocol: {details}", hint=UPGRADE)
    if error.code() in _FINAL_CODES:
        return ProtocolError(f"the board at {address} refused: {details}", hint=UPGRADE)
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
        hint = "end another profagent that follows the board; until then it is tried again"
        return UnreachableError(f"the board at {address} has no room: {details}", hint=hint)
    is_unresolved = _NO_HOST.search(details)
    return UnreachableError.unresolved(address) if is_unresolved else UnreachableError.at(address, _plain(details))


def _plain(details: str) -> str:
    """Why there is no connection, out of gRPC's words."""
    if found := _WHY.search(details):
        return found[0].lower()
    if _NO_ANSWER.search(details):
        return "no answer"
    return details.rpartition(": ")[2] if details.startswith("failed to connect") else details
