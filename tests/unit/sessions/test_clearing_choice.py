"""Which sessions lose their records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from profagent.sessions.clearing import Chosen, Rules, choose
from profagent.store.sessions import HeldSession


def session(number: int, *jobs: int, board: str = "b", size: int = 10, is_over: bool = True) -> HeldSession:
    return HeldSession(number, board, number * 100, is_over, frozenset(jobs or (number,)), size)


def chosen(
    held: list[HeldSession], rules: Rules, *, staying: dict[int, str] | None = None, on_disk: int = 100
) -> Chosen:
    asked = {each.session for each in held}
    return choose(held, rules, asked=asked, staying=staying or {}, held_bytes=on_disk)


def numbers(choice: Chosen) -> list[int]:
    return sorted(each.session for group in choice.groups for each in group)


def test_the_last_of_each_board_stay() -> None:
    held = [session(1), session(2, board="c"), session(3), session(4), session(5, board="c")]
    assert numbers(chosen(held, Rules(keep_last=1))) == [1, 2, 3]
    assert numbers(chosen(held, Rules(keep_last=9))) == []
    assert numbers(chosen(held, Rules(keep_last=0))) == [1, 2, 3, 4, 5]


def test_the_oldest_go_until_the_rest_fits() -> None:
    held = [session(number, size=25) for number in range(1, 5)]
    choice = chosen(held, Rules(most_bytes=60))
    assert numbers(choice) == [1, 2]
    assert choice.freed_bytes == 50
    assert numbers(chosen(held, Rules(most_bytes=100))) == []


def test_a_baseline_and_a_session_that_goes_on_stay() -> None:
    choice = chosen(
        [session(1), session(2), session(3, is_over=False)], Rules(before_us=900), staying={1: "the baseline good"}
    )
    assert numbers(choice) == [2]
    assert choice.staying == {1: "is the baseline good", 3: "is not over"}


def test_sessions_that_share_a_job_go_together_or_stay() -> None:
    held = [session(1, 7), session(2, 7, 8), session(3, 8), session(4)]
    assert numbers(chosen(held, Rules(before_us=250))) == []
    assert chosen(held, Rules(before_us=250)).staying == {
        1: "shares a JOB with session 3, which stays",
        2: "shares a JOB with session 3, which stays",
    }
    choice = chosen(held, Rules(before_us=301))
    assert [[each.session for each in group] for group in choice.groups] == [[1, 2, 3]]


@given(
    st.lists(st.tuples(st.sets(st.integers(0, 6), max_size=3), st.sampled_from("bc"), st.booleans()), max_size=9),
    st.integers(0, 900),
    st.integers(0, 3),
    st.integers(0, 120),
    st.sets(st.integers(0, 8)),
)
def test_what_must_stay_stays(
    drawn: list[tuple[set[int], str, bool]], before_us: int, keep_last: int, most: int, baselines: set[int]
) -> None:
    """Whatever the rules are: no baseline, no unfinished session, none whose JOBs another needs."""
    held = [
        session(number, *(jobs or {100 + number}), board=board, is_over=over)
        for number, (jobs, board, over) in enumerate(drawn)
    ]
    names = {number: f"n{number}" for number in baselines}
    going = numbers(chosen(held, Rules(before_us, keep_last, most), staying=names))
    kept = [each for each in held if each.session not in going]
    for each in (held[number] for number in going):
        assert each.is_over
        assert each.session not in baselines
        assert each.started_us < before_us
        assert not any(each.jobs & other.jobs for other in kept)
    for board in "bc":
        newest = [each.session for each in held if each.board == board][-keep_last:] if keep_last else []
        assert not {*newest} & {*going}
