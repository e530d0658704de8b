"""What votes make of a fact, and evidence that points nowhere."""

from __future__ import annotations

import pytest

from profagent.doctor.fact import Alternative, Answer, Fact, Verdict, cannot_tell, settled
from profagent.doctor.numbering import Numbered, check_batches, check_loops
from profagent.doctor.ticks import Timed, check_ticks

FACT = Fact("a-fact", (Alternative("x", "it is x"), Alternative("y", "it is y", is_read=False)))


@pytest.mark.parametrize(
    ("votes", "verdict", "text"),
    [
        ([{"x"}] * 4 + [{"y"}], Verdict.CONFIRMS, "confirms x: it is x; refutes y: 5 votes"),
        ([{"x"}] * 3 + [{"y"}], Verdict.REFUTES, "refutes x, y; left is none that is known: 5 votes"),
        ([{"x", "y"}], Verdict.CANNOT_TELL, "cannot tell: 5 votes"),
    ],
)
def test_four_fifths_decide(votes: list[set[str]], verdict: Verdict, text: str) -> None:
    answer = settled(FACT, votes, votes, "5 votes")
    assert (answer.verdict, str(answer)) == (verdict, text)


def test_what_is_likely_decides_and_otherwise_what_is_allowed_at_all() -> None:
    assert settled(FACT, [{"x", "y"}], [{"y"}], "").confirmed == "y"
    assert settled(FACT, [{"x"}], [set()], "").confirmed == "x"
    assert settled(FACT, [{"y"}], [{"y"}], "").is_misread
    assert not cannot_tell(FACT, "why").is_misread


@pytest.mark.parametrize("window_us", [700, 900, 1_000, 2_000, 5_000])
def test_an_npu_that_idles_looks_like_a_longer_tick(window_us: int) -> None:
    """700 ticks are 100 us by the likely unit, and 700 us if a tick is a microsecond."""
    idle = check_ticks([Timed(700, window_us, 700)])
    assert idle.verdict is Verdict.CANNOT_TELL
    assert f"{100 / window_us:.1%} by 100-cycles" in idle.seen
    assert "unrecorded" not in idle.seen


def test_where_a_longer_tick_would_be_too_long_layers_take_most_of_the_time() -> None:
    assert check_ticks([Timed(700, 400, 700)]).confirmed == "100-cycles"
    assert check_ticks([Timed(700, 600, 700)]).refuted == ("us",)
    assert check_ticks([Timed(700, 400, 700), Timed(700, 5_000, 700)]).confirmed == "100-cycles"
    unrecorded = check_ticks([Timed(700, 400, 700, may_have_cpu_part=True)])
    assert unrecorded.refuted == ("us",)
    assert "of 1 a CPU part may have gone unrecorded" in unrecorded.seen


@pytest.mark.parametrize("disturbed", [10, 700 * 20, 2**32 - 1])
@pytest.mark.parametrize("others", [0, 1, 2, 3, 9])
def test_one_disturbed_tick_never_refutes_the_truth(disturbed: int, others: int) -> None:
    """Layers of 600 and 100 ticks in 130 us, and once with other ticks in place of the 100."""
    odd = Timed(600 + disturbed, 130, 700, longest=max(600, disturbed))
    answer = check_ticks([odd, *[Timed(700, 130, 700, longest=600)] * others])
    assert "100-cycles" in {each.name for each in answer.possible}
    assert answer.confirmed in ("100-cycles", "")
    if not others and disturbed > 600:
        assert f"{600 / 7 / 130:.1%} by 100-cycles" in answer.seen
        assert answer.seen.endswith(", without the longest of each")


def test_a_single_layer_tells_in_five_inferences() -> None:
    assert check_ticks([Timed(700, 130, 700, longest=700)] * 4).verdict is Verdict.CANNOT_TELL
    assert check_ticks([Timed(700, 130, 700, longest=700)] * 5).confirmed == "100-cycles"


def test_an_npu_that_idles_waits_no_longer_for_more_ticks() -> None:
    """Sixteen inferences that idle for 900 us, at any length of a tick: only what they take longer by tells it."""
    more = range(0, 320, 20)
    idle = check_ticks([Timed(700 + each, 1_000 + each // 7, 700) for each in more])
    assert idle.confirmed == "100-cycles"
    assert check_ticks([Timed(700 + each, 900 + 700 + each, 700) for each in more]).confirmed == "us"
    assert check_ticks([Timed(700 + each, 1_600 + each, 700) for each in more[:9]]).verdict is Verdict.CANNOT_TELL
    scattered = [Timed(700 + each, 1_600 + each + each * 6 % 151 * 3, 700) for each in more]
    assert check_ticks(scattered).verdict is Verdict.CANNOT_TELL
    unrelated = [Timed(700 + each, 1_000 + each * 13 % 97, 700) for each in more]
    assert check_ticks(unrelated).verdict is Verdict.CANNOT_TELL
    assert check_ticks([Timed(700 + each, 1_000, 700) for each in more]).verdict is Verdict.CANNOT_TELL
    models = [Timed(700 * each, 1_000 * each, 700, model=str(each)) for each in range(1, 17)]
    assert check_ticks(models).verdict is Verdict.CANNOT_TELL
    hidden = [Timed(700 + each, 1_600 + each, 700, may_have_cpu_part=True) for each in more]
    assert check_ticks(hidden).verdict is Verdict.CANNOT_TELL


def test_an_inference_that_is_too_short_says_nothing() -> None:
    assert check_ticks([Timed(70, 12, 700), Timed(0, 500, 700)]).verdict is Verdict.CANNOT_TELL


def numbered(
    sequence: list[int], layers: int, sizes: tuple[int, ...], max_loop: int = 1, inference: str = "a"
) -> Numbered:
    return Numbered(inference, tuple(sequence), (False,) * layers, sizes, max_loop)


def answer_of(layers: int, sizes: tuple[int, ...], *sequences: list[int]) -> Answer:
    """What inferences with these numbers tell of batches."""
    return check_batches([numbered(each, layers, sizes, inference=str(at)) for at, each in enumerate(sequences)])


def test_the_last_layers_may_take_no_time() -> None:
    answer = answer_of(4, (1, 1), *[[0, 2, 3, 5, 6]] * 2)
    assert answer.confirmed == ""
    assert answer.refuted == ("each-batch", "each-picture")


def test_a_disturbed_number_at_the_end_refutes_nothing() -> None:
    """Numbers of 3 pictures begin again with each; behind the 7 the runtime's filter lets none of them through."""
    assert answer_of(4, (3,), *[[0, 1, 2, 3, 7]] * 2).refuted == ("on", "each-batch")


EACH_PICTURE = [0, 1, 2, 3, 3, 3]


@pytest.mark.parametrize("disturbed", [[0, 1, 2, 3], [0, 1, 2, 3, 3], [0, 1, 2, 3, 3, 2], [0, 1, 2, 9, 3, 3]])
@pytest.mark.parametrize("others", [0, 1, 2, 3])
def test_one_disturbed_or_dropped_record_never_refutes_the_truth(disturbed: list[int], others: int) -> None:
    answer = answer_of(4, (3,), disturbed, *[EACH_PICTURE] * others)
    assert "each-picture" in {each.name for each in answer.possible}
    assert answer.confirmed in (("each-picture",) if others > 1 else ("each-picture", ""))


def test_nets_of_one_inference_are_one_evidence() -> None:
    answer = check_batches([numbered(EACH_PICTURE, 4, (3,))] * 3)
    assert str(answer).startswith("cannot tell: one inference alone, in which a record may be disturbed: 3 segments; ")


def test_numbers_that_fit_nothing_refute_all() -> None:
    answer = answer_of(4, (2,), [0, 98, 99], [0, 98, 99])
    assert answer.possible == ()
    assert answer.is_misread


def answer_of_loops(*sequences: list[int]) -> Answer:
    """What inferences with these numbers tell of a net of three layers that may loop."""
    return check_loops([numbered(each, 3, (1,), 8, inference=str(at)) for at, each in enumerate(sequences)])


@pytest.mark.parametrize("others", [0, 1, 2, 3])
def test_one_disturbed_record_in_a_loop_never_refutes_the_truth(others: int) -> None:
    again = answer_of_loops([0, 1, 2, 7], *[[0, 1, 2, 2]] * others)
    assert again.confirmed == ("each-pass" if others > 1 else "")
    assert "each-pass" in {each.name for each in again.possible}
    on = answer_of_loops([0, 1, 2, 2], *[[0, 1, 2, 3, 4, 5]] * others)
    assert on.confirmed == ("on" if others > 1 else "")
    assert "on" in {each.name for each in on.possible}


def test_a_loop_that_was_gone_through_once_says_nothing() -> None:
    answer = check_loops([numbered([0, 1], 3, (1,), max_loop=8)])
    assert answer.verdict is Verdict.CANNOT_TELL
    assert "the numbers of one pass" in answer.seen
