"""Which board has to answer for a name."""

from __future__ import annotations

import pytest

from profagent.errors import RefusedError
from profagent.link.credentials import Access, KnownBoard

EULER = KnownBoard("euler", "192.0.2.2", "u-1", "ab")


def test_the_board_that_is_known_is_taken() -> None:
    EULER.check_identity("u-1")
    EULER.check_fingerprint("ab")
    KnownBoard("any", "192.0.2.2").check_identity("u-2")
    KnownBoard("any", "192.0.2.2").check_fingerprint("cd")


def test_another_board_is_refused_with_both_values_and_what_to_do() -> None:
    with pytest.raises(RefusedError, match=r"u-2.*u-1") as error:
        EULER.check_identity("u-2")
    assert "profagent boards remove euler" in error.value.hint
    with pytest.raises(RefusedError, match=r"cd.*ab") as error:
        EULER.check_fingerprint("cd")
    assert "boards.toml" in error.value.hint


def test_a_name_comes_before_an_address() -> None:
    access = Access(known={"euler": EULER})
    assert access.named("euler").address == "192.0.2.2:50151"
    assert access.named("euler.local") == KnownBoard("euler.local:50151", "euler.local:50151")
