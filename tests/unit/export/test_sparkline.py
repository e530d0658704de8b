"""A series as bars."""

from __future__ import annotations

from profagent.cli.table import sparkline


def test_least_and_most() -> None:
    assert sparkline([1.0, 2.0, 8.0]) == "▁▂█"


def test_what_is_level_is_shown_so() -> None:
    assert sparkline([100.0, 100.1, 100.2]) == "▁▁▂"
    assert sparkline([0.0, 0.0]) == "▁▁"


def test_what_is_not_known_is_a_gap() -> None:
    assert sparkline([1.0, None, 2.0]) == "▁ █"
    assert sparkline([None]) == " "
    assert sparkline([]) == ""
