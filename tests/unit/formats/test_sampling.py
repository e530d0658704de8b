"""Which samples were due, late or never came, against the runtime's own rule."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profagent.errors import UsageError
from profagent.formats.names import InferenceKey
from profagent.formats.sampling import (
    MAY_HAVE_STOPPED,
    MISMATCH,
    NO_INTERVAL,
    EachNth,
    SampleCounts,
    SampleTally,
    Schedule,
    counts_of_loads,
    figures_of,
    infer_interval,
    interval_of,
    parse_schedule,
    step_of,
    sum_of,
)


@pytest.mark.parametrize(
    ("times", "loads"),
    [
        ({0: [1, 5], 10: [2, 6], 20: [3]}, [[0, 10, 20], [0, 10]]),
        ({0: [1, 5], 10: [2], 12: [7], 24: [8]}, [[0, 10], [0, 12, 24]]),
        # Of a file with two inferences an import knows the time of the last.
        ({0: [None, 5], 10: [None, 6], 20: [3]}, [[0, 10, 20], [0, 10]]),
        ({0: [1, 5, 9], 10: [2, 9]}, [[0, 10], [0], [0, 10]]),
        ({0: [None, None, 9], 10: [11]}, [[0], [0], [0, 10]]),
    ],
)
def test_what_began_after_a_load_and_before_the_next_is_its_own(
    times: dict[int, list[int | None]], loads: list[list[int]]
) -> None:
    assert counts_of_loads(times) == loads


@pytest.mark.parametrize(
    "times",
    [
        {0: [1, 5], 10: [None]},  # no time
        {0: [None, None, 9], 10: [4]},  # before the last load; of the first or the second
        {0: [1, 5], 10: [2, 6], 20: [3, 7, 9]},  # more inferences than loads that are known
        {0: [1, 5], 10: [4], 20: [3]},  # the clock was set
        {0: [1, 5, 9], 10: [2, 3]},  # two of one load
        {10: [1]},
    ],
)
def test_what_cannot_be_told_is_not_guessed(times: dict[int, list[int | None]]) -> None:
    assert counts_of_loads(times) is None


def kept(choice: Schedule | EachNth, steps: int) -> list[int]:
    return [step for step in range(steps) if choice.keeps(step)]


def test_cycles_repeat_as_often_as_told() -> None:
    schedule = parse_schedule("skip_first=10,wait=5,warmup=2,active=3,repeat=4")
    assert kept(schedule, 100) == [17, 18, 19, 27, 28, 29, 37, 38, 39, 47, 48, 49]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "whole number"),
        ("wait", "whole number"),
        ("wait=1", "must be given"),
        ("active=1", "must be given"),
        ("wait=1,active=0", "at least 1"),
        ("wait=-1,active=1", "whole number"),
        ("wait=1.5,active=1", "whole number"),
        ("wait=1,wait=2,active=1", "each name once"),
        ("wait=1,active=1,often=2", "whole number"),
        ("wait=9999999999,active=1", "whole number"),
        ("wait=٣,active=1", "whole number"),
    ],
)
def test_a_schedule_without_a_clear_meaning_is_refused(text: str, part: str) -> None:
    with pytest.raises(UsageError, match=part) as raised:
        parse_schedule(text)
    assert "skip_first=10" in raised.value.hint


@pytest.mark.parametrize(
    ("pictures", "count", "interval", "step"),
    [
        (1, 0, None, 0),
        (1, 17, None, 17),
        (4, 68, None, 17),
        (1, 170, 10, 17),
        (4, 680, 10, 17),
        (1, 173, 10, 17),
        (0, 5, 0, 5),
    ],
)
def test_a_step_follows_from_a_files_name(pictures: int, count: int, interval: int | None, step: int) -> None:
    assert step_of(InferenceKey(0, "net", 0, 3, 1, pictures, count), interval) == step


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
    assert tally_of(counts, pictures).figures(interval) == SampleCounts(
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


def test_only_the_first_inference_is_due_with_an_interval_of_0() -> None:
    assert figures_of(1, {}, 0) == SampleCounts(0, "acl.json", 1, 1, 0, 0)
    assert figures_of(2, {7: 1}, 0) == SampleCounts(0, "acl.json", 2, None, None, None, f"{MISMATCH} 0")


@pytest.mark.parametrize("gaps", [{5: 1}, {3: 1, 5: 10}, {2: 1, 3: 1, 4: 1}])
def test_an_interval_that_picture_counts_do_not_show_is_not_known(gaps: dict[int, int]) -> None:
    sampled = sum(gaps.values()) + 1
    assert figures_of(sampled, gaps, None) == SampleCounts(None, None, sampled, None, None, None, NO_INTERVAL)


def test_the_only_sample_was_due_whatever_the_interval() -> None:
    assert figures_of(1, {}, None) == SampleCounts(None, None, 1, 1, 0, 0)


def test_what_a_program_passed_over_by_itself_is_not_due() -> None:
    gaps = {1: 8, 6: 1}
    assert figures_of(10, gaps, None) == SampleCounts(1, "inferred", 10, None, None, None, MAY_HAVE_STOPPED)
    # An acl.json is for programs that do not start and stop, and calls were counted.
    assert figures_of(10, gaps, 1).due == 15
    assert figures_of(10, gaps, None, has_calls=True).due == 15
    assert figures_of(10, {2: 8, 6: 1}, None).due == 12


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
    one, other = SampleCounts(10, "acl.json", 9, 10, 1, 1), SampleCounts(10, "acl.json", 5, 5, 0, 0)
    assert sum_of([one, other]) == SampleCounts(10, "acl.json", 14, 15, 1, 1)
    assert sum_of([one, other._replace(interval=3)]) == SampleCounts(None, None, 14, 15, 1, 1)
    assert sum_of([one, other._replace(due=None, late=None, never_came=None)]).due is None
    assert sum_of([]) == SampleCounts(None, None, 0, None, None, None)
