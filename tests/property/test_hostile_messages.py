"""On any messages whatever, a session and a daemon's stream go on or refuse, and raise nothing else."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from profagent.errors import ProtocolError
from profagent.limits import LARGEST_LOGS
from profagent.link.messages import Holding, LogsAnnounced, Open
from profagent.link.session import LinkSession
from profagent.link.translate import from_wire
from profagent_wire.v1 import board_pb2 as wire
from profagentd.errors import Refusal
from profagentd.follow import messages as requests
from profagentd.follow.session import FollowSession
from profagentd.follow.table import Quota
from tests.fakes.malicious_board import GOOD, announced, batch, chunk, completed, job, listed, started, welcome

u32 = st.sampled_from([0, 1, 2, 3, 77, 2**32 - 1])
u64 = st.sampled_from([0, 1, 3, 2**48, 2**62, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1)
data = st.binary(max_size=8)
path = st.sampled_from([GOOD, b"..", b"/a", b"a\0b", b"data/a", b"data/a/b"]) | st.binary(max_size=40)
removed = st.builds(wire.Removed, handle=u32, generation=u64, sent=u64, size=u64).map(lambda m: wire.Event(removed=m))
loss = st.builds(wire.Loss, handle=u32, job=u32, reason=st.text(max_size=9), lost_bytes=u64, id=u64)
events = st.one_of(
    st.builds(started, u32, u64, u64),
    st.builds(started, u32, u64, u64, data=data, digest=data),
    st.builds(chunk, data, u64, u32, u64),
    st.builds(completed, data, u32, u64, size=u64),
    removed,
    loss.map(lambda m: wire.Event(loss=m)),
)
honest = [welcome(), job(), listed(), announced(GOOD), batch(started(), chunk(b"abc"), completed(b"abc"))]
made = st.builds(announced, path, first=u32.filter(lambda first: first < 2**32 - 1))
messages = st.one_of(
    st.sampled_from(honest),
    st.builds(welcome, st.sampled_from([0, 1, 2, 77]), u64, hostname=st.text(max_size=9)),
    made,
    st.builds(lambda each, made: batch(*each, made=made), st.lists(events, max_size=4), st.none() | made),
    st.lists(u32, max_size=4).map(lambda each: wire.ServerMessage(released=wire.Released(handles=each))),
)


@st.composite
def damaged(draw: Any, whole: bytes) -> bytes:
    """The bytes of a message, some of them others."""
    changed = bytearray(whole)
    for _ in range(draw(st.integers(1, 3))):
        if changed:
            changed[draw(st.integers(0, len(changed) - 1))] = draw(st.integers(0, 255))
    return bytes(changed)


encoded = messages.map(lambda message: message.SerializeToString())


@settings(max_examples=80)
@given(st.lists(encoded | encoded.flatmap(damaged) | st.binary(max_size=60), max_size=12), st.booleans())
def test_any_messages_of_a_board(received: list[bytes], is_welcomed: bool) -> None:
    session = LinkSession("board:1", Open("test", "test"), lambda *_: True)
    session.tick(0.0)
    session.opened(0.0)
    first = [message.SerializeToString() for message in honest] if is_welcomed else []
    with suppress(DecodeError, ProtocolError):
        for each in [*first, *received]:
            message = from_wire(wire.ServerMessage.FromString(each))
            if message is not None and session.has_stream:
                session.receive(message, 0.0)
            for event in session.events_received():
                if isinstance(event, LogsAnnounced):
                    session.hold([Holding(log.handle) for log in event.logs])
    assert len(session._logs) <= LARGEST_LOGS


holdings = st.builds(wire.Holding, handle=u32, skip=st.booleans(), generation=u64, offset=u64, prefix_digest=data)
acks = st.builds(wire.Acknowledgement, handle=u32, generation=u64, offset=u64, complete=st.booleans())
said = st.one_of(
    st.builds(wire.Select, follow=st.lists(u32), unfollow=st.lists(u32)).map(lambda m: wire.ClientMessage(select=m)),
    st.lists(holdings).map(lambda logs: wire.ClientMessage(holdings=wire.Holdings(logs=logs))),
    st.lists(acks).map(lambda logs: wire.ClientMessage(acknowledge=wire.Acknowledge(logs=logs))),
).map(lambda message: message.SerializeToString())


@settings(max_examples=80)
@given(st.lists(said | said.flatmap(damaged) | st.binary(max_size=60), max_size=12))
def test_any_messages_of_a_client(received: list[bytes]) -> None:
    quotas = Quota()
    stream, before = FollowSession(quotas), quotas.announced_logs
    with suppress(DecodeError, Refusal):
        for each in received:
            requests.apply(wire.ClientMessage.FromString(each), stream)
    stream.close()
    assert quotas.announced_logs == before
