"""Which samples were due, late or never came, against the runtime's own rule."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profagent.formats.sampling import Figures, SampleTally, figures_of, gap_of, infer_interval, interval_of, sum_of


def runtime(interval: int, busy: list[int], inferences: int) -> tuple[list[int], int, int]:
    """The runtime's rule, inference by inference: what it samples, how many come late, how many it never takes.

    `busy[k]` inferences run while sample k is written. Each time that `interval` more have run, a sample is due: one
    that was due before and is still waiting then has never come.
    """
    sampled: list[int] = []
    late = never_came = waiting = 0
    for number in range(inferences):
        if not sampled:
            sampled.append(0)
            continue
        since = number - sampled[-1]
        is_due = interval > 0 and since % interval == 0
        never_came += is_due and waiting > 0
        waiting = 1 if is_due else waiting + (waiting > 0)
        if waiting and since >= busy[(len(sampled) - 1) % len(busy)]:
            late += waiting > 1
            sampled.append(number)
            waiting = 0
    return sampled, late, never_came


def tally_of(counts: list[int], pictures: int = 1) -> SampleTally:
    """Samples in the order given, each between those neighbours that came before it."""
    tally, known = SampleTally(), list[int]()
    for count in counts:
        before = max((each for each in known if each < count), default=None)
        after = min((each for each in known if each > count), default=None)
        tally.insert(before, count, after, pictures)
        known.append(count)
    return tally


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    interval=st.integers(1, 12),
    busy=st.lists(st.integers(0, 40), min_size=1, max_size=8),
    inferences=st.integers(1, 300),
    pictures=st.integers(1, 5),
    order=st.randoms(use_true_random=False),
)
def test_figures_are_those_of_the_runtime_in_whatever_order_files_come(
    interval: int, busy: list[int], inferences: int, pictures: int, order: object
) -> None:
    sampled, late, never_came = runtime(interval, busy, inferences)
    counts = [number * pictures for number in sampled]
    order.shuffle(counts)  # type: ignore[attr-defined]
    # What waits at the end has come to no file, late or never: no name tells of it.
    waited = sampled[-1]
    _, late, never_came = runtime(interval, busy, waited + 1)
    assert tally_of(counts, pictures).figures(interval) == Figures(
        interval, "acl.json", len(sampled), len(sampled) + never_came, late, never_came
    )


@settings(max_examples=200, deadline=None, derandomize=True)
@given(interval=st.integers(1, 50), late=st.lists(st.integers(0, 60), min_size=2, max_size=20))
def test_an_inferred_interval_is_the_right_one_where_half_of_the_samples_came_in_time(
    interval: int, late: list[int]
) -> None:
    gaps = Counter(interval + each for each in late)
    if 2 * late.count(0) >= len(late) and late.count(0) > 1:
        assert infer_interval(gaps) == interval
    else:
        assert infer_interval(gaps) != interval


@pytest.mark.parametrize(
    ("inferences", "interval", "meaning"),
    [(10, 10, (0, 0)), (13, 10, (3, 0)), (19, 10, (9, 0)), (20, 10, (0, 1)), (45, 10, (5, 3)), (3, 1, (0, 2))],
)
def test_a_distance_tells_lateness_and_what_never_came(
    inferences: int, interval: int, meaning: tuple[int, int]
) -> None:
    assert gap_of(inferences, interval) == meaning


@pytest.mark.parametrize(("inferences", "interval"), [(9, 10), (1, 0), (5, 0)])
def test_a_distance_that_the_interval_does_not_allow_means_nothing(inferences: int, interval: int) -> None:
    assert gap_of(inferences, interval) is None


def test_only_the_first_inference_is_due_with_an_interval_of_0() -> None:
    assert figures_of(1, {}, 0) == Figures(0, "acl.json", 1, 1, 0, 0)
    assert figures_of(2, {7: 1}, 0) == Figures(0, "acl.json", 2, None, None, None)


@pytest.mark.parametrize("gaps", [{}, {5: 1}, {3: 1, 5: 10}, {2: 1, 3: 1, 4: 1}])
def test_an_interval_that_picture_counts_do_not_show_is_not_known(gaps: dict[int, int]) -> None:
    assert figures_of(sum(gaps.values()) + 1, gaps, None)[:2] == (None, None)
    assert figures_of(sum(gaps.values()) + 1, gaps, None).due is None


def test_an_inferred_interval_is_marked() -> None:
    assert figures_of(4, {5: 2, 12: 1}, None) == Figures(5, "inferred", 4, 5, 1, 1)


@pytest.mark.parametrize("counts", [[0, 4, 9], [0, 4, 6]])
def test_inferences_of_several_sizes_cannot_be_counted(counts: list[int]) -> None:
    assert tally_of(counts, 4).figures(1).due is None


def test_a_call_with_another_number_of_pictures_makes_what_was_due_unknown() -> None:
    tally = tally_of([0, 4, 8], 4)
    tally.insert(8, 12, None, 2)
    assert tally.figures(1) == Figures(1, "acl.json", 4, None, None, None)


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("", 0),
        ("0", 0),
        ("9999", 9999),
        (" 7", 7),
        ("10000", None),
        ("5x", None),
        ("-1", None),
        (" ", None),
        ("٣", None),
    ],
)
def test_an_interval_is_read_as_the_runtime_takes_it(text: str, interval: int | None) -> None:
    assert interval_of(text) == interval


def test_figures_of_several_models_are_summed_as_far_as_all_are_known() -> None:
    one, other = Figures(10, "acl.json", 9, 10, 1, 1), Figures(10, "acl.json", 5, 5, 0, 0)
    assert sum_of([one, other]) == Figures(10, "acl.json", 14, 15, 1, 1)
    assert sum_of([one, other._replace(interval=3)]) == Figures(None, None, 14, 15, 1, 1)
    assert sum_of([one, other._replace(due=None, late=None, never_came=None)]).due is None
    assert sum_of([]) == Figures(None, None, 0, None, None, None)
