"""Every call passes here first: a revoked certificate is turned away, one without any is told of in the log."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from profagentd.refusal import Fault, Refusal
from profagentd.roles import Caller, caller_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable
    from typing import Callable

    from profagentd.revocation import Revocations

    _Handler = grpc.RpcMethodHandler[Any, Any]

_LOGGER = logging.getLogger(__name__)

# How often a stream looks whether its client's certificate has been revoked.
LOOK_S = 2.0
# Connections of which it is remembered that they were warned of.
REMEMBERED = 256


class Gate(grpc.aio.ServerInterceptor):
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
