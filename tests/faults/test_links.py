"""Links that break in every way there is: what was captured over them is the board's, byte for byte and row for row."""

from __future__ import annotations

import time

import pytest

from tests.faults.captures import Captured, Link, Scenario, captured
from tests.faults.proxy import BOTH, Ending, Way

# A dead link is found out within 15 s; the rest is for a machine that has much else to do.
FOUND_OUT_S = 15.0
SLACK_S = 10.0
CAPTURE_S = 5.0
# On each of two links.
CUTS = 50
RESETS = 5
FLIPS = 15
# Each of them breaks the link, and the host waits longer each time.
FLIPS_UNDER_TLS = 6
# Longer than a dead link takes to be found out.
STALL_S = TRICKLE_S = 20.0
TRICKLE_BYTES_PER_S = 10_000
# The others take minutes.
QUICK = ("resets_inside_chunks",)
TEST = "test_a_capture_over_a_broken_link"


def cuts(link: Link) -> None:
    """At any moment of a connection's life."""
    for number in range(1, CUTS + 1):
        assert link.proxy.has_accepted(number)
        time.sleep(link.chance.uniform(0.0, 0.6))
        link.proxy.cut(link.chance.choice(list(Ending)))


def resets_inside_chunks(link: Link) -> None:
    link.proxy.faults.reset_within_bytes = 200_000
    link.proxy.cut(Ending.RST)
    assert link.proxy.wait_for(lambda: link.proxy.faults.resets >= RESETS, 120.0)
    link.proxy.faults.reset_within_bytes = None


def stall(link: Link) -> None:
    """Nothing passes for a while, whatever the host tries."""
    link.carries(20_000)
    link.proxy.stall()
    begun = time.monotonic()
    link.host.err.until("retrying in")
    assert time.monotonic() - begun < FOUND_OUT_S + SLACK_S
    time.sleep(max(0.0, begun + STALL_S - time.monotonic()))
    link.proxy.resume()
    link.linked(2)


def half_open(silence: frozenset[Way]) -> Scenario:
    """The connection is dead and nobody says so, each way alone or both together; another one would live."""

    def play(link: Link) -> None:
        link.carries(20_000)
        link.proxy.abandon(silence)
        begun = time.monotonic()
        link.linked(2)
        assert time.monotonic() - begun < FOUND_OUT_S + SLACK_S

    return play


def delay(link: Link) -> None:
    """A slow link is no broken one."""
    link.carries(20_000)
    link.proxy.faults.delay_s = 0.4
    link.carries(100_000)
    link.proxy.faults.delay_s = 0.0
    assert link.told("recording") == 1


def trickle(link: Link) -> None:
    """Less comes than is written, and neither side takes the other for dead."""
    link.carries(20_000)
    link.proxy.faults.bytes_per_s = TRICKLE_BYTES_PER_S
    before = link.proxy.carried[Way.DOWN]
    time.sleep(TRICKLE_S)
    assert link.proxy.carried[Way.DOWN] - before > TRICKLE_BYTES_PER_S * TRICKLE_S / 2
    assert link.told("recording") == 1, "it was never lost"
    link.proxy.faults.bytes_per_s = None


def half_close(link: Link) -> None:
    for number, way in enumerate((Way.DOWN, Way.UP, Way.DOWN, Way.UP), 2):
        link.carries(20_000)
        link.proxy.half_close(way)
        link.linked(number)


def flips(link: Link, times: int = FLIPS) -> None:
    """Bits are turned on the way, in data and in what surrounds it, in both directions."""
    link.proxy.faults.flip_each_bytes = 60_000
    link.proxy.faults.flips_left = times
    link.proxy.cut(Ending.RST)
    assert link.proxy.wait_for(lambda: link.proxy.faults.flips == times, 120.0)


def flips_under_tls(link: Link) -> None:
    flips(link, FLIPS_UNDER_TLS)
    assert link.told("damaged on the way") == 0, "TLS finds them first"


NAMED = (cuts, resets_inside_chunks, stall, delay, trickle, half_close, flips, flips_under_tls)
SCENARIOS: dict[str, Scenario] = {
    **{play.__name__: play for play in NAMED},
    "more_cuts": cuts,
    "half_open": half_open(BOTH),
    "half_open_down": half_open(frozenset({Way.DOWN})),
    "half_open_up": half_open(frozenset({Way.UP})),
}


@pytest.fixture(scope="module")
def captures(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Captured]:
    """The scenarios that are asked for, all at once: most of the time they wait."""
    asked = {item.name for item in request.session.items if item.path == request.path}
    plays = {name: play for name, play in SCENARIOS.items() if f"{TEST}[{name}]" in asked}
    return captured(plays, tmp_path_factory.mktemp("links"), CAPTURE_S, encrypted=[flips_under_tls.__name__])


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "scenario", [*QUICK, *(pytest.param(each, marks=pytest.mark.long) for each in SCENARIOS if each not in QUICK)]
)
def test_a_capture_over_a_broken_link(scenario: str, captures: dict[str, Captured]) -> None:
    captures[scenario].check()
