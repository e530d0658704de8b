"""What is said of a board when a link to it opens."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from profagent.cli.running import REPEATED_S, LinkRemarks, remarks
from profagent.errors import RefusedError, UnreachableError
from profagent.link.messages import Clocks, Retention
from tests.unit.link.board import BOARD

NOW_US = BOARD.clocks.wall_us
HOUR_US = 3_600_000_000
DELIVERED = Retention("delivered", ("nightly",))


def test_an_open_board_is_warned_of() -> None:
    [told] = remarks(replace(BOARD, insecure=True), "operator", NOW_US)
    assert "board is open (--insecure)" in told


@pytest.mark.parametrize(
    ("role", "retention", "is_told"),
    [
        ("viewer", DELIVERED, True),
        ("viewer", Retention("min-free"), True),
        ("viewer", Retention("keep"), False),
        ("viewer", None, False),
        ("operator", DELIVERED, False),
        ("unknown", DELIVERED, False),
    ],
)
def test_a_viewer_learns_that_its_copies_release_nothing(role: str, retention: Retention | None, is_told: bool) -> None:
    told = list(remarks(replace(BOARD, retention=retention), role, NOW_US))
    assert bool(told) is is_told
    assert all("--role operator" in each for each in told)


@pytest.mark.parametrize(
    ("wall_us", "shown"),
    [
        (0, "1970-01-01"),
        (NOW_US + 25 * HOUR_US, "2023-11-15"),
        (NOW_US - 25 * HOUR_US, "2023-11-13"),
        (2**63, "N/A"),
    ],
)
def test_a_clock_that_is_far_off_is_named_with_its_day(wall_us: int, shown: str) -> None:
    [told] = remarks(replace(BOARD, clocks=Clocks(wall_us, 0)), "operator", NOW_US)
    assert f"shows {shown}, this host's 2023-11-14" in told
    assert "date -s" in told


def test_who_waits_with_a_refused_credential_is_told_what_to_do() -> None:
    links = LinkRemarks(lambda: 0.0)
    assert links.gone(RefusedError("revoked", hint="issue another"), 40.0) == "revoked; retrying in 40 s; issue another"
    assert links.gone(UnreachableError("gone", hint="check it"), 0.0) == "gone; retrying in 1 s"


def test_the_same_is_said_again_when_some_time_has_passed_or_the_link_was_there() -> None:
    now_s = 0.0
    links = LinkRemarks(lambda: now_s)
    refused, closed = (UnreachableError(why, hint="") for why in ("refused", "closed"))
    assert [links.gone(error, 1.0) is not None for error in (closed, refused, refused)] == [True, True, False]
    now_s = REPEATED_S
    assert [links.gone(refused, 20.0), links.gone(refused, 1.0)] == ["refused; retrying in 20 s", None]
    links.linked()
    assert links.gone(refused, 1.0) == "refused; retrying in 1 s"
