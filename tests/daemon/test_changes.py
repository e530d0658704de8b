"""What may have changed in a JOB is kept within bounds."""

from __future__ import annotations

import pytest

from profagentd.budget import Budget
from profagentd.changes import NAMES_LIMIT, Changes, Touch


def test_a_new_selection_begins_with_a_walk() -> None:
    changes = Changes(Budget(sure=0, common=2 * NAMES_LIMIT).share(), walk=True)
    assert changes
    assert changes.take_walk()
    assert not changes
    assert not changes.take_walk()


def test_names_come_in_the_order_in_which_they_changed_and_once() -> None:
    changes = Changes(Budget(sure=0, common=2 * NAMES_LIMIT).share(), walk=False)
    for path in (b"b", b"a", b"c"):
        changes.note(path, Touch.WRITTEN)
    assert list(changes.take(2)) == [b"b", b"a"]
    assert list(changes.take(2)) == [b"c"]
    assert not changes


def test_what_happened_to_a_name_adds_up() -> None:
    changes = Changes(Budget(sure=0, common=2 * NAMES_LIMIT).share(), walk=False)
    for touch in (Touch.MADE, Touch.HINT, Touch.DELETED):
        changes.note(b"a", touch)
    assert changes.take(1) == {b"a": Touch.MADE | Touch.DELETED}


@pytest.mark.parametrize(
    ("earlier", "later", "is_remade"),
    [
        (Touch.MADE | Touch.WRITTEN, Touch.DELETED | Touch.MADE, True),
        (Touch.MADE, Touch.MADE | Touch.WRITTEN, True),
        (Touch.MADE | Touch.MOVED, Touch.MADE, False),
        (Touch.WRITTEN | Touch.DELETED, Touch.MADE, False),
        (Touch.UNSURE, Touch.UNSURE, False),
    ],
)
def test_what_is_made_once_more_was_gone_between(earlier: Touch, later: Touch, *, is_remade: bool) -> None:
    changes = Changes(Budget(sure=0, common=2 * NAMES_LIMIT).share(), walk=False)
    changes.note(b"a", earlier)
    changes.note(b"a", later)
    assert bool(changes.take(1)[b"a"] & Touch.REMADE) == is_remade


def test_a_mere_end_matters_only_to_a_name_that_waits() -> None:
    changes = Changes(Budget(sure=0, common=2 * NAMES_LIMIT).share(), walk=False)
    for number in range(NAMES_LIMIT + 1):
        changes.note(b"%d" % number, Touch.DELETED)
        changes.note(b"%d" % number, Touch.MOVED)
    assert not changes
    changes.note(b"a", Touch.MADE)
    changes.note(b"a", Touch.MOVED)
    assert changes.take(1) == {b"a": Touch.MADE | Touch.MOVED}


def test_a_mere_hint_is_kept_too() -> None:
    changes = Changes(Budget(sure=0, common=2 * NAMES_LIMIT).share(), walk=False)
    changes.note(b"a", Touch.HINT)
    assert changes.take(1) == {b"a": Touch.HINT}


def test_too_many_names_become_a_walk() -> None:
    changes = Changes(Budget(sure=0, common=2 * NAMES_LIMIT).share(), walk=False)
    for number in range(NAMES_LIMIT):
        changes.note(b"%d" % number, Touch.WRITTEN)
    changes.note(b"0", Touch.MADE)
    assert not changes.take_walk()
    changes.note(b"one more", Touch.WRITTEN)
    assert changes.take(NAMES_LIMIT) == {}
    assert changes.take_walk()


def test_what_was_made_and_stayed_is_taken_if_it_is_wanted_oldest_first() -> None:
    share = Budget(sure=0, common=2 * NAMES_LIMIT).share()
    room = share.room
    changes = Changes(share, walk=False)
    others = {
        b"unwanted": Touch.MADE,
        b"grown": Touch.WRITTEN,
        b"gone": Touch.MADE | Touch.DELETED,
        b"moved": Touch.MADE | Touch.WRITTEN | Touch.MOVED,
        b"hint": Touch.HINT,
    }
    made = {b"c": Touch.MADE, b"a": Touch.MADE | Touch.WRITTEN, b"b": Touch.MADE | Touch.CLOSED}
    for path, touch in {**others, **made}.items():
        changes.note(path, touch)
    assert changes.take_made(2, lambda path, is_made: is_made and path != b"unwanted") == [b"c", b"a"]
    assert changes.take_made(2, lambda path, is_made: is_made and path != b"unwanted") == [b"b"]
    assert share.room == room - len(others)
    assert changes.take(10) == others


def test_names_that_are_put_back_come_before_others_and_keep_what_was_told() -> None:
    changes = Changes(Budget(sure=0, common=10).share(), walk=False)
    changes.note(b"later", Touch.WRITTEN)
    changes.note(b"both", Touch.WRITTEN)
    changes.put_back({b"both": Touch.MADE | Touch.COVERED, b"first": Touch.COVERED})
    changes.note(b"first", Touch.HINT)
    expected = {b"both": Touch.MADE | Touch.WRITTEN, b"first": Touch.COVERED, b"later": Touch.WRITTEN}
    assert list(changes.take(10).items()) == list(expected.items())
