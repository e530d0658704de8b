"""What is told of a version that does not run on a board."""

from __future__ import annotations

from profagent.deploy.installing import first_complaint


def test_the_first_mistake_has_its_own_hint() -> None:
    said = "/a.toml.new:1: depth = 99\n  depth is a number\n/a.toml.new:2: scan = 1\n  scan is true or false"
    assert first_complaint(said, ["/a.toml"]) == ("/a.toml:1: depth = 99; and 1 more", "depth is a number")
    assert first_complaint("/b:1: x\n  y", []) == ("/b:1: x", "y")


def test_one_that_does_not_run_at_all_is_told_by_its_last_line() -> None:
    said = 'Traceback (most recent call last):\n  File "x"\nImportError: libstdc++.so.6: cannot open'
    assert first_complaint(said, [])[0] == "ImportError: libstdc++.so.6: cannot open"
    assert first_complaint("python3: not found", []) == ("python3: not found", "see `profagent deploy --help`")
