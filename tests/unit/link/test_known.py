"""Which board has to answer for a name."""

from __future__ import annotations

from profagent.link.credentials import Access, KnownBoard

EULER = KnownBoard("euler", "192.0.2.2", "u-1", "ab")


def test_a_name_comes_before_an_address() -> None:
    access = Access(known={"euler": EULER})
    assert access.named("euler").address == "192.0.2.2:50151"
    assert access.named("euler.local") == KnownBoard("euler.local:50151", "euler.local:50151")
