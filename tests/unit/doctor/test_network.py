"""Checks of the way to a board, and of boards that say they are one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profagent.doctor.finding import Mark
from profagent.doctor.network import Known, Resolved, daemon_version, identities, link, listener, name_resolution
from profagent.link.messages import PROTOCOL, Board, Clocks
from tests.unit.doctor.facts import SERVICE

BOARD = Board(
    identity="u-1",
    hostname="euler",
    boot_id="",
    model="",
    daemon_version="0.1.0",
    protocol=PROTOCOL,
    simulated=False,
    sdk_version="",
    roots=(),
    quiet_after_us=1,
    clocks=Clocks(1, 1),
)


def test_names_lead_somewhere_or_not() -> None:
    assert name_resolution(Resolved("euler", ("192.0.2.2",))).evidence == "euler is 192.0.2.2"
    assert name_resolution(Resolved("192.0.2.2", ("192.0.2.2",))).mark is Mark.GOOD
    failed = name_resolution(Resolved("euler", error="Name or service not known"))
    assert failed.mark is Mark.BAD
    assert "getent hosts euler" in failed.remedy


def test_the_link_stands_or_says_why_not() -> None:
    assert link("192.0.2.2:50151", "", "").mark is Mark.GOOD
    assert link("192.0.2.2:50151", "connection refused", "start it").remedy == "start it"


@pytest.mark.parametrize(
    ("board", "mark"),
    [
        (BOARD, Mark.GOOD),
        (replace(BOARD, protocol=(PROTOCOL[0] + 1, 0)), Mark.BAD),
        (replace(BOARD, daemon_version="0.0.9"), Mark.UNKNOWN),
    ],
)
def test_versions_of_daemon_and_protocol(board: Board, mark: Mark) -> None:
    finding = daemon_version(board, "0.1.0")
    assert finding.mark is mark
    assert bool(finding.remedy) == (mark is not Mark.GOOD)
    assert board.daemon_version in finding.evidence


def test_a_listener_that_lets_anybody_in() -> None:
    assert listener(BOARD, None).mark is Mark.GOOD
    service, by_hand = (listener(replace(BOARD, insecure=True), daemon) for daemon in (SERVICE, None))
    assert service.mark is by_hand.mark is Mark.BAD
    assert "in /etc/profagent/profagentd.toml" in service.remedy
    assert "restart the service" in service.remedy
    assert "--insecure" in by_hand.remedy


def found(*boards: Known) -> list[tuple[Mark, str]]:
    return [(finding.mark, finding.evidence) for finding in identities(boards)]


def test_boards_with_identities_of_their_own() -> None:
    assert [mark for mark, _ in found(Known("a", "1:1", "u-1"), Known("b", "2:1", "", "u-2"))] == [Mark.GOOD]


def test_two_boards_of_one_identity() -> None:
    for boards in (
        (Known("a", "1:1", "u-1"), Known("b", "2:1", "u-1")),
        (Known("a", "1:1", "", "u-1"), Known("b", "2:1", "u-1")),
        (Known("a", "1:1", "", "u-1"), Known("b", "2:1", "", "u-1")),
    ):
        ((mark, evidence),) = found(*boards)
        assert mark is Mark.BAD
        assert evidence == "a and b have one identity: u-1"


def test_one_board_by_its_name_and_its_address_is_one() -> None:
    assert [mark for mark, _ in found(Known("a", "1:1", "u-1"), Known("1:1", "1:1", "", "u-1"))] == [Mark.GOOD]


def test_another_board_answers_than_is_written() -> None:
    assert (Mark.BAD, "a is u-1 in boards.toml, and u-2 answers at 1:1") in found(Known("a", "1:1", "u-1", "u-2"))


def test_boards_of_which_nothing_is_known() -> None:
    assert [mark for mark, _ in found(Known("a", "1:1"))] == [Mark.UNKNOWN]
    assert [mark for mark, _ in found(Known("a", "1:1"), Known("b", "2:1", "u-2"))] == [Mark.UNKNOWN, Mark.GOOD]
