"""Which board it is that was logged in to."""

from __future__ import annotations

from uuid import UUID

from profagent.deploy.board import recognised
from profagent.link.boards_file import BoardEntry

EULER = BoardEntry("euler", "192.0.2.2:50151", "u-1", "", "root@euler", "mac:1 machine-id:1")
ORANGE = BoardEntry("orange", "192.0.2.3:50151", "", "", "root@orange")
KNOWN = (ORANGE, EULER)


def is_new(identity: str) -> bool:
    return str(UUID(identity)) == identity


def test_a_board_is_known_by_its_identity_wherever_it_is() -> None:
    for marks in (("mac:1",), ()):
        found = recognised(KNOWN, "u-1", "root@elsewhere", marks)
        assert (found.identity, found.entry, found.copied_from) == ("u-1", EULER, None)


def test_another_machine_with_its_identity_gets_one_of_its_own() -> None:
    found = recognised(KNOWN, "u-1", "root@euler", ("mac:2", "machine-id:1"))
    assert is_new(found.identity)
    assert (found.entry, found.copied_from) == (None, EULER)


def test_a_board_that_was_flashed_anew_gets_its_identity_again() -> None:
    found = recognised(KNOWN, "", "root@euler", ("mac:1", "machine-id:2"))
    assert (found.identity, found.entry) == ("u-1", EULER)


def test_another_machine_in_its_place_does_not() -> None:
    found = recognised(KNOWN, "", "root@euler", ("mac:2", "machine-id:2"))
    assert is_new(found.identity)
    assert (found.entry, found.copied_from) == (None, None)


def test_others_are_new() -> None:
    assert recognised(KNOWN, "u-9", "root@euler", ("mac:1",)).identity == "u-9"
    assert recognised(KNOWN, "u-9", "root@euler", ("mac:1",)).entry is None
    assert is_new(recognised(KNOWN, "", "root@elsewhere", ("mac:1",)).identity)
    found = recognised(KNOWN, "", "root@orange", ("mac:1",))
    assert is_new(found.identity)
    assert found.entry == ORANGE
