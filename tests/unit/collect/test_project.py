"""What of a project is sent to a board, and what may be removed there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profagent.collect.project import Entry, difference, is_plain_name

FILE = Entry("file", "d1")
NAMES = st.sampled_from(["a", "a/b", "a/c", "d", "e"])
PROGRAM = Entry("file", "d1", is_executable=True)
ENTRIES = st.sampled_from([FILE, Entry("file", "d2"), PROGRAM, Entry("directory"), Entry("link", "x")])


def test_what_is_there_is_not_sent() -> None:
    tree = {"dir": Entry("directory"), "dir/file": FILE, "link": Entry("link", "dir/file")}
    assert difference(tree, tree, tree) == ((), ())


@pytest.mark.parametrize("found", [None, Entry("file", "d2"), PROGRAM, Entry("link", "d1"), Entry("directory")])
def test_what_is_another_is_sent(found: Entry | None) -> None:
    assert difference({"a": FILE}, {} if found is None else {"a": found}, ())[0] == ("a",)


def test_what_is_in_a_directory_goes_before_it() -> None:
    found = {"old": Entry("directory"), "old/x": FILE, "theirs": FILE}
    assert difference({"new": FILE}, found, ["old", "old/x", "away"]) == (("new",), ("old/x", "old"))


@given(st.dictionaries(NAMES, ENTRIES), st.dictionaries(NAMES, ENTRIES), st.lists(NAMES))
def test_nothing_that_others_put_there_is_removed(
    wanted: dict[str, Entry], found: dict[str, Entry], put: list[str]
) -> None:
    send, remove = difference(wanted, found, put)
    assert {*remove} <= {*put} & {*found}
    left = {**{name: entry for name, entry in found.items() if name not in remove}}
    left |= {name: wanted[name] for name in send}
    assert {name: left[name] for name in wanted} == wanted


@pytest.mark.parametrize("name", ["", "/a", "a/../b", "..", "a\nb", "a\\b", "a//b", "\udcff"])
def test_names_that_lead_elsewhere_or_take_more_than_a_line(name: str) -> None:
    assert not is_plain_name(name)
