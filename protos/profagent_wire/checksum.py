"""The check value of a Follow stream's messages: what was damaged on the way is known, whatever it seems to say."""

from __future__ import annotations

import struct
import zlib
from typing import TypeVar

from google.protobuf.message import DecodeError

from profagent_wire.v1.board_pb2 import ClientMessage, ServerMessage

M = TypeVar("M", ClientMessage, ServerMessage)

# The field `check` as protobuf encodes it: its number and type, and the value.
_SEAL = struct.Struct("<BI")
_TAG = ClientMessage.CHECK_FIELD_NUMBER << 3 | 5


class DamagedError(Exception):
    """Bytes that are no message, or not the one that was sent."""


def encode_checked(message: ClientMessage | ServerMessage) -> bytes:
    """The message's encoding with its check value behind it."""
    data = message.SerializeToString()
    return data + _SEAL.pack(_TAG, zlib.crc32(data))


def decode_checked(kind: type[M], data: bytes) -> M:
    """The message; one without a check value is of a peer that has none. Raises DamagedError."""
    try:
        message = kind.FromString(data)
    except DecodeError as error:
        raise DamagedError("a message cannot be read: it was damaged on the way") from error
    if message.HasField("check") and data[-_SEAL.size :] != _SEAL.pack(
        _TAG, zlib.crc32(memoryview(data)[: -_SEAL.size])
    ):
        raise DamagedError("a message does not have its check value: it was damaged on the way")
    return message


def has_checksum(message: ClientMessage | ServerMessage, *, before: bool) -> bool:
    """Whether the message has a check value, as its peer's messages `before` had.

    Raises DamagedError where they had and it has none: then that it is one was damaged, and anything else may be.
    """
    found = message.HasField("check")
    if before and not found:
        raise DamagedError("a message has lost its check value: it was damaged on the way")
    return found
