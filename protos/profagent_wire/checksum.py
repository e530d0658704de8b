"""The checksum of a Follow stream's messages, by which a message damaged on the way is recognized."""

from __future__ import annotations

import struct
import zlib
from typing import TypeVar

from google.protobuf.message import DecodeError

from profagent_wire.v1.board_pb2 import ClientMessage, ServerMessage

M = TypeVar("M", ClientMessage, ServerMessage)

# The field `check` in protobuf's encoding: a byte for number and type, then the value.
_CHECK_FIELD = struct.Struct("<BI")
# Wire type 5 is a fixed 32-bit value. Both kinds of messages use the same field number.
_TAG = ClientMessage.CHECK_FIELD_NUMBER << 3 | 5


class DamagedError(Exception):
    """The bytes are no message, or not the message that was sent."""


def encode_checked(message: ClientMessage | ServerMessage) -> bytes:
    """Return the message's encoding, followed by its checksum."""
    data = message.SerializeToString()
    return data + _CHECK_FIELD.pack(_TAG, zlib.crc32(data))


def decode_checked(kind: type[M], data: bytes) -> M:
    """Return the decoded message. Raises DamagedError. A message without a checksum is of a peer that sends none."""
    try:
        message = kind.FromString(data)
    except DecodeError as error:
        raise DamagedError("a message cannot be read: it was damaged on the way") from error
    if message.HasField("check") and data[-_CHECK_FIELD.size :] != _CHECK_FIELD.pack(
        _TAG, zlib.crc32(memoryview(data)[: -_CHECK_FIELD.size])
    ):
        raise DamagedError("a message does not have its check value: it was damaged on the way")
    return message


def has_checksum(message: ClientMessage | ServerMessage, *, before: bool) -> bool:
    """Return True if the message has a checksum.

    Raises DamagedError if earlier messages of the peer had one (`before`) and this one has none: the field's own tag
    was damaged then, and so may be anything else.
    """
    found = message.HasField("check")
    if before and not found:
        raise DamagedError("a message has lost its check value: it was damaged on the way")
    return found
