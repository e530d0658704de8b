"""The list of revoked certificates."""

from __future__ import annotations

import pytest

from profagent.errors import UsageError
from profagent.link.credentials import revoked_fingerprints

ONE = "0123456789abcdef" * 4


def test_fingerprints_stand_a_line_each_with_remarks() -> None:
    colons = ":".join(["AB"] * 32)
    text = f"# nobody is trusted for ever\n\n{ONE}  # board euler, 2026-01-01\n {colons} \n"
    assert revoked_fingerprints(text, "list") == {ONE, "ab" * 32}


def test_a_list_of_remarks_revokes_nobody() -> None:
    assert revoked_fingerprints("# nobody\n", "list") == frozenset()


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_list_that_was_emptied_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="list is empty") as caught:
        revoked_fingerprints(text, "list")
    assert "copy it anew" in caught.value.hint


@pytest.mark.parametrize("line", [ONE[1:], ONE + "0", "g" * 64, "euler"])
def test_a_line_that_is_none_is_named(line: str) -> None:
    with pytest.raises(UsageError, match="list: line 2 is no SHA-256"):
        revoked_fingerprints(f"{ONE}\n{line}\n", "list")
