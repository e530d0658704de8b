"""A message of a stream that was damaged on the way is never taken for another one."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from profagent_wire.checksum import DamagedError, decode_checked, encode_checked, has_checksum
from profagent_wire.v1 import board_pb2 as wire
from tests.daemon.daemon_process import running
from tests.daemon.wire_client import open_message

LOG = wire.AnnouncedLog(handle=7, job=1, path=b"data/aicore.0.m.3.0.1.1.0", kind=wire.LOG_KIND_DATA, size=256)
ANNOUNCED = wire.ServerMessage(announced=wire.Announced(logs=[LOG]))
FOLLOW = "/profagent_wire.v1.Board/Follow"


def test_what_was_sent_is_what_comes() -> None:
    came = decode_checked(wire.ServerMessage, encode_checked(ANNOUNCED))
    assert came.announced == ANNOUNCED.announced
    assert decode_checked(wire.ClientMessage, encode_checked(wire.ClientMessage())).WhichOneof("message") is None


def test_no_bit_can_be_turned_unseen() -> None:
    data = encode_checked(ANNOUNCED)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            came = decode_checked(wire.ServerMessage, bytes(damaged))
        except DamagedError:
            continue
        # The number of the check's own field: nothing that it says.
        assert bit // 8 == len(data) - 5
        assert came.announced == ANNOUNCED.announced


def test_a_peer_checks_all_of_its_messages_or_none() -> None:
    data = encode_checked(ANNOUNCED)
    # The number of the check's own field, and a name.
    lost = decode_checked(wire.ServerMessage, (data[:-5] + b"\x75" + data[-4:]).replace(b"aicore", b"aicpu_"))
    assert not has_checksum(lost, before=False)
    assert has_checksum(decode_checked(wire.ServerMessage, data), before=True)
    with pytest.raises(DamagedError, match="lost its check value"):
        has_checksum(lost, before=True)


def test_what_is_cut_or_is_no_message_is_damaged() -> None:
    data = encode_checked(ANNOUNCED)
    for piece in (data[1:], data[:-1], data[:-6], b"\xff" * 40):
        with pytest.raises(DamagedError):
            decode_checked(wire.ServerMessage, piece)


OPEN, BEAT = encode_checked(open_message()), encode_checked(wire.ClientMessage(heartbeat=wire.Heartbeat()))


@pytest.mark.parametrize(
    "said",
    [
        [OPEN[:3] + bytes([OPEN[3] ^ 1]) + OPEN[4:]],
        [OPEN[:-1] + bytes([OPEN[-1] ^ 1])],
        [OPEN, BEAT, BEAT[:-5]],
    ],
    ids=["what it says", "its check value", "no check value any more"],
)
async def test_a_daemon_ends_a_stream_that_was_damaged(tmp_path: Path, said: list[bytes]) -> None:
    with running("--root", tmp_path) as daemon:
        async with grpc.aio.insecure_channel(daemon.address) as channel:
            call: Any = channel.stream_stream(FOLLOW)(timeout=30)
            for data in said:
                await call.write(data)
            with suppress(grpc.aio.AioRpcError):
                while await call.read():
                    pass
            assert await call.code() is grpc.StatusCode.DATA_LOSS
            assert "damaged on the way" in await call.details()
