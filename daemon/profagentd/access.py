"""Every call passes here first: a revoked certificate is turned away, one without any is told of in the log."""

from __future__ import annotations

import asyncio
import base64
import enum
import hashlib
import logging
import os
import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable

import grpc
import grpc.aio

from profagentd.errors import DaemonError, Fault, Refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
    from typing import Callable

    _Handler = grpc.RpcMethodHandler[Any, Any]


# A URI among the alternative names of a host's certificate; a certificate without one is a viewer's.
OPERATOR_URI = b"profagent:role:operator"


class Role(enum.Enum):
    """What a client may do; the numbers are the wire's."""

    VIEWER = 1
    OPERATOR = 2


@dataclass(frozen=True)
class Caller:
    """A client: its certificate's common name, fingerprint (SHA-256 of the DER, in hex) and role."""

    name: str
    fingerprint: str
    role: Role

    def __str__(self) -> str:
        return f"{self.name} ({self.fingerprint[:16]}…)" if self.fingerprint else "a client without a certificate"


def caller_of(context: Any) -> Caller:
    """Who makes the call of a gRPC context. Without a certificate, where none is demanded, it is an operator."""
    shown: Mapping[str, Sequence[bytes]] = context.auth_context()
    certificates = shown.get("x509_pem_cert")
    if not certificates:
        return Caller("", "", Role.OPERATOR)
    name = b"".join(shown.get("x509_common_name", ())).decode("utf-8", "backslashreplace")
    # It is written into the log: nothing in it may look like a line of its own.
    name = "".join(letter if letter.isprintable() else "\ufffd" for letter in name)
    role = Role.OPERATOR if OPERATOR_URI in shown.get("peer_uri", ()) else Role.VIEWER
    return Caller(name, fingerprint_of(certificates[0]), role)


def fingerprint_of(pem: bytes) -> str:
    """SHA-256 of a certificate's DER, in hex."""
    _, _, after = pem.partition(b"-----BEGIN CERTIFICATE-----")
    body, _, _ = after.partition(b"-----END CERTIFICATE-----")
    return hashlib.sha256(base64.b64decode(body)).hexdigest()


_LOGGER = logging.getLogger(__name__)

_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


class Revocations:
    """The file's fingerprints. It is read again when it has changed; one without sense revokes no less than before."""

    def __init__(self, path: str) -> None:
        """Read the file. Raises DaemonError when it cannot be read, is empty, or has a line that is none."""
        self._path = path
        self._fingerprints: frozenset[str] = frozenset()
        self._seen = _state(path)
        try:
            self._read()
        except (OSError, ValueError) as error:
            raise DaemonError(
                f"the revocation list {path}: {_why(error)}",
                hint="tls_revoked names the revoked.txt of `profagent keys`; one that revokes nobody has a line with #",
            ) from error

    def has(self, fingerprint: str) -> bool:
        """Whether a certificate was revoked, by the file as it is now."""
        state = _state(self._path)
        if state != self._seen:
            self._seen = state
            self._read_again()
        return fingerprint in self._fingerprints

    def _read_again(self) -> None:
        try:
            self._read()
        except (OSError, ValueError) as error:
            _LOGGER.error("%s: %s; what was revoked stays so", self._path, _why(error))  # noqa: TRY400 - says it all
        else:
            _LOGGER.info("%s was read again: %d certificates are revoked", self._path, len(self._fingerprints))

    def _read(self) -> None:
        with open(self._path, encoding="utf-8") as file:
            text = file.read()
        if not text.strip():
            raise ValueError("it is empty, without even its first line")
        wrong = [line for line, entry in _entries(text) if not _FINGERPRINT.fullmatch(entry)]
        found = {entry for _, entry in _entries(text)}
        self._fingerprints = frozenset(found | self._fingerprints if wrong else found)
        if wrong:
            raise ValueError(f"line {wrong[0]} is no SHA-256 fingerprint")


def _entries(text: str) -> Iterator[tuple[int, str]]:
    """Line number and fingerprint, in lower case and without colons, of each line that is not empty."""
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.partition("#")[0].strip().replace(":", "").lower()
        if entry:
            yield number, entry


def _state(path: str) -> tuple[int, int, int] | None:
    """What is another when the file is; None when there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _why(error: OSError | ValueError) -> str:
    return str(error.strerror) if isinstance(error, OSError) else str(error)


# How often a stream looks whether its client's certificate has been revoked.
LOOK_S = 2.0
# Connections of which it is remembered that they were warned of.
REMEMBERED = 256


class AccessControl(grpc.aio.ServerInterceptor):
    """Checks callers; `insecure` when the listener can be reached by others and demands no certificate."""

    def __init__(self, revocations: Revocations | None, *, insecure: bool) -> None:
        self.insecure = insecure
        self._revocations = revocations
        self._warned: OrderedDict[str, None] = OrderedDict()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler | None:
        """The method's handler behind the check; gRPC calls it for every call, of whatever service."""
        handler = await continuation(handler_call_details)
        return handler and _behind(self._admit, handler)  # gRPC itself answers for a method that is not known

    def check(self, caller: Caller) -> None:
        """Raises Refusal when the caller's certificate is revoked."""
        if self._revocations and self._revocations.has(caller.fingerprint):
            raise Refusal(
                Fault.UNTRUSTED,
                f"the certificate of {caller.name}, fingerprint {caller.fingerprint}, is revoked on this board",
            )

    async def watch_over(self, caller: Caller) -> None:
        """Raises Refusal as soon as the caller's certificate is revoked; runs until cancelled."""
        while True:
            self.check(caller)
            await asyncio.sleep(LOOK_S)

    async def _admit(self, context: Any) -> None:
        caller = caller_of(context)
        if self.insecure and not caller.fingerprint:
            self._warn(context.peer())
        try:
            self.check(caller)
        except Refusal as refusal:
            _LOGGER.warning("a call of %s refused: %s", context.peer(), refusal)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(refusal))

    def _warn(self, peer: str) -> None:
        if peer in self._warned:
            return
        self._warned[peer] = None
        if len(self._warned) > REMEMBERED:
            self._warned.popitem(last=False)
        _LOGGER.warning("%s is served without TLS, as --insecure has it: it may be anybody, and do anything", peer)


def _behind(admit: Callable[[Any], Awaitable[None]], handler: Any) -> _Handler:
    """The same method, which runs when the caller was admitted."""
    codecs = (handler.request_deserializer, handler.response_serializer)
    if handler.response_streaming and not handler.request_streaming:

        async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
            await admit(context)
            async for response in handler.unary_stream(request, context):
                yield response

        return grpc.unary_stream_rpc_method_handler(stream, *codecs)
    inner = handler.stream_stream or handler.unary_unary

    async def call(request: Any, context: Any) -> Any:
        await admit(context)
        return await inner(request, context)

    make = grpc.stream_stream_rpc_method_handler if handler.stream_stream else grpc.unary_unary_rpc_method_handler
    return make(call, *codecs)
