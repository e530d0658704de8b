"""What a client's messages mean: checked against the contract's limits, and applied to its stream."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from profagentd import messages
from profagentd.announcing import PAGE_ENTRIES
from profagentd.log import DIGEST_BYTES
from profagentd.refusal import Fault, Refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sized

    from profagent_wire.v1 import board_pb2 as wire
    from profagentd.stream import Stream

MAX_CLIENT_NAME = 256
# Generations count up from what a client names: the wire's numbers have one bit more.
LARGEST_HELD = 2**63 - 1
_CONSUMER = re.compile(r"[A-Za-z0-9._-]{1,64}")


async def opening(incoming: AsyncIterator[wire.ClientMessage]) -> wire.Open:
    """The client's Open, its first message. Raises Refusal for anything else."""
    async for message in incoming:
        if message.WhichOneof("message") != "open":
            break
        _check_open(message.open)
        return message.open
    raise Refusal(Fault.INVALID, "the first message of a stream is Open")


def apply(message: wire.ClientMessage, stream: Stream) -> None:
    """Let a message after the first have its effect. Raises Refusal."""
    kind = message.WhichOneof("message")
    if kind == "open":
        raise Refusal(Fault.INVALID, "Open comes once")
    if kind == "select":
        _limit("Select", message.select.follow, message.select.unfollow)
        stream.select(message.select.follow, message.select.unfollow)
    elif kind == "holdings":
        _limit("Holdings", message.holdings.logs)
        for holding in message.holdings.logs:
            _hold(holding, stream)
    elif kind == "acknowledge":
        _limit("Acknowledge", message.acknowledge.logs)
        for ack in message.acknowledge.logs:
            stream.window.acknowledge(ack.handle, generation=ack.generation, offset=ack.offset, complete=ack.complete)


def _check_open(opened: wire.Open) -> None:
    if opened.protocol.major != messages.PROTOCOL_MAJOR:
        theirs = f"{opened.protocol.major}.{opened.protocol.minor}"
        ours = f"{messages.PROTOCOL_MAJOR}.{messages.PROTOCOL_MINOR}"
        raise Refusal(Fault.INCOMPATIBLE, f"the client speaks protocol {theirs}, this daemon {ours}")
    if not _CONSUMER.fullmatch(opened.consumer):
        raise Refusal(Fault.INVALID, "a consumer's name is 1 to 64 of A-Z a-z 0-9 . _ -")
    if len(opened.client) > MAX_CLIENT_NAME or not opened.client.isprintable():
        raise Refusal(Fault.INVALID, f"a client's name is at most {MAX_CLIENT_NAME} printable characters")


def _hold(holding: wire.Holding, stream: Stream) -> None:
    if max(holding.generation, holding.offset) > LARGEST_HELD:
        raise Refusal(Fault.INVALID, f"the Holding of log {holding.handle} has a number beyond {LARGEST_HELD}")
    if holding.offset and not holding.skip and len(holding.prefix_digest) != DIGEST_BYTES:
        raise Refusal(Fault.INVALID, f"the digest of log {holding.handle} is not of {DIGEST_BYTES} bytes")
    stream.hold(
        holding.handle,
        skip=holding.skip,
        generation=holding.generation,
        offset=holding.offset,
        prefix_digest=holding.prefix_digest,
    )


def _limit(what: str, *entries: Sized) -> None:
    if sum(map(len, entries)) > PAGE_ENTRIES:
        raise Refusal(Fault.EXHAUSTED, f"{what} holds at most {PAGE_ENTRIES} entries")
