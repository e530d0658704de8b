"""When a side speaks, and when it is taken as gone."""

from __future__ import annotations

import pytest

from profagent.link.channel import LARGEST_MESSAGE_BYTES, PING_MS, PING_TIMEOUT_MS
from profagent.link.pulse import HEARTBEAT_S, Pulse
from profagentd.follow import client, server
from profagentd.follow import client as conversation

# What both ends promise of a link that is half open.
HALF_OPEN_S = 15.0


def test_a_side_speaks_when_it_has_not_for_a_heartbeat() -> None:
    pulse = Pulse(100.0)
    assert pulse.speak_at == 104.0
    pulse.spoke(103.0)
    assert pulse.speak_at == 107.0


def test_three_heartbeats_of_silence_are_too_many() -> None:
    pulse = Pulse(100.0)
    assert pulse.silent_at == 112.0
    pulse.heard(111.0)
    assert pulse.silent_at == 123.0


@pytest.mark.parametrize(("told_us", "heartbeat_s"), [(5_000_000, 5.0), (0, 4.0), (1, 1.0), (2**64 - 1, 5.0)])
def test_the_board_says_how_often_within_reason(told_us: int, heartbeat_s: float) -> None:
    pulse = Pulse(0.0)
    pulse.welcomed(told_us)
    assert pulse.heartbeat_s == heartbeat_s


def test_both_ends_find_a_half_open_link_in_time() -> None:
    pulse = Pulse(0.0)
    pulse.welcomed(int(client.HEARTBEAT_S * 1e6))
    assert pulse.silent_at < HALF_OPEN_S
    assert conversation.SILENCE_S < HALF_OPEN_S
    assert pulse.heartbeat_s == client.HEARTBEAT_S == HEARTBEAT_S


def test_the_keepalive_settings_of_both_ends_agree() -> None:
    # The server counts a ping that comes sooner than it permits as a strike, and answers three with GOAWAY.
    assert PING_MS >= 2 * server.MIN_PING_INTERVAL_MS
    assert PING_MS + PING_TIMEOUT_MS < HALF_OPEN_S * 1000
    assert server.KEEPALIVE_MS + server.KEEPALIVE_TIMEOUT_MS < HALF_OPEN_S * 1000
    assert server.MAX_MESSAGE_BYTES == LARGEST_MESSAGE_BYTES
