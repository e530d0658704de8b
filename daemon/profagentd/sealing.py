"""Check values around the messages of Follow streams."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from profagent_wire.seal import sealed, unsealed
from profagent_wire.v1 import board_pb2 as wire

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import Callable

    _Handler = grpc.RpcMethodHandler[Any, Any]


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
