"""What the names and `.done` texts of a JOB say."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from profagent_wire.checksum import DamagedError, decode_checked, encode_checked, has_checksum
from profagent_wire.v1 import board_pb2 as wire
from profagentd.sources.job import done_length, ended_by, group_of, is_table, kind_of, tables_of
from profagentd.sources.source import LogMode
from tests.daemon.daemon_process import running
from tests.daemon.wire_client import open_message

JOBS = Path(__file__).parents[1] / "data" / "jobs"
AICORE = b"data/aicore.0.model.3.0.1.1.0"
AICORE_KEYS = [b"file_len:1", b"start_time:2", b"end_time:3", b"cache_hit:4", b"cache_mis:5"]


@pytest.mark.parametrize(
    "name",
    [
        b"aicore.0.model.3.0.1.1.0",
        b"AAcore.0.model.0.1.1.18446744073709551600",
        b"aicpu.0.a.b.c.3.0.1.1.7",
        b"aacpu.0.model.3.0.1.1.0",
        b"acl_api.0..1",
        b"AclModule.0.model.2",
        b"acl_api.0.plain.name.0",
        b"aicore.0.4.5",
        b"aicore.0.\xff\n\xfe.3.0.1.1.0",
        b"data/aicore.0.model.3.0.1.1.0",
    ],
)
def test_what_the_runtime_appends_to_is_data(name: bytes) -> None:
    assert kind_of(name) is LogMode.DATA


@pytest.mark.parametrize(
    "name",
    [
        b"info.json.0",
        b"model.0.net.info",
        b"model.0.layer.info",
        b"cont.0.model.1.4.6.6",
        b"aicore.0.model.3.0.1.1.0.done",
        b"aicore.0.model.3.0.1.1.0.tmp",
        b"aicore",
        b"aicore.txt",
        b"my.aicore.0.model.3.0.1.1.0",
        b"core",
    ],
)
def test_everything_else_is_a_snapshot(name: bytes) -> None:
    assert kind_of(name) is LogMode.SNAPSHOT


@pytest.mark.parametrize("missing", AICORE_KEYS)
def test_a_done_without_a_key_does_not_parse(missing: bytes) -> None:
    assert done_length(AICORE, b"\n".join(line for line in AICORE_KEYS if line != missing)) is None


@pytest.mark.parametrize("end", range(len(b"\n".join(AICORE_KEYS)) - 1))
def test_no_torn_done_parses(end: int) -> None:
    assert done_length(AICORE, b"\n".join(AICORE_KEYS)[:end]) is None


def test_negative_counters_and_a_last_line_of_batches_are_fine() -> None:
    lines = [*AICORE_KEYS[:-1], b"cache_mis:-2147483648", b"online_batch_num:8,7,6"]
    assert done_length(AICORE, b"\n".join(lines)) is not None


@pytest.mark.parametrize(("value", "length"), [(b"-3", -3), (b" 7 ", 7), (b"9" * 5000, int("9" * 20))])
def test_a_length_is_any_integer(value: bytes, length: int) -> None:
    assert done_length(AICORE, b"\n".join([b"file_len:" + value, *AICORE_KEYS[1:]])) == length


def test_every_done_of_the_runtime_parses() -> None:
    dones = list(JOBS.rglob("*.done"))
    assert len(dones) > 50
    for done in dones:
        data = ended_by(done.name.encode("utf-8", "surrogateescape"))
        assert data is not None
        assert done_length(data, done.read_bytes()) is not None, done


@pytest.mark.parametrize(
    ("core", "cpu"),
    [
        (b"data/aicore.0.a.core.3.0.1.1.0", b"data/aicpu.0.a.core.3.0.1.1.0"),
        (b"AAcore.0.m.3.0.1.1.0", b"AAcpu.0.m.3.0.1.1.0"),
        (b"AICORE.0.m.3.0.1.1.0", b"AICPU.0.m.3.0.1.1.0"),
    ],
)
def test_an_inference_has_four_files(core: bytes, cpu: bytes) -> None:
    group = core, cpu, core + b".done", cpu + b".done"
    assert {group_of(path) for path in group} == {group}


@pytest.mark.parametrize(
    ("path", "model"),
    [
        (b"data/aicore.0.m.3.7.1.1.0", b"m.7"),
        (b"data/aicpu.0.m_5.7.1.1.0", b"m_5.7"),
        (b"data/aicpu.0.a.b.7.1.1.0", b"a.b.7"),
        (b"data/aicore.0.a.b.3.7.1.1.0", b"a.b.7"),
        (b"data/acl_api.0.m.7", b"m.7"),
        (b"data/AclModule.0.a.b.7", b"a.b.7"),
    ],
)
def test_data_are_read_with_the_tables_of_their_model_and_device(path: bytes, model: bytes) -> None:
    own = b"data/" + model
    assert tables_of(path) == (b"simulated", b"info.json.0", own + b".net.info", own + b".layer.info")
    assert all(map(is_table, tables_of(path)))


# A message of a stream that was damaged on the way is never taken for another one

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
    [[OPEN[:3] + bytes([OPEN[3] ^ 1]) + OPEN[4:]], [OPEN[:-1] + bytes([OPEN[-1] ^ 1])], [OPEN, BEAT, BEAT[:-5]]],
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
