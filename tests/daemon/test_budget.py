"""Room that streams share: a little for sure, the rest to those who come first, and all of it comes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from profagentd.budget import Budget


def test_one_stream_has_its_own_and_everything_common() -> None:
    share = Budget(sure=2, common=10).share()
    assert share.room == 12
    share.take(12)
    assert share.room == 0


def test_what_one_has_taken_leaves_the_other_its_own() -> None:
    budget = Budget(sure=2, common=10)
    first, second = budget.share(), budget.share()
    first.take(12)
    assert second.room == 2
    first.give_back(5)
    assert second.room == 7


def test_a_share_that_is_closed_has_given_everything_back() -> None:
    budget = Budget(sure=2, common=10)
    share = budget.share()
    share.take(9)
    share.close()
    share.close()
    assert budget.share().room == 12


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), max_size=40))
def test_no_more_is_ever_taken_than_there_is(steps: list[tuple[int, int]]) -> None:
    budget = Budget(sure=3, common=10)
    shares, taken = [budget.share() for _ in range(4)], [0] * 4
    for who, wanted in steps:
        shares[who].give_back(taken[who])
        taken[who] = min(wanted, shares[who].room)
        shares[who].take(taken[who])
        assert sum(taken) <= 4 * 3 + 10
        assert budget.common == 10 - sum(max(0, each - 3) for each in taken)
