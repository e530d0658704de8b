"""What is told of a version that does not run on a board."""

from __future__ import annotations

from profagent.commands.installing import first_complaint


def test_the_first_mistake_has_its_own_hint() -> None:
    said = ["a.toml:1: depth = 99", "  depth is a number", "a.toml:2: scan = 1", "  scan is true or false"]
    assert first_complaint(said) == ("a.toml:1: depth = 99; and 1 more", "depth is a number")
    assert first_complaint(said[:2])[0] == said[0]


def test_one_that_does_not_run_at_all_is_told_by_its_last_line() -> None:
    said = ["Traceback (most recent call last):", '  File "x"', "ImportError: libstdc++.so.6: cannot open"]
    assert first_complaint(said)[0] == said[2]
    assert first_complaint(["python3: not found"]) == ("python3: not found", "see `profagent deploy --help`")
