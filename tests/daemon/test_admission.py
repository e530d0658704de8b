"""Streams and calls are counted while they last, and open at a pace; by a clock that is passed in."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from profagentd.errors import Fault, Refusal
from profagentd.follow.server import CALLS, OPENINGS_AT_ONCE, OPENINGS_PER_S, Limits, address_of
from tests.daemon.clocks import FakeClock


async def test_calls_that_are_over_make_room() -> None:
    admission = Limits(FakeClock())
    with ExitStack() as going_on:
        for _ in range(CALLS):
            going_on.enter_context(admission.call())
        with pytest.raises(Refusal, match=f"^{CALLS} calls") as refusal, admission.call():
            pass
        assert refusal.value.fault is Fault.EXHAUSTED
    with admission.call():
        pass


async def test_a_client_whose_streams_are_over_is_forgotten() -> None:
    admission = Limits(FakeClock())
    for number in range(1000):
        with admission.stream(str(number)):
            pass
    assert not admission._streams


async def test_a_few_streams_open_at_once_and_then_at_a_pace() -> None:
    clock = FakeClock()
    admission = Limits(clock)
    for _ in range(OPENINGS_AT_ONCE):
        await admission.opening()
    assert clock.slept == []
    begun = clock.monotonic()
    for _ in range(40):
        await admission.opening()
    assert clock.monotonic() - begun == pytest.approx(40 / OPENINGS_PER_S, abs=2 / OPENINGS_PER_S)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.168.1.7:40123", "ipv4:192.168.1.7"),
        ("ipv6:%5Bfe80::1%5D:40123", "ipv6:%5Bfe80::1%5D"),
        ("unix:", "unix:"),
    ],
)
def test_a_client_without_a_certificate_is_its_address(peer: str, address: str) -> None:
    assert address_of(peer) == address
