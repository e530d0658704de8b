"""The generated wire code: each message survives its own encoding, and newer peers do not break older ones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from profagent_wire.health.v1 import health_pb2, health_pb2_grpc
from profagent_wire.v1 import board_pb2, board_pb2_grpc

MESSAGES = [
    descriptor
    for file in (board_pb2.DESCRIPTOR, health_pb2.DESCRIPTOR)
    for descriptor in file.message_types_by_name.values()
]
SCALARS = {
    FieldDescriptor.TYPE_BOOL: True,
    FieldDescriptor.TYPE_BYTES: b"data/aicore.0.\xff\x00.3",
    FieldDescriptor.TYPE_FIXED32: 2**32 - 1,
    FieldDescriptor.TYPE_STRING: "JOBÄ漢",
    FieldDescriptor.TYPE_UINT32: 2**32 - 1,
    FieldDescriptor.TYPE_UINT64: 2**64 - 1,
}


def value_of(field: FieldDescriptor) -> Any:
    """A value that is not the field's default."""
    if field.message_type is not None:
        return filled(field.message_type)
    if field.enum_type is not None:
        return field.enum_type.values[-1].number
    return SCALARS[field.type]


def fill(message: Message, field: FieldDescriptor) -> None:
    """Set one field of the message."""
    value = value_of(field)
    current = getattr(message, field.name)
    if hasattr(current, "extend"):
        current.extend([value, value])
    elif isinstance(value, Message):
        current.CopyFrom(value)
    else:
        setattr(message, field.name, value)


def filled(descriptor: Descriptor) -> Message:
    """A message with every field set; of alternatives, the last."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        fill(message, field)
    return message


def alternatives() -> list[Any]:
    """Message, name of the choice, and field, for each alternative that a message has."""
    return [
        pytest.param(GetMessageClass(descriptor), oneof.name, field, id=f"{descriptor.name}.{field.name}")
        for descriptor in MESSAGES
        for oneof in descriptor.oneofs
        for field in oneof.fields
    ]


@pytest.mark.parametrize("descriptor", MESSAGES, ids=lambda descriptor: descriptor.name)
def test_a_message_with_every_field_set_survives_its_encoding(descriptor: Descriptor) -> None:
    message = filled(descriptor)
    decoded = GetMessageClass(descriptor).FromString(message.SerializeToString())
    assert decoded == message
    assert len(decoded.ListFields()) == len(descriptor.fields) - sum(len(o.fields) - 1 for o in descriptor.oneofs)


@pytest.mark.parametrize(("kind", "choice", "field"), alternatives())
def test_each_alternative_is_told_from_the_others(kind: type[Message], choice: str, field: FieldDescriptor) -> None:
    message = kind()
    fill(message, field)
    assert kind.FromString(message.SerializeToString()).WhichOneof(choice) == field.name


def test_a_field_of_a_newer_peer_is_passed_over() -> None:
    unknown = b"\xfa\x7f\x03new"  # field 2047, three bytes
    decoded = board_pb2.Chunk.FromString(board_pb2.Chunk(handle=7, data=b"x").SerializeToString() + unknown)
    assert (decoded.handle, decoded.data) == (7, b"x")


def test_an_enum_value_of_a_newer_peer_is_kept() -> None:
    assert board_pb2.JobStatus.FromString(b"\x20\x63").state == 99


def test_a_message_that_ends_early_is_refused() -> None:
    encoded = board_pb2.Chunk(handle=7, data=b"abcdef").SerializeToString()
    with pytest.raises(DecodeError):
        board_pb2.Chunk.FromString(encoded[:-1])


def test_the_first_value_of_each_enum_is_unspecified() -> None:
    for enum in board_pb2.DESCRIPTOR.enum_types_by_name.values():
        assert enum.values_by_number[0].name.endswith("_UNSPECIFIED")


def test_the_service_and_its_methods_have_the_names_of_the_contract() -> None:
    board = board_pb2.DESCRIPTOR.services_by_name["Board"]
    assert board.full_name == "profagent_wire.v1.Board"
    assert {"Describe", "SyncClock", "Follow"} <= set(board.methods_by_name)


class Healthy(health_pb2_grpc.HealthServicer):
    """A server that is always well."""

    def Check(
        self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)

    def Watch(self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext) -> Any:
        yield self.Check(request, context)


class Describing(board_pb2_grpc.BoardServicer):
    """A board that says its name, and nothing else."""

    def Describe(self, request: board_pb2.DescribeRequest, context: grpc.ServicerContext) -> board_pb2.Description:
        return board_pb2.Description(hostname="bench-3")


@pytest.fixture
def channel() -> Any:
    """A channel to a server with both services, over loopback."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        server = grpc.server(pool)
        health_pb2_grpc.add_HealthServicer_to_server(Healthy(), server)
        board_pb2_grpc.add_BoardServicer_to_server(Describing(), server)  # type: ignore[abstract]
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as opened:
                yield opened
        finally:
            server.stop(grace=None).wait()


def test_a_standard_health_probe_is_answered(channel: grpc.Channel) -> None:
    probe: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
    assert probe(b"", timeout=30) == b"\x08\x01"


def test_a_stub_reaches_its_servicer(channel: grpc.Channel) -> None:
    description = board_pb2_grpc.BoardStub(channel).Describe(board_pb2.DescribeRequest(), timeout=30)
    assert description.hostname == "bench-3"


def test_a_method_that_a_server_lacks_is_unimplemented(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        board_pb2_grpc.BoardStub(channel).Examine(board_pb2.ExamineRequest(), timeout=30)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
