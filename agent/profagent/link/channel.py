"""Channel to a board over gRPC: thin calls that return plain values and raise profagent's own errors."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeVar, cast

import grpc
import grpc.aio

from profagent.errors import ProtocolError, RefusedError, UnknownHostError, UnreachableError, UsageError
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
    # Each channel makes a connection of its own: a shared one may be dead without gRPC having noticed.
    ("grpc.use_local_subchannel_pool", 1),
    # Keeps the flow-control window small: on a link that becomes slow, heartbeats do not wait behind megabytes.
    ("grpc.http2.bdp_probe", 0),
)
_FOLLOW = f"/{pb.DESCRIPTOR.services_by_name['Board'].full_name}/Follow"
_REFUSED_CODES = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
# Words of BoringSSL for a handshake that fails for good; a cut connection and damaged bytes are tried again.
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
    """One running Follow call. Sending is serialized here; only one task may receive."""

    def __init__(
        self,
        address: str,
        call: grpc.aio.StreamStreamCall[bytes, bytes],
        check_identity: Callable[[str], None],
        ask: Callable[[], Awaitable[object]],
    ) -> None:
        """`ask` makes another call, whose error tells why the board has ended the stream."""
        self._address = address
        self._check_identity = check_identity
        self._call = call
        self._ask = ask
        self._is_checked = False  # true once a message of the board had a check value
        self._why = "the stream has ended"  # the reason for readers and senders if this side cancels the call
        # gRPC fails a call if a second message is written before the first is sent.
        self._sending = asyncio.Lock()

    async def ready(self) -> None:
        """Wait until the call is connected. Raises UnreachableError."""
        try:
            await self._call.wait_for_connection()
        except grpc.aio.AioRpcError as error:
            raise _translated(error, self._address) from error

    async def send(self, message: ClientMessage) -> None:
        """Send one message in its turn; wait while the board does not read.

        Raises UnreachableError and ProtocolError.
        """
        data = encode_checked(to_wire(message))
        try:
            async with self._sending:
                # The write returns when the board's flow-control window takes the message, so a slow board slows the
                # sender.
                await self._call.write(data)
        except asyncio.CancelledError as error:
            raise self._cut(error) from None
        except grpc.aio.AioRpcError as error:
            raise await self._reason(error) from error
        except (grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            raise await self._ended() from error

    async def receive(self) -> ServerMessage:
        """Return the next message; messages of kinds that this version does not know are dropped.

        Raises UnreachableError, ProtocolError, and RefusedError if another board than the known one welcomes the host.
        """
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
                # Once one message had a checksum every later one must: damage to the field's tag would hide it
                # otherwise.
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
        # gRPC reports INTERNAL in place of the reason if the stream ends while a message is being sent.
        is_forgotten = error.code() is grpc.StatusCode.INTERNAL
        return await self._ended() if is_forgotten else _translated(error, self._address)

    async def _ended(self) -> UnreachableError:
        """Return the error for an end without a known reason: the answer to another call may tell."""
        try:
            await self._ask()
        except UnreachableError as error:
            return error
        return UnreachableError.at(self._address, "the stream has ended")

    async def finish(self) -> None:
        """Tell the board that no more messages come: it ends the call once it has read them all."""
        # A failure here needs no report: the stream is being left, and may not even be connected yet.
        with suppress(grpc.aio.InternalError):
            async with self._sending:
                await self._call.done_writing()

    def cancel(self, why: str = "") -> None:
        """End the call; messages on their way may be lost. Readers and senders get an error with the reason `why`."""
        self._why = why or self._why
        self._call.cancel()

    def _cut(self, error: asyncio.CancelledError) -> BaseException:
        # gRPC raises CancelledError in tasks that wait for a cancelled call. Only a task that is cancelled itself may
        # see it.
        task = asyncio.current_task()
        return error if task is None or task.cancelling() else UnreachableError.at(self._address, self._why)


class Channel:
    """Calls to one board over one gRPC channel."""

    def __init__(self, address: str, channel: grpc.aio.Channel, check_identity: Callable[[str], None]) -> None:
        """`check_identity` is called with the identity that the board reports; it raises RefusedError."""
        self.address = address
        self._check_identity = check_identity
        # The generated types distinguish a stub on an asyncio channel, which grpc itself does not.
        self._stub = cast("board_pb2_grpc.BoardAsyncStub", board_pb2_grpc.BoardStub(channel))
        # The call carries bytes both ways: gRPC would hide errors of a codec from the reader.
        self._follow: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(_FOLLOW)

    async def describe(self) -> Board:
        """Return the board's description. Raises UnreachableError; RefusedError for another identity."""
        board = board_from_wire(await self._answer(self._stub.Describe(pb.DescribeRequest(), timeout=CALL_TIMEOUT_S)))
        self._check_identity(board.identity)
        return board

    async def examine(self) -> Examination:
        """Return the board's examination of itself, for `doctor`. Raises UnreachableError."""
        return examination_from_wire(
            await self._answer(self._stub.Examine(pb.ExamineRequest(), timeout=CALL_TIMEOUT_S))
        )

    async def measure(self, job: str) -> JobMeasure | None:
        """Return how much a JOB holds; None if the board does not have it. Raises UnreachableError."""
        call = self._stub.MeasureJob(pb.MeasureJobRequest(name=job), timeout=CALL_TIMEOUT_S)
        try:
            return measure_from_wire(await self._answer(call))
        except UnreachableError:
            if await call.code() is grpc.StatusCode.NOT_FOUND:
                return None
            raise

    async def clocks(self) -> tuple[Clocks, Clocks]:
        """Return the board's clocks when the request arrived and when the reply left. Raises UnreachableError."""
        reply = await self._answer(self._stub.SyncClock(pb.SyncClockRequest(), timeout=CALL_TIMEOUT_S))
        return clocks_from_wire(reply.received), clocks_from_wire(reply.sent)

    async def _answer(self, call: Awaitable[M | None]) -> M:
        try:
            reply = await call
        except grpc.aio.AioRpcError as error:
            raise _translated(error, self.address) from error
        if reply is None:  # gRPC returns None for a reply that it cannot parse
            raise UnreachableError.at(self.address, "its answer was damaged on the way")
        return reply

    @asynccontextmanager
    async def follow(self) -> AsyncIterator[Stream]:
        """Open a Follow stream; it is cancelled when the context is left."""
        stream = Stream(self.address, self._follow(), self._check_identity, self.describe)
        try:
            yield stream
        finally:
            stream.cancel()


@asynccontextmanager
async def connected(board: str, access: Access = BY_ADDRESS) -> AsyncIterator[Channel]:
    """Open a channel to a board, by its name or `HOST[:PORT]`; it is closed when the context is left.

    In plain text nothing is sent before the first call; TLS begins with a handshake. Raises UnreachableError, and
    RefusedError, also for keys that cannot be used: a capture then tries again, because they may be copied just now.
    """
    known = access.named(board)
    try:
        opened, shown = await _opened(known, access)
    except UsageError as error:
        raise RefusedError(str(error), hint=error.hint) from error
    async with opened as channel:
        yield Channel(known.shown, channel, lambda identity: access.check_identity(known, identity, shown))


async def _opened(board: KnownBoard, access: Access) -> tuple[grpc.aio.Channel, Certificate | None]:
    target = board.address
    credentials = await asyncio.to_thread(access.credentials, board)
    if credentials is None:
        return grpc.aio.insecure_channel(target, options=_OPTIONS), None
    # Only the proven certificate is trusted on this channel, so the checks of the handshake hold for it too.
    # Before the channel: gRPC would report most certificate problems as a mere failure to connect.
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
        hint = "stop another profagent that follows the board; until then profagent tries again"
        return UnreachableError(f"the board at {address} has no free connection: {details}", hint=hint)
    is_unresolved = _NO_HOST.search(details)
    return UnknownHostError(address) if is_unresolved else UnreachableError.at(address, _plain(details))


def _plain(details: str) -> str:
    if found := _WHY.search(details):
        return found[0].lower()
    if _NO_ANSWER.search(details):
        return "no answer"
    return details.rpartition(": ")[2] if details.startswith("failed to connect") else details
