"""A client's messages at the edge of what is allowed; each refusal is also seen by a real client elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from profagent_wire.v1 import board_pb2 as wire
from profagentd.errors import Fault, Refusal
from profagentd.follow import session as requests
from profagentd.follow.discovery import PAGE_ENTRIES
from profagentd.follow.session import FollowSession
from profagentd.follow.table import Quotas
from profagentd.sources.job import kind_of
from profagentd.sources.walk import Sighting
from tests.daemon.wire_client import message, open_message


async def messages(*each: wire.ClientMessage) -> AsyncIterator[wire.ClientMessage]:
    for one in each:
        yield one


def fault(said: wire.ClientMessage) -> Fault:
    with pytest.raises(Refusal) as refusal:
        requests.apply(said, FollowSession(Quotas()))
    return refusal.value.fault


async def test_the_opening_is_given_back() -> None:
    opened = await requests.opening(messages(open_message("me", minor=9)))
    assert (opened.consumer, opened.client) == ("me", "wire_client 1")


async def test_a_stream_without_a_message_has_no_opening() -> None:
    with pytest.raises(Refusal):
        await requests.opening(messages())


async def test_a_missing_version_is_another_major() -> None:
    with pytest.raises(Refusal) as refusal:
        await requests.opening(messages(message(open=wire.Open(consumer="me"))))
    assert refusal.value.fault is Fault.INCOMPATIBLE
    assert "0.0" in str(refusal.value)


@pytest.mark.parametrize(
    "said", [wire.ClientMessage(), message(heartbeat=wire.Heartbeat()), message(select=wire.Select())]
)
def test_what_asks_for_nothing_does_nothing(said: wire.ClientMessage) -> None:
    requests.apply(said, FollowSession(Quotas()))


def test_a_message_of_a_later_minor_version_is_passed_over() -> None:
    unknown = wire.ClientMessage.FromString(bytes([0x7A, 0x02, 0x08, 0x01]))  # field 15, a message
    requests.apply(unknown, FollowSession(Quotas()))


@pytest.mark.parametrize(
    ("full", "over"),
    [
        (
            message(acknowledge=wire.Acknowledge(logs=[wire.Acknowledgement(handle=1)] * PAGE_ENTRIES)),
            message(acknowledge=wire.Acknowledge(logs=[wire.Acknowledgement(handle=1)] * (PAGE_ENTRIES + 1))),
        ),
        (
            message(holdings=wire.Holdings(logs=[wire.Holding(handle=1)] * PAGE_ENTRIES)),
            message(holdings=wire.Holdings(logs=[wire.Holding(handle=1)] * (PAGE_ENTRIES + 1))),
        ),
        (
            message(select=wire.Select(follow=[1] * 500, unfollow=[1] * 500)),
            message(select=wire.Select(follow=[1] * 500, unfollow=[1] * 501)),
        ),
    ],
)
def test_a_page_is_full_at_a_thousand(full: wire.ClientMessage, over: wire.ClientMessage) -> None:
    assert fault(full) is Fault.INVALID  # for its unknown handles, not for their number
    assert fault(over) is Fault.EXHAUSTED


@pytest.mark.parametrize(("generation", "offset"), [(2**64 - 1, 0), (1, 2**63)])
def test_what_is_held_has_numbers_that_can_be_counted_on_from(generation: int, offset: int) -> None:
    stream, path = FollowSession(Quotas()), b"data/aicore.0.m.3.0.1.1.0"
    log = stream.table.add(1, Sighting(path, kind_of(path), 0, 0), 0.0)
    held = wire.Holding(handle=log.handle, generation=generation, offset=offset, prefix_digest=bytes(16))
    with pytest.raises(Refusal, match="beyond 9223372036854775807"):
        requests.apply(message(holdings=wire.Holdings(logs=[held])), stream)


@pytest.mark.parametrize("digest", [b"", bytes(15), bytes(17)])
def test_a_prefix_has_a_digest_of_sixteen_bytes(digest: bytes) -> None:
    held = wire.Holding(handle=1, generation=1, offset=1, prefix_digest=digest)
    assert fault(message(holdings=wire.Holdings(logs=[held]))) is Fault.INVALID
